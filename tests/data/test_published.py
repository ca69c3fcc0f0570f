"""Published data sets from small files of their layout, and from real ones."""

import collections
import hashlib
import pathlib
import shutil
import signal
import sys
import textwrap

import jax
import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import cifar_fs
from episodic_dp.data import dataset
from episodic_dp.data import mini_imagenet
from episodic_dp.data import mnist_writers
from episodic_dp.data import omniglot
from episodic_dp.data import originals
from episodic_dp.errors import DataError
from tests import processes
from tests.data import small_sets
from tests.refusals import assert_refused


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
  """name -> the folder of its small files, and a cache that is shared."""
  made = {}
  for name, small in small_sets.SETS.items():
    made[name] = tmp_path_factory.mktemp(name)
    small.write(made[name])
  return made | {"cache": tmp_path_factory.mktemp("cache")}


@pytest.fixture(params=small_sets.SETS)
def small(request, roots, monkeypatch):
  """(a small data set, the folder of its files)."""
  chosen = small_sets.SETS[request.param]
  chosen.shrink(monkeypatch, roots[request.param])
  return chosen, roots[request.param]


@pytest.fixture
def where(small, roots):
  """The folder of the files of `small`, and the cache that is shared."""
  return dict(data_dir=small[1], cache_dir=roots["cache"])


one = pytest.mark.parametrize("small", ["omniglot"], indirect=True)


def test_images_keep_their_place_and_later_starts_need_no_files(
    small, tmp_path, monkeypatch
):
  files, root = small
  images = np.array(files.load(data_dir=root, cache_dir=tmp_path))
  np.testing.assert_array_equal(images, files.images())
  (cached,) = tmp_path.rglob("images-*.npy")
  whole = cached.read_bytes()
  damaged = [b"", b"text", whole[:-1000]]
  if hasattr(files.module, "ARRAY_SHA256"):
    damaged.append(whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:])
  for content in damaged:  # Made again from the records.
    cached.write_bytes(content)
    np.testing.assert_array_equal(files.load(cache_dir=tmp_path), images)
  monkeypatch.setitem(sys.modules, "episodic_dp.data.records", None)
  np.testing.assert_array_equal(files.load(cache_dir=tmp_path), images)


def test_missing_and_wrong_files_are_named_at_once(
    small, tmp_path, monkeypatch
):
  monkeypatch.setitem(sys.modules, "episodic_dp.data.records", None)
  files, root = small
  where = dict(cache_dir=tmp_path / "cache", data_dir=tmp_path)
  own = tmp_path / files.name
  shutil.copytree(root, own)
  paths = [p for p in own.iterdir() if p.is_file() and p.suffix != ".tsv"]
  sums = [small_sets.sha256(path) for path in paths]
  for path in paths[:1]:
    path.write_bytes(path.read_bytes()[:-10])
    assert_refused(DataError, "has sha256.*damaged", files.load, **where)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="does not hold all of") as e:
      files.load(**where)
    assert all(digest in str(e.value) for digest in sums)
  with pytest.raises(FileNotFoundError, match="data_dir=None .*put"):
    files.load(cache_dir=tmp_path / "cache")
  assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", "half"])
def test_files_of_another_kind_are_named_and_leave_nothing(
    small, content, tmp_path, monkeypatch
):
  files, root = small
  copy = shutil.copytree(root, tmp_path / "copy")
  spoilt = min(p for p in copy.rglob("*") if p.is_file() and p.suffix != ".tsv")
  whole = spoilt.read_bytes()
  spoilt.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
  files.change_archives(monkeypatch, sha256=())
  with pytest.raises(DataError, match=f"{spoilt.stem}.* use another copy"):
    files.load(data_dir=copy, cache_dir=tmp_path / "cache")
  assert not list(tmp_path.rglob("dataset_info.json"))


