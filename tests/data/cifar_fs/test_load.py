"""CIFAR-FS from small archives made here, and from the real ones."""

import collections
import hashlib
import signal
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import files
from episodic_dp.data.cifar_fs import builder
from episodic_dp.data.cifar_fs import load as cifar_fs
from episodic_dp.data.cifar_fs import source
from tests.data.cifar_fs import copies


@pytest.mark.parametrize("kind", list(copies.WRITERS))
def test_every_kind_of_archive_gives_the_same_array(roots, kind, tmp_path):
  images = cifar_fs.load_arrays(data_dir=roots[kind], cache_dir=tmp_path)
  assert images.dtype == np.uint8
  np.testing.assert_array_equal(images, copies.IMAGES)


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
      splits.train.images, copies.IMAGES[[0, 1, 3, 4, 6]].reshape(-1, 32, 32, 3)
  )
  np.testing.assert_array_equal(splits.validation.images, copies.IMAGES[2])
  np.testing.assert_array_equal(splits.test.images, copies.IMAGES[5])


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
      splits.train.images[tree.leaf_rows[12:18]], copies.IMAGES[1]
  )
  assert splits.test.hierarchy.levels == ("class", "image")
  assert source.superclass_sizes("train") == {"fruit": 2, "insect": 3}


@pytest.mark.slow  # Compiles for what `tests/data/test_pool.py` has in small.
def test_synthetic_participants_share_the_training_images(prepared, cache):
  train = data.load(
      "cifar_fs", cache_dir=cache, participants=100, way=5, per_class=3
  ).train
  assert train.hierarchy.sizes == (100, 5, 3) and train.hierarchy.copies
  rows = np.asarray(jax.jit(train.rows)(np.arange(1500, dtype=np.int32)))
  classes = np.sort(rows.reshape(100, 5, 3)[..., 0] // copies.EXAMPLES, axis=1)
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
  for kind in copies.WRITERS:
    *_, last = source.ORIGINALS.sources[kind].values()
    assert f"{last.file} (sha256 {last.sha256[0]}" in text
  assert "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz" in text


def test_the_folder_of_the_data_set_is_looked_in_first(roots, tmp_path):
  (tmp_path / "test.zip").write_bytes(b"of another data set")
  (tmp_path / "cifar_fs").symlink_to(roots["sheets"])
  images = cifar_fs.load_arrays(data_dir=tmp_path, cache_dir=tmp_path / "new")
  np.testing.assert_array_equal(images, copies.IMAGES)


@pytest.mark.parametrize("kind", list(copies.WRITERS))
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
  np.testing.assert_array_equal(images, copies.IMAGES)


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
      archives.GRID, source.EXAMPLES = {copies.GRID!r}, {copies.EXAMPLES!r}
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
  np.testing.assert_array_equal(images, copies.IMAGES)
  assert not list(root.glob("incomplete.*"))


def test_download_from_a_server(roots, tmp_path, monkeypatch, serve):
  from tensorflow_datasets.core.download import checksums

  path = roots["binary"] / "cifar-100-binary.tar.gz"
  with serve(path.parent) as url:
    archive = files.Archive(path.name, ("",), url + path.name)
    copies.replace_sources(monkeypatch, {"binary": {"archive": archive}})
    info = checksums.UrlInfo(
        size=path.stat().st_size,
        checksum=copies.sha256(path),
        filename=path.name,
    )
    monkeypatch.setattr(
        builder.CifarFs32, "url_infos", {url + path.name: info}
    )
    images = cifar_fs.load_arrays(cache_dir=tmp_path / "good", download=True)
    np.testing.assert_array_equal(images, copies.IMAGES)
    info.checksum = "1" * 64
    with pytest.raises(ValueError, match="not the published one"):
      cifar_fs.load_arrays(cache_dir=tmp_path / "bad", download=True)


def test_records_lie_where_tfds_puts_them(prepared, cache):
  assert builder.CifarFs32.name == source.FOLDER
  assert (cache / source.FOLDER / source.VERSION).is_dir()


def test_wrong_seed_is_named():
  with pytest.raises(ValueError, match="cifar_fs option seed=1.5"):
    cifar_fs.load(seed=1.5)


@pytest.fixture(scope="module")
def real(real_data):
  try:
    return cifar_fs.load_arrays(data_dir=real_data)
  except FileNotFoundError as e:
    pytest.skip(str(e))


@pytest.mark.slow
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
