"""CIFAR-FS from small archives made here, and from the real ones."""

import collections
import dataclasses
import hashlib
import io
import os
import pathlib
import pickle
import signal
import struct
import subprocess
import sys
import tarfile
import textwrap
import zipfile

import jax
import numpy as np
from PIL import Image
import pytest

from episodic_dp import data
from episodic_dp.data import files
from episodic_dp.data.cifar_fs import archives
from episodic_dp.data.cifar_fs import builder
from episodic_dp.data.cifar_fs import load as cifar_fs
from episodic_dp.data.cifar_fs import source

GRID = (2, 3)
EXAMPLES = 6
# In the order of the labels, as in the real table.
TABLE = {
    "apple": ("fruit", "train"),
    "bee": ("insect", "train"),
    "cockroach": ("insect", "validation"),
    "fig": ("fruit", "train"),
    "gnat": ("insect", "train"),
    "melon": ("fruit", "test"),
    "moth": ("insect", "train"),
}
ZIPS = {"train": "train.zip", "validation": "val.zip", "test": "test.zip"}


def _made_up():
  """uint8[7, 6, 32, 32, 3] in the order that loading must give."""
  images = np.random.RandomState(0).randint(
      0, 256, (len(TABLE), EXAMPLES, 32, 32, 3), np.uint8
  )
  images[1, 0] = images[1, 1]  # An image that occurs twice.
  for group in images:
    group[:] = group[
        np.argsort([hashlib.sha256(image).hexdigest() for image in group])
    ]
  return images


IMAGES = _made_up()


def _sheets(root):
  for part, name in ZIPS.items():
    with zipfile.ZipFile(root / name, "w") as z:
      for label, (member, (_, own)) in enumerate(TABLE.items()):
        if own == part:
          buffer = io.BytesIO()
          sheet = IMAGES[label].reshape(*GRID, 32, 32, 3)
          sheet = sheet.transpose(0, 2, 1, 3, 4).reshape(64, 96, 3)
          Image.fromarray(sheet).save(buffer, "WEBP", lossless=True)
          z.writestr(f"{member}.webp", buffer.getvalue())


def _shuffled():
  """Two batches (images [n, 3072] in planes, labels [n]) in no order."""
  planes = IMAGES.transpose(0, 1, 4, 2, 3).reshape(-1, 3072)
  labels = np.repeat(np.arange(len(TABLE)), EXAMPLES)
  order = np.random.RandomState(1).permutation(len(labels))
  return [(planes[o], labels[o]) for o in (order[:30], order[30:])]


def _tar(path, folder, members):
  with tarfile.open(path, "w:gz") as tar:
    for name, content in members.items():
      info = tarfile.TarInfo(f"{folder}/{name}")
      info.size = len(content)
      tar.addfile(info, io.BytesIO(content))


def _binary(root):
  def batch(planes, labels):
    coarse = np.full_like(labels, 9)
    return np.concatenate(
        [coarse[:, None], labels[:, None], planes], axis=1
    ).astype(np.uint8)

  train, test = (batch(*b).tobytes() for b in _shuffled())
  _tar(
      root / "cifar-100-binary.tar.gz",
      "cifar-100-binary",
      {
          "coarse_label_names.txt": b"",
          "train.bin": train,
          "test.bin": test,
      },
  )