@pytest.mark.parametrize(
    "small", sorted(small_sets.SETS.keys() - {"webp", "jpeg"}), indirect=True
)
def test_other_images_are_refused_and_leave_nothing(
    small, tmp_path, monkeypatch
):
  files, root = small
  monkeypatch.setattr(files.module, "ARRAY_SHA256", "0" * 64)
  with pytest.raises(DataError, match="instead of 0000.*another copy"):
    files.load(data_dir=root, cache_dir=tmp_path)
  assert not list(tmp_path.rglob("dataset_info.json"))


def test_killed_preparation_leaves_nothing_that_is_accepted(tmp_path):
  script = f"""
      import os, pathlib, signal
      from episodic_dp.data import cache, originals
      found = originals.Originals(
          name="x", sources={{"a": (originals.Archive("images"),)}}
      )
      def read_files(paths):
        for number in range(99):
          if number > 70:
            os.kill(os.getpid(), signal.SIGKILL)
          yield bytes(5)
      where = originals.Where(
          data_dir={str(tmp_path)!r}, cache_dir={str(tmp_path / "c")!r}
      )
      cache.published_images(found, where, read_files, (99, 5, 1, 1))
  """
  (tmp_path / "images").mkdir()
  run = processes.python("-c", textwrap.dedent(script))
  assert run.returncode == -signal.SIGKILL, run.stderr
  assert list((tmp_path / "c" / "x" / "images").glob("incomplete.*"))
  found = originals.Originals(
      name="x", sources={"a": (originals.Archive("images"),)}
  )
  where = originals.Where(data_dir=tmp_path, cache_dir=tmp_path / "c")
  images = cache.published_images(
      found, where, lambda *unused: [b"one", b"two"], (2, 3, 1, 1)
  )
  assert bytes(images) == b"onetwo"
  assert not list((tmp_path / "c" / "x" / "images").glob("incomplete.*"))


@one
def test_downloads_are_checked(small, tmp_path, monkeypatch):
  files, root = small
  where = dict(cache_dir=tmp_path, download=True)
  here = f"{root.as_uri()}/"
  for changes, error, match in (
      ({"url": "http://127.0.0.1:9/"}, ConnectionError, "cannot be fetched"),
      ({"url": here, "sha256": ("1",)}, ValueError, "has sha256.*instead of 1"),
  ):
    files.change_archives(monkeypatch, **changes)
    assert_refused(error, match, files.load, **where)
  files.shrink(monkeypatch, root)
  files.change_archives(monkeypatch, url=here)
  np.testing.assert_array_equal(files.load(**where), files.images())


