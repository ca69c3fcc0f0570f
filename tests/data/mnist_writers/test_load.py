"""MNIST by its writers from small files made here, and from the real ones."""

import dataclasses
import gzip
import hashlib
import pathlib

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import dataset
from episodic_dp.data.mnist_writers import builder
from episodic_dp.data.mnist_writers import source

# Four train; of the others 327 and 330 validate, and 331 has too few digits.
SMALL = (
    source.Writer(0, "train", (2, 0, 3, 1, 2, 0, 0, 0, 0, 1)),
    source.Writer(2100, "train", (1,) * 10),
    source.Writer(326, "t10k", (2, 3, 2, 0, 0, 0, 0, 0, 0, 1)),
    source.Writer(327, "t10k", (3, 2, 2, 0, 0, 0, 0, 0, 0, 0)),
    source.Writer(330, "t10k", (0, 0, 0, 0, 0, 0, 0, 2, 2, 2)),
    source.Writer(331, "t10k", (5, 5, 1, 0, 0, 0, 0, 0, 0, 0)),
)
SURPLUS = 3  # Rows of test labels without an image.


def _idx(array):
  kind = {"uint8": 8, "int32": 12}[array.dtype.name]
  header = bytes([0, 0, kind, array.ndim])
  header += np.asarray(array.shape, ">i4").tobytes()
  return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def _pixels(writer, digit, count):
  """Images that say whose they are."""
  images = np.zeros((count, 28, 28), np.uint8)
  images[:, 0, 0], images[:, 0, 1] = writer % 256, digit
  images[:, 0, 2] = np.arange(count)
  return images


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder with four small files of the published layout."""
  root = tmp_path_factory.mktemp("idx")
  for file, labels in (("train", "train"), ("t10k", "test")):
    images, rows = [], []
    for writer in (w for w in SMALL if w.file == file):
      for digit, count in enumerate(writer.counts):
        images.append(_pixels(writer.number, digit, count))
        rows += [(digit, 0, writer.number, 0, 0, 0, 0, 0)] * count
    order = np.random.RandomState(0).permutation(len(rows))
    surplus = [(9, 0, 9999, 0, 0, 0, 0, 0)] * (SURPLUS * (file == "t10k"))
    rows = np.asarray([*(rows[i] for i in order), *surplus], np.int32)
    for name, array in (
        (f"{file}-images-idx3-ubyte.gz", np.concatenate(images)[order]),
        (f"qmnist-{labels}-labels-idx2-int.gz", rows),
    ):
      (root / name).write_bytes(gzip.compress(_idx(array)))
  return root


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
  """The published table and checksums give way to those of the small files."""
  if "folder" not in request.fixturenames:
    return
  folder = request.getfixturevalue("folder")
  archives = {
      part: dataclasses.replace(
          archive,
          sha256=(
              hashlib.sha256((folder / archive.file).read_bytes()).hexdigest(),
          ),
      )
      for part, archive in source.ORIGINALS.sources["files"].items()
  }
  monkeypatch.setattr(
      source,
      "ORIGINALS",
      dataclasses.replace(source.ORIGINALS, sources={"files": archives}),
  )
  monkeypatch.setattr(source, "writers", lambda: SMALL)
  counts = {
      file: sum(sum(w.counts) for w in SMALL if w.file == file)
      for file in source.IMAGES
  }
  monkeypatch.setattr(source, "IMAGES", counts)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  """A cache that the tests of this module share."""
  return tmp_path_factory.mktemp("cache")


@pytest.fixture
def splits(folder, cache):
  return data.load(
      "mnist_writers", data_dir=folder, cache_dir=cache, way=3, per_digit=2
  )


def _units(part):
  """(writer, digit) -> number of images, empty ones too."""
  tree = part.hierarchy
  writers, digits = tree.names[0], tree.names[1]
  return {
      (int(writers[w]), int(digits[u])): int(tree.child_counts(2)[u])
      for u, w in enumerate(tree.parents(1))
  }


def test_every_writer_trains_with_ten_digits_also_empty_ones(splits):
  train = splits.train
  assert train.hierarchy.levels == ("writer", "digit", "image")
  assert not train.hierarchy.units_from_records
  assert _units(train) == {
      (w.number, digit): count
      for w in SMALL[:2]
      for digit, count in enumerate(w.counts)
  }


def test_writers_who_can_give_a_task_are_divided_by_their_number(splits):
  # Digits of fewer than two images are left out, and writer 331 with them.
  assert _units(splits.validation) == {
      (327, 0): 3, (327, 1): 2, (327, 2): 2,
      (330, 7): 2, (330, 8): 2, (330, 9): 2,
  }  # fmt: skip
  assert _units(splits.test) == {(326, 0): 2, (326, 1): 3, (326, 2): 2}


def test_images_lie_under_those_who_wrote_them(splits):
  for part in (splits.train, splits.validation, splits.test):
    tree = part.hierarchy
    units = np.repeat(np.arange(tree.num_units(1)), tree.child_counts(2))
    writers = tree.names[0][tree.parents(1)[units]]
    digits = tree.names[1][units]
    assert tree.leaf_rows is None
    np.testing.assert_array_equal(part.images[:, 0, 0, 0], writers % 256)
    np.testing.assert_array_equal(part.images[:, 0, 1, 0], digits)
    np.testing.assert_array_equal(part.labels, digits)


def test_second_start_needs_neither_files_nor_tfds(splits, cache, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  again = data.load("mnist_writers", cache_dir=cache, way=3)
  np.testing.assert_array_equal(again.train.images, splits.train.images)


def test_another_table_than_that_of_the_images_is_refused(
    splits, folder, cache, tmp_path, monkeypatch
):
  fewer = dataclasses.replace(SMALL[0], counts=(1, 0, 3, 1, 2, 0, 0, 0, 0, 2))
  monkeypatch.setattr(source, "writers", lambda: (fewer, *SMALL[1:]))
  with pytest.raises(ValueError, match="not of every writer as many"):
    data.load("mnist_writers", cache_dir=cache, way=3)


def test_damaged_files_are_named(tmp_path):
  path = tmp_path / "x.gz"
  for content in (
      b"no gzip", gzip.compress(b""), gzip.compress(b"\0\0\x08\x03\0\0"),
      gzip.compress(_idx(np.zeros((2, 28, 27), np.uint8))),
      gzip.compress(_idx(np.zeros((2, 28, 28), np.uint8))[:-1]),
  ):  # fmt: skip
    path.write_bytes(content)
    with pytest.raises(ValueError, match="x.gz is no .*fetch it again"):
      builder.read_idx(path, (28, 28))


def test_missing_files_are_named_with_their_addresses(tmp_path):
  with pytest.raises(FileNotFoundError) as e:
    data.load("mnist_writers", data_dir=tmp_path, cache_dir=tmp_path / "cache")
  for archive in source.ORIGINALS.sources["files"].values():
    assert archive.file in str(e.value) and archive.url in str(e.value)


@pytest.mark.parametrize(
    "option, match",
    [
        (dict(way=1), "way=1"),
        (dict(per_digit=1), "per_digit=1"),
        (dict(way=5, per_digit=15), "leave no writer for validation"),
        (dict(way=11), "leave no writer"),
    ],
)
def test_wrong_options_are_named(option, match):
  with pytest.raises(ValueError, match=match):
    data.load("mnist_writers", **option)


def test_checksums_for_downloads_are_the_accepted_ones():
  infos = builder.MnistWriters28.url_infos
  archives = source.ORIGINALS.sources["files"].values()
  assert {a.url for a in archives} == set(infos)
  for archive in archives:
    assert infos[archive.url].checksum == archive.sha256[0]
    assert infos[archive.url].filename == archive.file
  assert builder.MnistWriters28.name == source.FOLDER


def test_writers_are_as_published():
  table = source.writers()
  assert len({w.number for w in table}) == 836
  for file, count, people in (("train", 60_000, 539), ("t10k", 10_000, 297)):
    found = [w for w in table if w.file == file]
    assert len(found) == people
    assert sum(sum(w.counts) for w in found) == count
  for per_digit, expected in ((2, (539, 81, 175)), (6, (539, 16, 30))):
    parts = source.divide(way=5, per_digit=per_digit)
    assert tuple(len(parts[p]) for p in dataset.PARTS) == expected
    numbers = [w.number for who in parts.values() for w in who]
    assert len(numbers) == len(set(numbers))


@pytest.mark.slow  # Prepares 70 000 records.
def test_the_real_files_are_the_official_ones(real_data):
  root = pathlib.Path(real_data) / source.NAME
  if not root.is_dir():
    pytest.skip(f"{root} is not there")
  official = {  # MD5, as torchvision lists them.
      "train_images": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
      "t10k_images": "9fb629c4189551a2d022fa330f9573f3",
      "train_labels": "0058f8dd561b90ffdd0f734c6a30e5e4",
      "t10k_labels": "5b5b05890a5e13444e108efe57b788aa",
  }
  found = source.ORIGINALS.find(real_data)[1]
  for part, path in found.items():
    assert hashlib.md5(path.read_bytes()).hexdigest() == official[part]
  splits = data.load("mnist_writers", data_dir=real_data)
  assert splits.train.hierarchy.num_units(0) == 539
  assert splits.train.hierarchy.num_units(1) == 5390
  assert splits.train.images.shape == (60_000, 28, 28, 1)
  # The digits of MNIST's own label file, which is not read.
  digits = builder.read_idx(root / "train-labels-idx1-ubyte.gz", ())
  np.testing.assert_array_equal(
      np.bincount(digits), np.bincount(splits.train.labels)
  )
