"""mini-ImageNet from small archives of the published layout."""

import dataclasses
import functools
import hashlib
import io
import signal
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
from PIL import Image
import pytest

from episodic_dp import data
from episodic_dp.data import files
from episodic_dp.data.mini_imagenet import builder
from episodic_dp.data.mini_imagenet import load as mini_imagenet
from episodic_dp.data.mini_imagenet import source

EXAMPLES = 3
# In the order of the lists, which is not that of the names within a part.
TABLE = {
    "n00000007": ("train", (1, 5, 9)),
    "n00000003": ("train", (2, 4, 1300)),
    "n00000004": ("train", (7, 8, 9)),
    "n00000001": ("validation", (1, 2, 3)),
    "n00000006": ("test", (5, 6, 11)),
    "n00000002": ("test", (4, 6, 10)),
}
ZIPS = {
    "train_a": ("n00000007", "n00000003"),
    "train_b": ("n00000004",),
    "val": ("n00000001",),
    "test": ("n00000006", "n00000002"),
}


def _names(wnid):
  return [f"{wnid}{number:08d}" for number in TABLE[wnid][1]]


def _file(name, ending, size=(84, 84)):
  """A smooth picture of its own colour for each name, and its file."""
  colour = np.frombuffer(hashlib.sha256(name.encode()).digest()[:6], np.uint8)
  ramp = np.linspace(0, 1, size[0])[:, None, None]
  ends = colour[:3] * ramp + colour[3:] * (1 - ramp)
  picture = np.broadcast_to(ends, (size[0], size[1], 3)).round().astype("uint8")
  buffer = io.BytesIO()
  kind, quality = ("WEBP", 57) if ending == "webp" else ("JPEG", 95)
  Image.fromarray(picture).save(buffer, kind, quality=quality)
  return picture, buffer.getvalue()


def _sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """The four zips, and a folder `images` with JPEGs."""
  root = tmp_path_factory.mktemp("mini")
  (root / "images").mkdir()
  for part, wnids in ZIPS.items():
    with zipfile.ZipFile(root / f"{part}.zip", "w") as z:
      for name in sum(map(_names, wnids), []):
        z.writestr(f"{name}.webp", _file(name, "webp")[1])
        jpeg = root / "images" / f"{name}.jpg"
        jpeg.write_bytes(_file(name, "jpg")[1])
  return root


@pytest.fixture(scope="module")
def table(tmp_path_factory):
  path = tmp_path_factory.mktemp("table") / "classes.tsv"
  lines = ["# wnid, part, images"]
  for wnid, (part, numbers) in TABLE.items():
    bits = sum(1 << (number - 1) for number in numbers)
    lines.append(f"{wnid}\t{part}\t{bits:0325x}")
  path.write_text("\n".join(lines))
  return path


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
  """The published sizes and checksums give way to those of the small files."""
  if "folder" not in request.fixturenames:
    return
  folder = request.getfixturevalue("folder")
  originals = source.ORIGINALS["webp"]
  archives = {
      part: files.Archive(a.file, (_sha256(folder / a.file),))
      for part, a in originals.sources["zips"].items()
  }
  monkeypatch.setitem(
      source.ORIGINALS,
      "webp",
      dataclasses.replace(originals, sources={"zips": archives}),
  )
  monkeypatch.setattr(source, "EXAMPLES", EXAMPLES)
  monkeypatch.setattr(
      source, "_TABLE", request.getfixturevalue("table")
  )


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  """A cache that the tests of this module share."""
  return tmp_path_factory.mktemp("cache")


@pytest.fixture
def prepared(folder, cache):
  return mini_imagenet.load_arrays(data_dir=folder, cache_dir=cache)


def _same_pictures(images, ending):
  """True; fails at the first picture that is another one."""
  assert images.shape == (6, EXAMPLES, 84, 84, 3) and images.dtype == np.uint8
  for group, wnid in zip(images, TABLE):
    for image, name in zip(group, _names(wnid)):
      picture, content = _file(name, ending)
      # The codec loses a little; another image is far away.
      assert np.abs(image.astype(int) - picture).mean() < 3
      with Image.open(io.BytesIO(content)) as decoded:
        np.testing.assert_array_equal(image, np.asarray(decoded.convert("RGB")))
  return True


