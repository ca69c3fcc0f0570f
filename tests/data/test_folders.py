"""A data set as a folder of pictures: the same units and images again."""

import numpy as np
from PIL import Image
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp.data import folders
from episodic_dp.data.own_data import load as own_data
from episodic_dp.data.own_data import rows
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from tests import plans
from tests.data import own_images


def people(channels=1):
  """Three people with two classes, one of them without an image."""
  hierarchy = plan.Hierarchy.from_labels(  # In no order.
      {"person": [9, 7, 7, 7, 11, 9], "class": ["c", "c", "a/b", "a/b", *"dd"]},
      leaf="image",
      units=[(7, "a/b"), (7, "c"), (9, "c"), (9, "d"), (11, "d"), (11, "e")],
  )
  images = np.stack([own_images.pixels(k) for k in range(6)])[..., None]
  return data.ArrayDataset(
      name="people", images=np.repeat(images, channels, -1), hierarchy=hierarchy
  )


@pytest.fixture
def out(tmp_path):
  """A folder that is not there yet."""
  return tmp_path / "out"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_holds_every_unit_and_image(channels, out):
  held = people(channels)
  assert folders.write({"": held}, out) == 6
  places = [str(p.relative_to(out)) for p in sorted(out.glob("*/*"))]
  assert places == ["11/d", "11/e", "7/a_b", "7/c", "9/c", "9/d"]
  for place, row in (("7/a_b/image1", 3), ("9/d/image0", 5)):
    found = np.asarray(Image.open(out / f"{place}.png"))
    np.testing.assert_array_equal(
        found.reshape(held.image_shape), held.images[row]
    )
  levels = ("person", "class", "image")
  found = own_data.survey(out, rows.OwnData(levels=levels))
  assert len(found.listing.classes) == 6
  with pytest.raises(RunError, match="exists already"):
    folders.write({"": held}, out)


def test_what_is_no_folder_of_pictures_is_refused(tmp_path, out):
  numbers = data.load("sinusoid", participants=3).train
  shared = data.ArrayDataset(
      name="shared", images=people().images,
      hierarchy=plans.tree("person image", 2, 3, copies=True),
  )
  for held, words in ((numbers, "numbers"), (shared, "share images")):
    with pytest.raises(DataError, match=words):
      folders.write({"": held}, out)
  assert not any(tmp_path.iterdir())


def test_the_command_writes_parts_that_own_data_keep(call, out):
  options = (
      "--options=participants=3,glyphs=2,drawings=2,size=12,"
      "validation_participants=2,test_participants=2"
  )
  command = ("data", "--name=glyphs", options, f"--out={out}")
  done = call(*command, "--part=all")
  assert done.returncode == 0, done.stderr
  assert "out: 28\n" in done.stdout
  found = own_data.survey(out, rows.OwnData())
  assert [tree.num_units(0) for tree in found.hierarchies.values()] == [3, 2, 2]
  assert (out / "train/participant2/glyph0/drawing1.png").exists()
  done = call(*command)
  assert done.returncode == 1 and "exists already" in done.stderr