def _old_pickle(planes, labels):
  """A batch as Python 2 and the NumPy of its time wrote it."""

  def text(value):
    return b"T" + struct.pack("<i", len(value)) + value  # A byte string.

  def number(value):
    return b"J" + struct.pack("<i", value)

  dtype = (
      b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR("
      + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0)
      + b"tb"
  )
  array = (
      b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n("
      + number(0) + b"t" + text(b"b") + b"tR("
      + number(1) + b"(" + number(planes.shape[0]) + number(3072) + b"t"
      + dtype + b"\x89" + text(planes.tobytes()) + b"tb"
  )
  numbers = b"](" + b"".join(number(n) for n in labels) + b"e"
  return (
      b"\x80\x02}(" + text(b"data") + array + text(b"fine_labels") + numbers
      + b"u."
  )


def _python(root):
  train, test = (_old_pickle(*b) for b in _shuffled())
  _tar(
      root / "cifar-100-python.tar.gz",
      "cifar-100-python",
      {"meta": b"not read", "test": test, "train": train},
  )


WRITERS = {"sheets": _sheets, "binary": _binary, "python": _python}


def _sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
  """One folder per kind of archive."""
  made = {}
  for kind, write in WRITERS.items():
    made[kind] = tmp_path_factory.mktemp(kind)
    write(made[kind])
  return made


@pytest.fixture(scope="module")
def table(tmp_path_factory):
  path = tmp_path_factory.mktemp("table") / "classes.tsv"
  path.write_text(
      "# class, superclass, part\n"
      + "".join(f"{k}\t{s}\t{p}\n" for k, (s, p) in TABLE.items())
  )
  return path


def _replace_sources(monkeypatch, sources):
  originals = dataclasses.replace(source.ORIGINALS, sources=sources)
  monkeypatch.setattr(source, "ORIGINALS", originals)


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
  """The published sizes and checksums give way to those of the small files."""
  if "roots" not in request.fixturenames:
    return
  roots = request.getfixturevalue("roots")
  sources = {
      kind: {
          part: files.Archive(
              archive.file, (_sha256(roots[kind] / archive.file),), archive.url
          )
          for part, archive in archives_of.items()
      }
      for kind, archives_of in source.ORIGINALS.sources.items()
  }
  _replace_sources(monkeypatch, sources)
  monkeypatch.setattr(source, "_TABLE", request.getfixturevalue("table"))
  monkeypatch.setattr(source, "EXAMPLES", EXAMPLES)
  monkeypatch.setattr(
      source, "ARRAY_SHA256", hashlib.sha256(IMAGES).hexdigest()
  )
  monkeypatch.setattr(archives, "GRID", GRID)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  """A cache that the tests of this module share."""
  return tmp_path_factory.mktemp("cache")


@pytest.fixture
def prepared(roots, cache):
  return cifar_fs.load_arrays(data_dir=roots["sheets"], cache_dir=cache)


@pytest.mark.parametrize("kind", list(WRITERS))
def test_every_kind_of_archive_gives_the_same_array(roots, kind, tmp_path):
  images = cifar_fs.load_arrays(data_dir=roots[kind], cache_dir=tmp_path)
  assert images.dtype == np.uint8
  np.testing.assert_array_equal(images, IMAGES)


def test_second_start_needs_neither_files_nor_tfds(
    prepared, cache, monkeypatch
):
  monkeypatch.setattr(builder, "prepare", None)
  images = cifar_fs.load_arrays(cache_dir=cache)
  np.testing.assert_array_equal(images, prepared)


def test_damaged_array_is_read_again_from_the_records(prepared, cache):
  (path,) = (cache / "cifar_fs32").glob("*.npz")
  path.write_bytes(path.read_bytes()[:-1000])
  np.testing.assert_array_equal(
      cifar_fs.load_arrays(cache_dir=cache), prepared
  )


def test_two_stages(prepared, cache):
  splits = data.load("cifar_fs", cache_dir=cache)
  parts = splits.train, splits.validation, splits.test
  assert [p.hierarchy.sizes for p in parts] == [(5, 6), (1, 6), (1, 6)]
  assert splits.train.hierarchy.levels == ("class", "image")
  np.testing.assert_array_equal(
      splits.train.images, IMAGES[[0, 1, 3, 4, 6]].reshape(-1, 32, 32, 3)
  )
  np.testing.assert_array_equal(splits.validation.images, IMAGES[2])
  np.testing.assert_array_equal(splits.test.images, IMAGES[5])


def test_three_stages(prepared, cache):
  splits = data.load("cifar_fs", cache_dir=cache, superclasses=True)
  tree = splits.train.hierarchy
  assert tree.levels == ("superclass", "class", "image")
  assert [tree.child_counts(k).tolist() for k in range(3)] == [
      [2],
      [2, 3],
      [6] * 5,
  ]
  assert tree.describe(0, 1) == "superclass 1 ('insect')"
  # Leaves 12 to 17 are the first insect: bees.
  assert tree.describe(1, 2) == "class 2 ('bee')"
  np.testing.assert_array_equal(
      splits.train.images[tree.leaf_rows[12:18]], IMAGES[1]
  )
  assert splits.test.hierarchy.levels == ("class", "image")
  assert source.superclass_sizes("train") == {"fruit": 2, "insect": 3}


def test_synthetic_participants_share_the_training_images(prepared, cache):
  train = data.load(
      "cifar_fs", cache_dir=cache, participants=100, way=5, per_class=3
  ).train
  assert train.hierarchy.sizes == (100, 5, 3) and train.hierarchy.copies
  rows = np.asarray(jax.jit(train.rows)(np.arange(1500, dtype=np.int32)))
  classes = np.sort(rows.reshape(100, 5, 3)[..., 0] // EXAMPLES, axis=1)
  assert (classes == np.arange(5)).all()
  with pytest.raises(ValueError, match="superclasses=True.*choose one"):
    data.load("cifar_fs", participants=100, superclasses=True)


def test_missing_files_are_named_at_once(roots, tmp_path, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  with pytest.raises(FileNotFoundError, match="no data_dir was given.*put"):
    cifar_fs.load_arrays(cache_dir=tmp_path)
  with pytest.raises(FileNotFoundError, match="is not a folder.*python.tar.gz"):
    cifar_fs.load_arrays(data_dir=tmp_path / "none", cache_dir=tmp_path)
  half = tmp_path / "half"
  (half / "cifar_fs").mkdir(parents=True)
  for name in ("train.zip", "val.zip"):
    whole = (roots["sheets"] / name).read_bytes()
    (half / "cifar_fs" / name).write_bytes(whole)
  with pytest.raises(FileNotFoundError) as e:
    cifar_fs.load_arrays(data_dir=half, cache_dir=tmp_path)
  text = str(e.value)
  assert "put test.zip" in text and "val.zip" not in text and "\n" not in text
  assert "or cifar-100-binary.tar.gz" in text and str(half) in text
  for kind in WRITERS:
    *_, last = source.ORIGINALS.sources[kind].values()
    assert f"{last.file} (sha256 {last.sha256[0]}" in text
  assert "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz" in text


def test_the_folder_of_the_data_set_is_looked_in_first(roots, tmp_path):
  (tmp_path / "test.zip").write_bytes(b"of another data set")
  (tmp_path / "cifar_fs").symlink_to(roots["sheets"])
  images = cifar_fs.load_arrays(data_dir=tmp_path, cache_dir=tmp_path / "new")
  np.testing.assert_array_equal(images, IMAGES)


@pytest.mark.parametrize("kind", list(WRITERS))
def test_wrong_files_are_refused(roots, kind, tmp_path):
  for archive in source.ORIGINALS.sources[kind].values():
    whole = (roots[kind] / archive.file).read_bytes()
    (tmp_path / archive.file).write_bytes(whole[:-10])
  with pytest.raises(ValueError, match="has sha256.*damaged") as e:
    cifar_fs.load_arrays(data_dir=tmp_path, cache_dir=tmp_path / "cache")
  assert str(tmp_path) in str(e.value) and "\n" not in str(e.value)


def test_another_array_is_refused(roots, tmp_path, monkeypatch):
  monkeypatch.setattr(source, "ARRAY_SHA256", "0" * 64)
  with pytest.raises(ValueError, match="instead of 0000.*another copy"):
    cifar_fs.load_arrays(data_dir=roots["binary"], cache_dir=tmp_path)
  monkeypatch.setattr(source, "EXAMPLES", 5)
  with pytest.raises(ValueError, match="6 images of label 0 instead of 5"):
    cifar_fs.load_arrays(cache_dir=tmp_path)
  assert not list(tmp_path.rglob("*.npz"))


def test_failed_preparation_leaves_nothing_that_is_accepted(
    roots, tmp_path, monkeypatch
):
  generate = builder.CifarFs32._generate_examples

  def fail(self, images, labels, part):
    if part == "test":  # The two others are written.
      raise RuntimeError("power cut")
    yield from generate(self, images, labels, part)

  monkeypatch.setattr(builder.CifarFs32, "_generate_examples", fail)
  with pytest.raises(RuntimeError, match="power cut"):
    cifar_fs.load_arrays(data_dir=roots["binary"], cache_dir=tmp_path)
  monkeypatch.setattr(builder.CifarFs32, "_generate_examples", generate)
  with pytest.raises(FileNotFoundError, match="not prepared"):
    cifar_fs.load_arrays(cache_dir=tmp_path)
  images = cifar_fs.load_arrays(data_dir=roots["binary"], cache_dir=tmp_path)
  np.testing.assert_array_equal(images, IMAGES)


def test_killed_preparation_leaves_nothing_that_is_accepted(
    roots, table, tmp_path
):
  sources = {
      kind: {p: (a.file, a.sha256) for p, a in archives_of.items()}
      for kind, archives_of in source.ORIGINALS.sources.items()
  }
  script = f"""
      import os, pathlib, signal
      from episodic_dp.data import files
      from episodic_dp.data.cifar_fs import archives, builder, source
      from episodic_dp.data.cifar_fs import load as cifar_fs
      archives.GRID, source.EXAMPLES = {GRID!r}, {EXAMPLES!r}
      source._TABLE = pathlib.Path({str(table)!r})
      sources = {{
          kind: {{p: files.Archive(*a) for p, a in found.items()}}
          for kind, found in {sources!r}.items()
      }}
      source.ORIGINALS = files.Originals(
          name="cifar_fs", title="", sources=sources
      )
      generate = builder.CifarFs32._generate_examples
      def die(self, images, labels, part):
        yield from generate(self, images, labels, part)
        if part == "validation":
          os.kill(os.getpid(), signal.SIGKILL)
      builder.CifarFs32._generate_examples = die
      cifar_fs.load_arrays(
          data_dir={str(roots["sheets"])!r}, cache_dir={str(tmp_path)!r}
      )
  """
  run = subprocess.run(
      [sys.executable, "-c", textwrap.dedent(script)], capture_output=True
  )
  assert run.returncode == -signal.SIGKILL, run.stderr
  root = tmp_path / "cifar_fs32"
  assert list(root.glob("incomplete.*"))  # It was killed in the middle.
  with pytest.raises(FileNotFoundError, match="not prepared"):
    cifar_fs.load_arrays(cache_dir=tmp_path)
  images = cifar_fs.load_arrays(data_dir=roots["sheets"], cache_dir=tmp_path)
  np.testing.assert_array_equal(images, IMAGES)
  assert not list(root.glob("incomplete.*"))


def test_download_from_a_server(roots, tmp_path, monkeypatch, serve):
  from tensorflow_datasets.core.download import checksums

  path = roots["binary"] / "cifar-100-binary.tar.gz"
  with serve(path.parent) as url:
    archive = files.Archive(path.name, ("",), url + path.name)
    _replace_sources(monkeypatch, {"binary": {"archive": archive}})
    info = checksums.UrlInfo(
        size=path.stat().st_size, checksum=_sha256(path), filename=path.name
    )
    monkeypatch.setattr(
        builder.CifarFs32, "url_infos", {url + path.name: info}
    )
    images = cifar_fs.load_arrays(cache_dir=tmp_path / "good", download=True)
    np.testing.assert_array_equal(images, IMAGES)
    info.checksum = "1" * 64
    with pytest.raises(ValueError, match="not the published one"):
      cifar_fs.load_arrays(cache_dir=tmp_path / "bad", download=True)


class _Harm:

  def __reduce__(self):
    return os.system, ("echo harm",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_that_ask_for_code_are_refused_unrun(protocol, monkeypatch):
  ran = []
  monkeypatch.setattr(os, "system", ran.append)
  text = pickle.dumps({"data": _Harm()}, protocol)
  with pytest.raises(pickle.UnpicklingError, match="asks for .*only arrays"):
    archives.plain_pickle(text)
  assert not ran


@pytest.mark.parametrize(
    "name",
    ["numpy\nload", "builtins\neval", "numpy.core.multiarray\nfrombuffer"],
)
def test_no_other_name_is_looked_up(name):
  with pytest.raises(pickle.UnpicklingError, match="only arrays"):
    archives.plain_pickle(b"c" + name.encode() + b"\n.")


def test_archives_of_another_kind_are_refused(roots, tmp_path, monkeypatch):
  path = tmp_path / "some.tar.gz"
  _tar(path, "folder", {"train.bin": b""})
  with pytest.raises(ValueError, match="holds no file 'test.bin'"):
    archives.read("binary", {"archive": path}, list(TABLE))
  with pytest.raises(ValueError, match="label 6, and there are 3 classes"):
    archive = roots["binary"] / "cifar-100-binary.tar.gz"
    archives.read("binary", {"archive": archive}, ["a", "b", "c"])
  monkeypatch.setattr(archives, "GRID", (3, 2))
  with pytest.raises(ValueError, match="64 x 96 pixels instead of 96 x 64"):
    archives.read(
        "sheets", {"test": roots["sheets"] / "test.zip"}, list(TABLE)
    )


def test_checksum_for_the_download_is_the_accepted_one():
  (archive,) = source.ORIGINALS.sources["binary"].values()
  assert archive.url == (
      "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
  )
  info = builder.CifarFs32.url_infos[archive.url]
  assert (info.checksum,) == archive.sha256
  assert info.filename == archive.file
  # The registry of TFDS itself names the same file.
  import tensorflow_datasets as tfds

  text = pathlib.Path(tfds.__file__).parent / "url_checksums" / "cifar100.txt"
  assert text.read_text().split() == [
      archive.url, str(int(info.size)), info.checksum, info.filename
  ]


def test_records_lie_where_tfds_puts_them(prepared, cache):
  assert builder.CifarFs32.name == source.FOLDER
  assert (cache / source.FOLDER / source.VERSION).is_dir()


def test_wrong_seed_is_named():
  with pytest.raises(ValueError, match="cifar_fs option seed=1.5"):
    cifar_fs.load(seed=1.5)


# The lists that are part of the package, and real data -----------------------


def test_classes_are_divided_as_published():
  table = source.classes()
  names = [c.name for c in table]
  assert len(set(names)) == 100 and names == sorted(names)
  counts = collections.Counter(c.part for c in table)
  assert counts == {"train": 64, "validation": 16, "test": 20}
  sizes = collections.Counter(c.superclass for c in table)
  assert len(sizes) == 20 and set(sizes.values()) == {5}


def test_training_superclasses_hold_two_to_five_classes():
  sizes = list(source.superclass_sizes("train").values())
  assert len(sizes) == 20 and sum(sizes) == 64
  assert min(sizes) == 2 and sizes.count(5) == 3 and max(sizes) == 5
  for part in ("validation", "test"):
    assert max(source.superclass_sizes(part).values()) <= 3


def test_real_lists_are_those_of_the_package(real_data):
  root = pathlib.Path(real_data) / "cifar_fs"
  if not root.is_dir():
    pytest.skip(f"{root} is not there")
  lines = (root / "classes.csv").read_text().splitlines()[1:]
  short = {"train": "train", "validation": "val", "test": "test"}
  assert lines == [
      f"{i},{c.name},{c.superclass},{short[c.part]}"
      for i, c in enumerate(source.classes())
  ]
  for part, name in short.items():
    listed = (root / "splits" / f"{name}.txt").read_text().split()
    assert sorted(listed) == sorted(
        c.name for c in source.classes() if c.part == part
    )


@pytest.fixture(scope="module")
def real(real_data):
  try:
    return cifar_fs.load_arrays(data_dir=real_data)
  except FileNotFoundError as e:
    pytest.skip(str(e))


def test_real_array_is_the_published_one(real):
  assert real.shape == (100, 600, 32, 32, 3)
  assert hashlib.sha256(real).hexdigest() == source.ARRAY_SHA256
  means = real.reshape(-1, 3).mean(0) / 255
  np.testing.assert_allclose(means, [0.5074, 0.4867, 0.4411], atol=5e-5)


def test_real_order_can_be_rebuilt_from_any_copy(real):
  for images in real:
    digests = [hashlib.sha256(image).digest() for image in images]
    assert digests == sorted(digests)


def test_real_duplicates(real):
  table = source.classes()
  owners = collections.defaultdict(list)
  for label, images in enumerate(real):
    for image in images:
      owners[image.tobytes()].append(label)
  twice = [labels for labels in owners.values() if len(labels) > 1]
  assert len(owners) == 59_974 and len(twice) == 26
  assert sum(a != b for a, b in twice) == 17
  assert sum(table[a].part != table[b].part for a, b in twice) == 15


@pytest.mark.parametrize("superclasses", [False, True])
def test_real_counts(real, real_data, superclasses):
  splits = data.load(
      "cifar_fs", data_dir=real_data, superclasses=superclasses
  )
  assert splits.validation.hierarchy.sizes == (16, 600)
  assert splits.test.hierarchy.sizes == (20, 600)
  tree = splits.train.hierarchy
  assert tree.num_leaves == 38_400
  if superclasses:
    assert [tree.num_units(k) for k in range(2)] == [20, 64]
    assert tree.child_counts(1).tolist() == list(
        source.superclass_sizes("train").values()
    )
    assert set(tree.child_counts(2)) == {600}
  else:
    assert tree.sizes == (64, 600)
