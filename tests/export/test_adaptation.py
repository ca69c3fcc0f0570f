"""Folders of images: what is listed, and what is refused by its name."""

import dataclasses

import numpy as np
import pytest

from episodic_dp.data import omniglot
from episodic_dp.data.own_data import readers
from episodic_dp.errors import DataError
from episodic_dp.export import adaptation
from episodic_dp.export import preprocessing
from episodic_dp.export.folder import Preprocessing
from tests.data import own_images
from tests.refusals import assert_refused

HOW = Preprocessing(
    kind="image", shape=(6, 6, 1), dtype="uint8", resample="bilinear",
)


def test_examples_are_listed_by_class(tmp_path):
  own_images.tree(tmp_path / "s", {"b": 2, "a": 1})
  found = adaptation.listed(tmp_path / "s")
  assert found.labels == ["a", "b", "b"] and found.classes == ["a", "b"]
  assert found.names == ["a/000.png", "b/000.png", "b/001.png"]
  wanted = [own_images.pixels(i) for i in (100, 0, 1)]
  rows = np.stack([one.values for one in adaptation.read(found)])[..., 0]
  np.testing.assert_array_equal(rows, wanted)
  for light, dark in zip(rows, adaptation.read(found, invert=True)):
    np.testing.assert_array_equal(dark.values[..., 0], 255 - light)
    assert readers.brightest(dark) == light.max() / 255
  flat = adaptation.listed(tmp_path / "s" / "b")
  assert not flat.classes and flat.names == ["000.png", "001.png"]


def test_folders_that_are_no_examples_are_named(tmp_path):
  def refused(match, place=tmp_path):
    assert_refused(DataError, match, adaptation.listed, place)

  refused("nowhere does not exist: give a folder", tmp_path / "nowhere")
  refused("test_adaptation.py is no folder: give a folder", __file__)
  refused("holds no file")
  own_images.write(tmp_path / "b" / "deep" / "x.png")
  refused("deep/x.png is at folder depth 2: give a folder of images")
  (tmp_path / "b" / "deep" / "x.png").rename(tmp_path / "b" / "x.png")
  (tmp_path / "b" / "deep").rmdir()
  (tmp_path / "b" / "y.png").symlink_to(tmp_path / "b" / "x.png")
  refused("y.png is a symbolic link")
  (tmp_path / "b" / "y.png").unlink()
  own_images.write(tmp_path / "z.png")
  refused("z.png is at folder depth 0: give a folder of images")
  (tmp_path / "z.png").unlink()
  own_images.write(tmp_path / "b " / "x.png")
  refused("a folder in .* is 'b' and a folder in .* is 'b ', which differ only")


def test_an_example_of_another_kind_is_named(tmp_path):
  own_images.tree(tmp_path, {"a": 1, "b": 1})
  np.save(tmp_path / "b" / "x.npy", np.zeros(3, np.float32))
  with pytest.raises(DataError, match="x.npy holds numbers of shape"):
    preprocessing.of_arrays(
        HOW, adaptation.read(adaptation.listed(tmp_path)), "they"
    )


def test_omniglot_keeps_single_pixels_as_its_loader_does(tmp_path):
  how = dataclasses.replace(HOW, shape=(28, 28, 1), resample="nearest")
  bits = np.random.default_rng(0).random((105, 105)) < 0.1
  for name in ("a", "b"):
    own_images.save(tmp_path / name / "x.png", ~bits)
  png = (tmp_path / "a" / "x.png").read_bytes()
  row, _ = preprocessing.of_arrays(
      how, adaptation.read(adaptation.listed(tmp_path)), "they"
  )
  np.testing.assert_array_equal(row, omniglot.decode(png))