def test_images_keep_their_place(prepared):
  assert _same_pictures(prepared, "webp")


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_jpegs_of_any_copy_are_read(folder, form, tmp_path):
  root = tmp_path / "mini_imagenet"
  root.mkdir()
  if form == "folder":
    (root / "images").symlink_to(folder / "images")
  else:
    with zipfile.ZipFile(root / "images.zip", "w") as z:
      z.writestr("images/", b"")
      for path in (folder / "images").iterdir():
        z.write(path, f"images/{path.name}")
        z.writestr(f"__MACOSX/images/._{path.name}", b"no image")
  images = mini_imagenet.load_arrays(
      data_dir=tmp_path, cache_dir=tmp_path / "cache", copy="jpeg"
  )
  assert _same_pictures(images, "jpg")


def test_array_is_mapped_and_read_only(prepared, cache, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  images = mini_imagenet.load_arrays(cache_dir=cache)
  np.testing.assert_array_equal(images, prepared)
  splits = data.load("mini_imagenet", cache_dir=cache)
  for part in (splits.train, splits.validation, splits.test):
    assert isinstance(part.images, np.memmap)
    assert not part.images.flags.writeable
    assert not part.images.flags.owndata  # No copy in memory.


def test_shortened_array_is_made_again_from_the_records(prepared, cache):
  (path,) = cache.rglob("*.npy")
  whole = np.array(prepared)
  content = path.read_bytes()
  for damaged in (content[:-100], content[:10], b""):
    path.unlink()
    path.write_bytes(damaged)
    images = mini_imagenet.load_arrays(cache_dir=cache)
    np.testing.assert_array_equal(images, whole)


def test_records_lie_where_tfds_puts_them(prepared, cache):
  assert builder.MiniImagenet84.name == source.FOLDER
  assert (cache / source.FOLDER / "webp" / source.VERSION).is_dir()


def test_two_stages(prepared, cache):
  splits = data.load("mini_imagenet", cache_dir=cache)
  parts = splits.train, splits.validation, splits.test
  assert [p.hierarchy.sizes for p in parts] == [(3, 3), (1, 3), (2, 3)]
  assert splits.train.hierarchy.levels == ("class", "image")
  together = np.concatenate([p.images for p in parts])
  np.testing.assert_array_equal(together, prepared.reshape(-1, 84, 84, 3))
  assert "with loss" in splits.test.description


def test_missing_files_are_named_at_once(folder, tmp_path, monkeypatch):
  monkeypatch.setattr(builder, "prepare", None)
  load = functools.partial(mini_imagenet.load, cache_dir=tmp_path / "cache")
  with pytest.raises(FileNotFoundError, match="no data_dir was given: put"):
    load()
  half = tmp_path / "half"
  half.mkdir()
  for name in ("train_a.zip", "train_b.zip", "test.zip"):
    (half / name).symlink_to(folder / name)
  with pytest.raises(FileNotFoundError) as e:
    load(data_dir=half)
  text = str(e.value)
  assert f"put val.zip (sha256 {_sha256(folder / 'val.zip')})" in text
  assert "train_a" not in text and "test.zip" not in text
  assert str(half) in text and "\n" not in text
  assert text.endswith(" and give --data_dir=DIR (in Python data_dir=DIR)")
  with pytest.raises(FileNotFoundError, match="^--download cannot.*val.zip"):
    load(data_dir=half, download=True)
  with pytest.raises(FileNotFoundError, match="zip.*no check.*give --"):
    load(data_dir=half, copy="jpeg")
  with pytest.raises(FileNotFoundError, match="is not a folder: put train_a"):
    load(data_dir=tmp_path / "nowhere")
  with pytest.raises(ValueError, match="copy='png'.*'webp', 'jpeg'"):
    load(copy="png")


def test_wrong_zip_is_refused(folder, tmp_path):
  for part in ZIPS:
    (tmp_path / f"{part}.zip").write_bytes(
        (folder / f"{part}.zip").read_bytes()
    )
  (tmp_path / "val.zip").write_bytes(b"not a zip")
  with pytest.raises(ValueError, match="val.zip .9 bytes. has sha256") as e:
    mini_imagenet.load_arrays(data_dir=tmp_path, cache_dir=tmp_path / "cache")
  assert _sha256(folder / "val.zip") in str(e.value)


@pytest.mark.parametrize(
    "content, text",
    [
        (None, r"images lacks 1 of the 18 images.*n0000000400000008"),
        (b"text", "n0000000400000008 is not an image"),
        (_file("x", "jpg", (100, 84))[1], "84 x 100 pixels instead of 84 x 84"),
        (_file("x", "jpg")[1][:-300], "cannot be decoded.*remove"),
    ],
)
def test_bad_copies_are_refused(folder, tmp_path, content, text):
  images = tmp_path / "images"
  images.mkdir()
  for path in (folder / "images").iterdir():
    (images / path.name).symlink_to(path)
  bad = images / "n0000000400000008.jpg"
  bad.unlink()
  if content is not None:
    bad.write_bytes(content)
  with pytest.raises(ValueError, match=text) as e:
    mini_imagenet.load_arrays(
        data_dir=tmp_path, cache_dir=tmp_path / "cache", copy="jpeg"
    )
  assert "\n" not in str(e.value)
  assert not list(tmp_path.rglob("*.npy*"))


def test_records_of_other_images_are_refused(folder, tmp_path, monkeypatch):
  def short(cache_dir, copy, paths):
    yield _names("n00000007")[0], np.zeros((84, 84, 3), np.uint8)

  monkeypatch.setattr(builder, "prepare", short)
  with pytest.raises(ValueError, match="has 1 images instead of 18: remove"):
    mini_imagenet.load_arrays(data_dir=folder, cache_dir=tmp_path)
  assert not list(tmp_path.rglob("*.npy*"))


def test_builder_without_files_says_so(folder, tmp_path):
  unprepared = builder.MiniImagenet84(
      config="webp", data_dir=tmp_path, file_format="array_record"
  )
  with pytest.raises(ValueError, match="no download: load it once"):
    unprepared.download_and_prepare()


def test_killed_preparation_leaves_nothing_that_is_accepted(
    folder, table, tmp_path
):
  archives = {
      p: (a.file, a.sha256)
      for p, a in source.ORIGINALS["webp"].sources["zips"].items()
  }
  script = f"""
      import os, pathlib, signal
      from episodic_dp.data import files
      from episodic_dp.data.mini_imagenet import builder, source
      from episodic_dp.data.mini_imagenet import load as mini_imagenet
      source.EXAMPLES = {EXAMPLES!r}
      source._TABLE = pathlib.Path({str(table)!r})
      archives = {{p: files.Archive(*a) for p, a in {archives!r}.items()}}
      source.ORIGINALS["webp"] = files.Originals(
          name="mini_imagenet", title="", sources={{"zips": archives}}
      )
      prepare = builder.prepare
      def die(*args):
        for number, item in enumerate(prepare(*args)):
          if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
          yield item
      builder.prepare = die
      mini_imagenet.load_arrays(
          data_dir={str(folder)!r}, cache_dir={str(tmp_path)!r}
      )
  """
  run = subprocess.run(
      [sys.executable, "-c", textwrap.dedent(script)], capture_output=True
  )
  assert run.returncode == -signal.SIGKILL, run.stderr
  assert len(list(tmp_path.rglob("*.npy.tmp"))) == 1
  assert not list(tmp_path.rglob("*.npy"))
  # The records were whole: the files are not needed again.
  images = mini_imagenet.load_arrays(cache_dir=tmp_path)
  _same_pictures(images, "webp")
  assert not list(tmp_path.rglob("*.npy.tmp"))


@pytest.mark.slow
def test_real_counts(real_data):
  try:
    splits = data.load("mini_imagenet", data_dir=real_data)
  except FileNotFoundError as e:
    pytest.skip(str(e))
  parts = splits.train, splits.validation, splits.test
  assert [p.hierarchy.sizes for p in parts] == [(64, 600), (16, 600), (20, 600)]
  assert parts[0].images.shape == (38_400, 84, 84, 3)
  for part in parts:
    assert isinstance(part.images, np.memmap)
    assert 0.3 < part.images[::97].mean() / 255 < 0.6
