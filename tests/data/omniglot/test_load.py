"""Omniglot from zips: made here for most tests, real ones where present."""

import dataclasses
import functools
import hashlib
import io
import subprocess
import sys
import textwrap
import zipfile

import jax
import numpy as np
from PIL import Image
import pytest

from episodic_dp import data
from episodic_dp.data import files
from episodic_dp.data.omniglot import builder
from episodic_dp.data.omniglot import load as omniglot
from episodic_dp.data.omniglot import source
from episodic_dp.data.omniglot import splits as omniglot_splits

NAMES = {
    "background": [
        "Latin/character02",
        "Latin/character01",
        "Futurama/character01",
    ],
    "evaluation": ["Aurek/character01", "Tengwar/character10"],
}
SORTED = sorted(sum(NAMES.values(), []))


def _png(name, drawer):
  """A 105 x 105 one-bit drawing that depends on its name and drawer."""
  digest = hashlib.sha256(f"{name} {drawer}".encode()).digest()
  random = np.random.RandomState(digest[0] + 256 * digest[1])
  paper = random.rand(105, 105) > 0.2
  buffer = io.BytesIO()
  Image.fromarray((255 * paper).astype(np.uint8)).convert(
      "1", dither=Image.Dither.NONE
  ).save(buffer, "PNG")
  return buffer.getvalue(), paper


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder with two small zips of the published layout."""
  root = tmp_path_factory.mktemp("zips")
  for part, names in NAMES.items():
    with zipfile.ZipFile(root / f"images_{part}.zip", "w") as z:
      z.writestr(f"images_{part}/", b"")
      z.writestr("__MACOSX/._images", b"no drawing")
      for number, name in enumerate(names):
        for drawer in range(20, 0, -1):
          z.writestr(
              f"images_{part}/{name}/{number + 1:04d}_{drawer:02d}.png",
              _png(name, drawer)[0],
          )
  return root


def _sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


def _replace_archives(monkeypatch, archives):
  originals = dataclasses.replace(source.ORIGINALS, sources={"zips": archives})
  monkeypatch.setattr(source, "ORIGINALS", originals)


def _archives():
  return source.ORIGINALS.sources["zips"]


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
  """The published sizes and checksums give way to those of the small zips."""
  if "folder" not in request.fixturenames:
    return
  folder = request.getfixturevalue("folder")
  _replace_archives(monkeypatch, {
      part: files.Archive(
          f"images_{part}.zip",
          ("0" * 64, _sha256(folder / f"images_{part}.zip")),
          f"https://example.invalid/images_{part}.zip",
      )
      for part in NAMES
  })
  monkeypatch.setattr(source, "CHARACTERS", 5)
  monkeypatch.setattr(omniglot_splits, "_TRAIN_CHARACTERS", 2)
  monkeypatch.setattr(omniglot_splits, "_VALIDATION_CHARACTERS", 1)
  monkeypatch.setattr(omniglot_splits, "_VALIDATION_ALPHABETS", 1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  """A cache that the tests of this module share."""
  return tmp_path_factory.mktemp("cache")


@pytest.fixture
def prepared(folder, cache):
  return omniglot.load_arrays(data_dir=folder, cache_dir=cache)


def test_drawings_keep_their_place(prepared):
  images, characters, background = prepared
  assert images.shape == (5, 20, 28, 28, 1) and images.dtype == np.uint8
  assert characters.tolist() == SORTED
  assert background.tolist() == [n in NAMES["background"] for n in SORTED]
  # Nearest neighbour: pixel i of 28 shows pixel int((i + 0.5) * 3.75) of 105.
  at = ((np.arange(28) + 0.5) * 105 / 28).astype(int)
  for c, d in ((0, 0), (2, 7), (4, 19)):
    paper = _png(SORTED[c], d + 1)[1]
    np.testing.assert_array_equal(
        images[c, d, ..., 0], 255 * paper[np.ix_(at, at)]
    )


def test_values_are_black_and_white(prepared):
  assert np.unique(prepared[0]).tolist() == [0, 255]


def test_second_start_needs_neither_zips_nor_tfds(prepared, cache, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  for array, first in zip(omniglot.load_arrays(cache_dir=cache), prepared):
    np.testing.assert_array_equal(array, first)


def test_damaged_array_is_read_again_from_the_records(prepared, cache):
  (path,) = (cache / "omniglot28").glob("*.npz")
  whole = path.read_bytes()
  middle = len(whole) // 2
  flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
  for damaged in (whole[:middle], flipped, b""):
    path.write_bytes(damaged)
    images, *_ = omniglot.load_arrays(cache_dir=cache)
    np.testing.assert_array_equal(images, prepared[0])
    assert path.read_bytes() != damaged


def test_splits_are_disjoint_and_complete(prepared, folder, cache):
  splits = data.load("omniglot", data_dir=folder, cache_dir=cache, seed=3)
  parts = splits.train, splits.validation, splits.test
  assert [p.hierarchy.sizes for p in parts] == [(2, 20), (1, 20), (2, 20)]
  assert [p.rotate for p in parts] == [True, False, False]
  assert splits.train.hierarchy.levels == ("class", "drawing")
  seen = {i.tobytes() for p in parts for i in p.images}
  assert seen == {i.tobytes() for i in prepared[0].reshape(100, -1)}
  other = data.load("omniglot", cache_dir=cache, seed=4)
  assert not np.array_equal(other.test.images, splits.test.images)
  again = data.load("omniglot", cache_dir=cache, seed=3, rotate=False)
  np.testing.assert_array_equal(again.test.images, splits.test.images)
  assert not again.train.rotate


def test_synthetic_participants_share_the_training_images(prepared, cache):
  splits = data.load(
      "omniglot", cache_dir=cache, participants=1000, way=2, per_class=3
  )
  train = splits.train
  assert train.hierarchy.sizes == (1000, 2, 3) and train.hierarchy.copies
  assert train.images.shape[0] == 2 * 20 and train.rotate
  leaves = np.arange(64, dtype=np.int32)
  rows = np.asarray(jax.jit(train.rows)(leaves))[:60].reshape(10, 2, 3)
  classes = rows // 20
  assert (classes == classes[..., :1]).all()
  assert (np.sort(classes[..., 0], axis=1) == [0, 1]).all()
  assert splits.test.hierarchy.sizes == (2, 20)


def test_alphabets_stay_whole(prepared, cache):
  splits = data.load("omniglot", cache_dir=cache, split="alphabets")
  tree = splits.train.hierarchy
  assert tree.levels == ("alphabet", "character", "drawing")
  assert [tree.child_counts(k).tolist() for k in range(3)] == [
      [2],
      [1, 2],
      [20, 20, 20],
  ]
  assert tree.describe(0, 0) == "alphabet 0 ('Futurama')"
  images, _, background = prepared
  np.testing.assert_array_equal(
      splits.train.images, images[background].reshape(-1, 28, 28, 1)
  )
  for part in (splits.validation, splits.test):
    assert part.hierarchy.num_units(0) == 1 and len(part.images) == 20
  assert not np.array_equal(splits.validation.images, splits.test.images)


def test_wrong_split_is_named():
  with pytest.raises(ValueError, match="'official'.*'vinyals'"):
    data.load("omniglot", split="official")


def test_zips_may_lie_in_a_folder_of_their_own(folder, tmp_path):
  (tmp_path / "omniglot").symlink_to(folder)
  kind, found = source.ORIGINALS.find(tmp_path)
  assert kind == "zips" and sorted(found) == ["background", "evaluation"]


def test_missing_zips_are_named_at_once(folder, tmp_path, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  load = functools.partial(omniglot.load_arrays, cache_dir=tmp_path / "cache")
  with pytest.raises(FileNotFoundError, match="no data_dir was.*put") as e:
    load()
  assert "give --data_dir=DIR, or give --download alone" in str(e.value)
  with pytest.raises(FileNotFoundError, match="is not a folder"):
    load(data_dir=tmp_path / "nowhere")
  assert not (tmp_path / "cache").exists()
  half = tmp_path / "half"
  half.mkdir()
  (half / "images_background.zip").write_bytes(b"")
  with pytest.raises(FileNotFoundError) as e:
    load(data_dir=half)
  text = str(e.value)
  assert "images_evaluation.zip" in text and "images_background" not in text
  assert _sha256(folder / "images_evaluation.zip") in text
  assert str(half) in text and "\n" not in text


def test_download_that_cannot_be_reached_fails_fast(folder, tmp_path):
  with pytest.raises(ConnectionError, match="example.invalid.*--data_dir=DIR"):
    omniglot.load_arrays(cache_dir=tmp_path, download=True)


def test_wrong_and_truncated_zips_are_refused(folder, tmp_path):
  for part in NAMES:
    whole = (folder / f"images_{part}.zip").read_bytes()
    (tmp_path / f"images_{part}.zip").write_bytes(whole)
  for wrong in (whole[:-100], b"not a zip"):
    (tmp_path / "images_evaluation.zip").write_bytes(wrong)
    with pytest.raises(ValueError) as e:
      omniglot.load_arrays(data_dir=tmp_path, cache_dir=tmp_path / "cache")
    text = str(e.value)
    assert f"{len(wrong)} bytes" in text and "\n" not in text
    assert _sha256(folder / "images_evaluation.zip") in text


def test_failed_preparation_leaves_nothing_that_is_accepted(
    folder, prepared, tmp_path, monkeypatch
):
  decode, calls = builder.decode, []

  def fail(png, name):
    calls.append(name)
    if len(calls) > 70:  # In the second zip: the first one is written.
      raise RuntimeError("power cut")
    return decode(png, name)

  monkeypatch.setattr(builder, "decode", fail)
  with pytest.raises(RuntimeError, match="power cut"):
    omniglot.load_arrays(data_dir=folder, cache_dir=tmp_path)
  monkeypatch.setattr(builder, "decode", decode)
  with pytest.raises(FileNotFoundError, match="not prepared"):
    omniglot.load_arrays(cache_dir=tmp_path)
  images, *_ = omniglot.load_arrays(data_dir=folder, cache_dir=tmp_path)
  np.testing.assert_array_equal(images, prepared[0])


def test_prepared_folder_with_too_few_drawings_is_named(
    folder, tmp_path, monkeypatch
):
  def short(cache_dir, archives):
    images = np.zeros((3, 28, 28, 1), np.uint8)
    return images, np.full(3, "A"), np.arange(3), np.ones(3, bool)

  monkeypatch.setattr(builder, "prepare", short)
  with pytest.raises(ValueError, match="3 drawings of 1 characters.*remove"):
    omniglot.load_arrays(data_dir=folder, cache_dir=tmp_path)
  assert not list(tmp_path.rglob("*.npz"))


def test_killed_preparation_leaves_nothing_that_is_accepted(
    folder, prepared, tmp_path
):
  script = f"""
      import os, signal
      from episodic_dp.data import files
      from episodic_dp.data.omniglot import builder, source
      from episodic_dp.data.omniglot import load as omniglot
      archives = {{
          part: files.Archive(a, (b,), "")
          for part, a, b in {[
              (p, a.file, a.sha256[1]) for p, a in _archives().items()
          ]!r}
      }}
      source.ORIGINALS = files.Originals(
          name="omniglot", title="", sources={{"zips": archives}}
      )
      decode, calls = builder.decode, []
      def die(png, name):
        calls.append(name)
        if len(calls) > 70:
          os.kill(os.getpid(), signal.SIGKILL)
        return decode(png, name)
      builder.decode = die
      omniglot.load_arrays(
          data_dir={str(folder)!r}, cache_dir={str(tmp_path)!r}
      )
  """
  run = subprocess.run(
      [sys.executable, "-c", textwrap.dedent(script)], capture_output=True
  )
  assert run.returncode == -9, run.stderr
  left = list((tmp_path / "omniglot28").glob("incomplete.*"))
  assert left  # It was killed in the middle.
  with pytest.raises(FileNotFoundError, match="not prepared"):
    omniglot.load_arrays(cache_dir=tmp_path)
  images, *_ = omniglot.load_arrays(data_dir=folder, cache_dir=tmp_path)
  np.testing.assert_array_equal(images, prepared[0])
  assert not list((tmp_path / "omniglot28").glob("incomplete.*"))


def test_download_from_a_server(folder, prepared, tmp_path, monkeypatch, serve):
  from tensorflow_datasets.core.download import checksums

  with serve(folder) as url:
    archives, infos = {}, {}
    for part, archive in _archives().items():
      path = folder / archive.file
      archives[part] = files.Archive(
          archive.file, archive.sha256, url + archive.file
      )
      infos[url + archive.file] = checksums.UrlInfo(
          size=path.stat().st_size,
          checksum=_sha256(path),
          filename=archive.file,
      )
    _replace_archives(monkeypatch, archives)
    monkeypatch.setattr(builder.Omniglot28, "url_infos", infos)
    load = functools.partial(omniglot.load_arrays, download=True)
    images, *_ = load(cache_dir=tmp_path / "good")
    np.testing.assert_array_equal(images, prepared[0])
    for info in infos.values():
      info.checksum = "1" * 64
    with pytest.raises(ValueError, match="not the published one"):
      load(cache_dir=tmp_path / "bad")


def test_records_lie_where_tfds_puts_them(prepared, cache):
  assert builder.Omniglot28.name == source.FOLDER
  assert (cache / source.FOLDER / source.VERSION).is_dir()


def test_wrong_seed_is_named():
  with pytest.raises(ValueError, match="seed=-1"):
    omniglot.load(seed=-1)


@pytest.fixture(scope="module")
def real(real_data):
  """The drawings, the names of the characters, and which are background."""
  try:
    return omniglot.load_arrays(data_dir=real_data)
  except FileNotFoundError as e:
    pytest.skip(str(e))


def _parts(splits):
  return splits.train, splits.validation, splits.test


def test_real_drawings(real):
  images, characters, background = real
  assert images.shape == (1623, 20, 28, 28, 1)
  assert np.unique(images).tolist() == [0, 255]
  assert 0.88 < images.mean() / 255 < 0.95  # Paper is 255.
  # At 105 x 105 pixels two drawings are the same; a few more are after
  # shrinking, and always of one character.
  flat = images.reshape(1623, 20, -1)
  assert len({i.tobytes() for i in flat.reshape(-1, 784)}) == 32_454
  assert sum(len({i.tobytes() for i in c}) for c in flat) == 32_454
  assert len(set(characters)) == 1623
  alphabets = omniglot_splits.alphabet_of(characters)
  assert (background.sum(), (~background).sum()) == (964, 659)
  own, sizes = np.unique(alphabets[background], return_counts=True)
  assert (len(own), sizes.min(), sizes.max()) == (30, 14, 55)
  other = set(alphabets[~background])
  assert len(other) == 20 and not other & set(own)


@pytest.mark.parametrize(
    "split, counts",
    [("random", (1150, 50, 423)), ("vinyals", (1028, 172, 423))],
)
def test_real_two_stages(real, real_data, split, counts):
  splits = data.load("omniglot", data_dir=real_data, split=split)
  parts = _parts(splits)
  assert [p.hierarchy.sizes for p in parts] == [(c, 20) for c in counts]
  assert all(p.hierarchy.levels == ("class", "drawing") for p in parts)
  # Every drawing once, and none in two parts.
  seen = [{i.tobytes() for i in p.images} for p in parts]
  assert sum(len(s) for s in seen) == len(set.union(*seen)) == 32_454
  assert [p.rotate for p in parts] == [True, False, False]


def test_real_three_stages(real, real_data):
  images, characters, background = real
  splits = data.load("omniglot", data_dir=real_data, split="alphabets")
  parts = _parts(splits)
  assert [p.hierarchy.num_units(0) for p in parts] == [30, 5, 15]
  assert sum(p.hierarchy.num_units(1) for p in parts) == 1623
  for part in parts:
    assert part.hierarchy.levels == ("alphabet", "character", "drawing")
    assert set(part.hierarchy.child_counts(2)) == {20}
  tree = splits.train.hierarchy
  assert tree.num_units(1) == 964 and tree.child_counts(1).min() == 14
  np.testing.assert_array_equal(
      splits.train.images, images[background].reshape(-1, 28, 28, 1)
  )
