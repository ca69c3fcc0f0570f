"""Folders of images: what is listed, and what is refused by its name."""

import dataclasses

import numpy as np
from PIL import Image
import pytest

from episodic_dp.data.omniglot import builder
from episodic_dp.export import adaptation
from episodic_dp.export import image_folders
from episodic_dp.export import preprocessing
from episodic_dp.export.description import Preprocessing
from tests.data import own_images

HOW = Preprocessing(
    kind="image", shape=(6, 6, 1), dtype="uint8", divide_by=255.0,
    resample="bilinear", inverted=False, background=None, offset=None,
    scale=None, clip=None,
)  # fmt: skip


def test_support_and_query_are_listed_by_class(tmp_path):
  own_images.tree(tmp_path / "s", {"b": 2, "a": 1})
  found = image_folders.support(tmp_path / "s")
  assert found.labels == ("a", "b", "b") and found.classes == ("a", "b")
  assert found.names == ["a/000.png", "b/000.png", "b/001.png"]
  rows = image_folders.rows(found, HOW)
  wanted = [own_images.pixels(i) for i in (100, 0, 1)]
  np.testing.assert_array_equal(rows[..., 0], wanted)
  asked = image_folders.query(tmp_path / "s" / "b", found.classes)
  assert asked.labels is None and asked.names == ["000.png", "001.png"]
  asked = image_folders.query(tmp_path / "s", ["a", "b", "c"])
  assert asked.labels == found.labels


def test_a_background_is_of_images_that_look_alike():
  def background(values, **changes):
    how = dataclasses.replace(HOW, **changes)
    return preprocessing.background(how, values)

  light = np.full((10, 6, 6, 1), 250, np.uint8)
  light[:, :2] = 0  # What they show.
  assert background(light) == "light" and background(255 - light) == "dark"
  shares = {"dtype": "float32", "divide_by": 1.0}
  assert background(light / np.float32(255), **shares) == "light"
  assert background(light[:3] // 2) is None  # Grey.
  assert background(np.concatenate([light, 255 - light])) is None
  assert background(light, kind="features") is None
  assert background(light, offset=(0.5,), **shares) is None


def test_what_cannot_be_support_is_named(tmp_path):
  def refused(match, path=tmp_path):
    with pytest.raises(ValueError, match=match) as e:
      image_folders.support(path)
    assert "\n" not in str(e.value)

  refused("nowhere is no folder", tmp_path / "nowhere")
  refused("holds no file that is read")
  own_images.write(tmp_path / "x.png")
  refused("x.png is in no class")
  (tmp_path / "x.png").unlink()
  own_images.write(tmp_path / "a" / "x.png")
  refused("the class 'a' alone")
  (tmp_path / "b").mkdir()
  refused("b holds no image")
  own_images.write(tmp_path / "b" / "deep" / "x.png")
  refused("deep is a folder in the folder of a class")
  (tmp_path / "b" / "deep" / "x.png").rename(tmp_path / "b" / "x.png")
  (tmp_path / "b" / "deep").rmdir()
  image_folders.support(tmp_path)
  (tmp_path / "b" / "y.png").symlink_to(tmp_path / "b" / "x.png")
  refused("y.png is a symbolic link")
  (tmp_path / "b" / "y.png").unlink()
  own_images.write(tmp_path / "z.png")
  refused("z.png lies beside folders")


def test_a_query_of_an_unknown_class_is_named(tmp_path):
  own_images.tree(tmp_path, {"a": 1, "z": 1})
  with pytest.raises(ValueError, match=r"z is no class of the support \(a, b"):
    image_folders.query(tmp_path, ["a", "b"])


def test_an_image_that_cannot_be_read_is_named(tmp_path):
  own_images.tree(tmp_path, {"a": 1, "b": 1})
  (tmp_path / "b" / "bad.png").write_bytes(b"no picture")
  with pytest.raises(ValueError, match="bad.png cannot be read as an image"):
    image_folders.rows(image_folders.support(tmp_path), HOW)
  (tmp_path / "b" / "bad.png").unlink()
  np.save(tmp_path / "b" / "x.npy", np.zeros(3, np.float32))
  with pytest.raises(ValueError, match="x.npy holds numbers and what the"):
    image_folders.rows(image_folders.support(tmp_path), HOW)


def test_images_are_turned_round_once_asked(tmp_path):
  own_images.tree(tmp_path, {"a": 1, "b": 1})
  listed = image_folders.support(tmp_path)
  plain = image_folders.rows(listed, HOW)
  turned = image_folders.rows(
      listed, dataclasses.replace(HOW, inverted=True)
  )
  np.testing.assert_array_equal(turned, 255 - plain)


def test_omniglot_keeps_single_pixels_as_its_loader_does(tmp_path):
  how = dataclasses.replace(HOW, shape=(28, 28, 1), resample="nearest")
  bits = np.random.default_rng(0).random((105, 105)) < 0.1
  for name in ("a", "b"):
    (tmp_path / name).mkdir()
    Image.fromarray(~bits).convert("1").save(tmp_path / name / "x.png")
  png = (tmp_path / "a" / "x.png").read_bytes()
  rows = image_folders.rows(image_folders.support(tmp_path), how)
  np.testing.assert_array_equal(rows[0], builder.decode(png))


@pytest.mark.parametrize(
    "right, count, low, high",
    [(0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)],
)
def test_the_interval_is_that_of_wilson(right, count, low, high):
  found = adaptation.wilson(right, count)
  np.testing.assert_allclose(found, (low, high), atol=1e-4)