@one
def test_splits_of_omniglot(where):
  splits = data.load("omniglot", **where, seed=3)
  parts = splits.train, splits.validation, splits.test
  assert [(p.hierarchy.sizes, p.rotate) for p in parts] == [
      ((2, 20), True), ((1, 20), False), ((2, 20), False)
  ]
  seen = {i.tobytes() for p in parts for i in p.images}
  assert len(seen) == 100
  other = data.load("omniglot", **where, seed=4, rotate=False)
  assert not np.array_equal(other.test.images, splits.test.images)
  assert not other.train.rotate
  train = data.load("omniglot", **where, split="alphabets").train
  tree = train.hierarchy
  assert tree.levels == ("alphabet", "character", "drawing")
  assert [tree.child_counts(k).tolist() for k in range(3)] == [
      [2], [1, 2], [20] * 3
  ]
  background = [
      name in small_sets.CHARACTERS["background"]
      for name in sorted(sum(small_sets.CHARACTERS.values(), ()))
  ]
  expected = small_sets.omniglot_images()[background]
  np.testing.assert_array_equal(train.images, expected.reshape(-1, 28, 28, 1))
  shared = data.load(
      "omniglot", **where, participants=1000, way=2, per_class=3
  ).train
  assert shared.hierarchy.sizes == (1000, 2, 3) and shared.hierarchy.copies
  rows = np.asarray(jax.jit(shared.rows)(np.arange(60, dtype=np.int32)))
  classes = rows.reshape(10, 2, 3) // 20
  assert (np.sort(classes[..., 0], axis=1) == [0, 1]).all()
  np.testing.assert_array_equal(shared.labels, np.arange(40) // 20)


@pytest.mark.parametrize("small", ["sheets"], indirect=True)
def test_superclasses_of_cifar_fs(where):
  splits = data.load("cifar_fs", **where)
  assert splits.train.hierarchy.sizes == (5, 6)
  assert splits.test.hierarchy.sizes == (1, 6)
  train = data.load("cifar_fs", **where, superclasses=True).train
  tree = train.hierarchy
  assert [tree.child_counts(k).tolist() for k in range(3)] == [
      [2], [2, 3], [6] * 5
  ]
  assert tree.describe(1, 2) == "class 2 ('bee') of superclass 1 ('insect')"
  bees = train.images[tree.leaf_rows[12:18]]
  np.testing.assert_array_equal(bees, small_sets.cifar_images()[1])


@pytest.mark.parametrize("small", ["mnist"], indirect=True)
def test_writers_of_mnist(where):
  splits = data.load("mnist_writers", **where, way=3)
  for part, expected in (
      (splits.train, {
          (writer, digit): count
          for writer, file, counts in small_sets.WRITERS if file == "train"
          for digit, count in enumerate(counts)
      }),
      # Digits of fewer than two images are left out, and writer 331 with them.
      (splits.validation, {
          (327, 0): 3, (327, 1): 2, (327, 2): 2,
          (330, 7): 2, (330, 8): 2, (330, 9): 2,
      }),
      (splits.test, {(326, 0): 2, (326, 1): 3, (326, 2): 2}),
  ):
    tree = part.hierarchy
    owners, digits = tree.names[0][tree.parents(1)], tree.names[1]
    counts = tree.child_counts(2)
    found = zip(owners.astype(int), digits.astype(int), counts.tolist())
    assert {(w, d): count for w, d, count in found} == expected
    marks = part.images[:, 0, :2, 0]
    held = np.stack([owners.astype(int) % 256, digits.astype(int)], 1)
    np.testing.assert_array_equal(marks, np.repeat(held, counts, axis=0))
    np.testing.assert_array_equal(part.labels, marks[:, 1])


@pytest.mark.parametrize("small", ["webp"], indirect=True)
def test_images_of_mini_imagenet_are_mapped_averaged_and_checked(where):
  whole = data.load("mini_imagenet", **where).train
  assert isinstance(whole.images, np.memmap)
  half = data.load("mini_imagenet", **where, size=42).train
  squares = whole.images.reshape(-1, 42, 2, 42, 2, 3).mean((2, 4))
  np.testing.assert_allclose(half.images, squares, atol=0.51)
  with pytest.raises(DataError, match=r"x is not 84 x 84: \(80, 80, 3\)"):
    mini_imagenet.decode(small_sets.picture("x", "WEBP", 80), "x")
  with pytest.raises(DataError, match="36 of the 36 images .* are absent"):
    list(mini_imagenet._read_files([]))


@pytest.mark.parametrize(
    "name, options, match",
    [
        ("imagenet", {}, "'imagenet': .*'glyphs'.*'omniglot'"),
        ("omniglot", {"size": 28}, "size=28: .*participants"),
        ("omniglot", {"seed": 1.5}, "seed=1.5"),
        ("omniglot", {"seed": -1}, "seed=-1"),
        ("omniglot", {"split": "official"}, "split='official'.*'vinyals'"),
        ("cifar_fs", {"superclasses": True, "participants": 9}, "choose one"),
        ("mini_imagenet", {"size": 50}, "size=50.*42"),
        ("mini_imagenet", {"copy": "png"}, "copy='png'.*'webp'"),
        ("mnist_writers", {"way": 0}, "way=0"),
        ("mnist_writers", {"per_digit": 15}, "leave no writer for validation"),
        ("glyphs", {"size": 4}, "size=4: .*at least 12"),
        ("glyphs", {"participants": 0}, "participants=0"),
        ("glyphs", {"drawings": "5"}, "drawings='5'"),
        ("sinusoid", {"points": True}, "points=True"),
        ("sinusoid", {"seed": 2**32}, "seed=4294967296"),
        ("sinusoid", {"data_dir": "here"}, "data_dir='here' is not read"),
    ],
)
def test_wrong_options_are_named(name, options, match):
  assert_refused(plan.PlanError, match, data.load, name, **options)


def test_published_tables_are_whole():
  parts = [c.part for c in mini_imagenet.classes()]  # Slices of one array.
  assert parts == ["train"] * 64 + ["validation"] * 16 + ["test"] * 20
  assert sorted(c.part for c in cifar_fs.classes()) == sorted(parts)
  names = [n for c in mini_imagenet.classes() for n in c.images]
  assert len(set(names)) == 60_000
  sizes = list(cifar_fs.superclass_sizes().values())
  assert (len(sizes), min(sizes), max(sizes)) == (20, 2, 5)
  parts = [c.part for c in omniglot.characters()]
  assert [parts.count(p) for p in dataset.PARTS] == [1028, 172, 423]
  official = [c.official for c in omniglot.characters()]
  assert (official.count("background"), len(official)) == (964, 1623)
  people = mnist_writers.writers()
  counts = collections.Counter(w.file for w in people)
  assert counts == {"train": 539, "t10k": 297}
  assert sum(sum(w.counts) for w in people) == 70_000
  chosen = mnist_writers.divide(way=5, per_digit=6)
  assert [len(chosen[p]) for p in dataset.PARTS] == [539, 16, 30]


# Real data --------------------------------------------------------------------


def test_real_lists_are_those_of_the_package(real_data):
  root = pathlib.Path(real_data)
  short = {"train": "train", "validation": "val", "test": "test"}
  lines = (root / "cifar_fs" / "classes.csv").read_text().splitlines()[1:]
  assert lines == [
      f"{i},{c.name},{c.superclass},{short[c.part]}"
      for i, c in enumerate(cifar_fs.classes())
  ]
  for part, name in short.items():
    file = root / "mini_imagenet" / "splits" / f"{name}.csv"
    assert file.read_text().split()[1:] == [
        f"{image}.jpg,{c.wnid}"
        for c in mini_imagenet.classes() if c.part == part for image in c.images
    ]
    file = root / "omniglot" / "splits" / f"vinyals_{name}.txt"
    listed = {n.rsplit("/", 1)[0] for n in file.read_text().split()}
    assert listed == {c.name for c in omniglot.characters() if c.part == part}


@pytest.mark.slow
def test_real_arrays_are_those_published(real_data):
  where = originals.Where(data_dir=real_data)
  for source in (cifar_fs, mnist_writers, omniglot):  # Checked by digest.
    assert source.load_images(where).dtype == np.uint8
  drawings = omniglot.load_images(where).reshape(-1, 784)
  assert np.unique(drawings).tolist() == [0, 255]
  assert len({d.tobytes() for d in drawings}) == 32_454
  digits = mnist_writers.read_idx(  # MNIST's own file, which is not read.
      pathlib.Path(real_data) / "mnist_writers" / "train-labels-idx1-ubyte.gz"
  )
  train = data.load("mnist_writers", data_dir=real_data).train
  assert train.hierarchy.num_units(1) == 5390
  np.testing.assert_array_equal(np.bincount(digits), np.bincount(train.labels))
  mini = mini_imagenet.load_images("webp", where)
  digest = hashlib.sha256(mini[80:].reshape(-1)[: 1000 * 84 * 84 * 3])
  assert digest.hexdigest().startswith("91e0401afb53f50f")
