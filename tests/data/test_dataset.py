"""ArrayDataset and Splits refuse parts that do not fit together."""

import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.errors import DataError
from tests import plans
from tests.refusals import assert_refused

LEVELS = ("class", "drawing")
PEOPLE = ("participant", "class", "image")
POINTS = np.zeros((6, 1, 1, 2), np.float32)


def _images(rows, size=4):
  return np.zeros((rows, size, size, 1), np.uint8)


def _dataset(**changes):
  fields = {
      "name": "tiny",
      "images": _images(6),
      "hierarchy": plans.tree(LEVELS, 3, 2),
  }
  return data.ArrayDataset(**(fields | changes))


def test_accepts_matching_parts_and_shows_no_value():
  dataset = _dataset(rotate=True)
  assert dataset.image_shape == (4, 4, 1)
  np.testing.assert_array_equal(dataset.rows(np.arange(6)), np.arange(6))
  assert repr(dataset) == (
      "ArrayDataset('tiny', uint8[6, 4, 4, 1], class (3) > drawing (6))"
  )
  for shape in ((5,), (7, 2), (4, 4, 1)):
    features = _dataset(images=np.zeros((6, *shape), np.float32))
    assert features.image_shape == shape
  assert _dataset(images=POINTS, targets=1).image_shape == (1, 1, 1)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"images": _images(6).astype(np.float64)}, "float64"),
        ({"images": [[0]]}, "list"),
        ({"images": _images(6)[..., 0]}, r"\(6, 4, 4\)"),
        ({"images": _images(0)}, r"\(0, 4, 4, 1\)"),
        ({"images": _images(7)}, "7 images and its hierarchy 6 leaves"),
        ({"images": np.zeros((6, 4, 5, 1), np.uint8), "rotate": True}, "4, 5"),
        ({"images": np.zeros((6, 7), np.float32), "rotate": True}, "rotated"),
        ({"images": POINTS, "targets": 1, "rotate": True}, "cannot be rotated"),
        ({"images": POINTS.astype(np.uint8), "targets": 1}, r"uint8\[6, 1, 1"),
        ({"images": _images(6, 2), "targets": 1}, r"\[6, 2, 2, 1\]"),
        ({"images": POINTS, "targets": 2}, "targets=2: give"),
        ({"images": POINTS, "targets": -1}, "targets=-1"),
        ({"labels": np.zeros(5, int)}, "one whole number for each of the 6"),
        ({"labels": np.zeros(6)}, r"are float64\[6\]"),
        ({"rows": lambda leaf: leaf / 1000}, "float32"),
        ({"rows": lambda leaf: leaf[:1]}, "keep the shape"),
        (
            {"rows": lambda leaf: jnp.where(leaf == 5, 6, leaf)},
            "leaf 5 to row 6 of 6 images",
        ),
    ],
)
def test_refuses_what_does_not_fit(changes, text):
  assert_refused(DataError, text, _dataset, **changes)


def test_many_leaves_may_share_a_row():
  hierarchy = plans.tree(PEOPLE, 1000, 3, 2, copies=True)
  shared = _dataset(hierarchy=hierarchy, rows=lambda leaf: leaf % 6)
  assert int(shared.rows(jnp.int32(11))) == 5


def test_splits_have_one_shape_and_rotate_only_training():
  good, points = _dataset(), _dataset(images=POINTS, targets=1)
  data.Splits(train=_dataset(rotate=True), validation=good, test=good)
  with pytest.raises(DataError, match="split has rotate=True"):
    data.Splits(train=good, validation=_dataset(rotate=True), test=good)
  for other in (_dataset(images=_images(6, 5)), points):
    with pytest.raises(DataError, match="different shapes and targets"):
      data.Splits(train=good, validation=good, test=other)


def test_examples_are_their_own_units_and_keep_their_classes():
  labels = {"class": np.array(["b", "a", "b", "a", "c", "b"])}
  hierarchy = plan.Hierarchy.from_labels(labels, leaf="drawing")
  images = np.arange(6, dtype=np.uint8).repeat(16).reshape(6, 4, 4, 1)
  found = data.as_examples(_dataset(images=images, hierarchy=hierarchy))
  assert found.hierarchy.levels == ("drawing",)
  assert found.hierarchy.sizes == (6,)
  assert found.labels.tolist() == [1, 0, 1, 0, 2, 1]  # By row, not by leaf.
  assert (found.images == images).all()
  assert data.as_examples(found).labels is found.labels
  # Classes are the units above the images, in a deeper tree too.
  deeper = plans.nested(("writer", *LEVELS), [[1, 2], [3]])
  found = data.as_examples(_dataset(hierarchy=deeper))
  assert found.labels.tolist() == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("units", [None, ["a", "b", "c"]])
def test_a_list_of_classes_from_the_records_is_an_assumption(units):
  """The labels of all are places in it: without the first image they move."""

  def examples(first):
    hierarchy = plan.Hierarchy.from_labels(
        {"class": np.array(["a", "b", "b", "b", "c", "c", "c"])[first:]},
        leaf="drawing", units=units,
    )
    images = _images(7 - first)
    return data.as_examples(_dataset(images=images, hierarchy=hierarchy))

  moved = not np.array_equal(examples(0).labels[1:], examples(1).labels)
  found = accounting.guarantee(
      plans.release(
          examples(0).hierarchy, plans.sampling(0.5), "drawing", 4.0
      ),
      steps=1, delta=1e-3, level="drawing",
  )
  said = report.CLASSES_STAY in found.assumptions
  assert moved == said == (units is None)


@pytest.mark.parametrize(
    "changes, text",
    [
        (dict(images=POINTS, targets=1), "whose targets are numbers"),
        (dict(rows=lambda leaf: leaf // 2), "share images"),
        (
            dict(hierarchy=plans.tree(LEVELS, 3, 2, copies=True)),
            "share images",
        ),
        (
            dict(hierarchy=plans.tree("drawing", 6)),
            "neither classes nor labels",
        ),
    ],
)
def test_other_data_have_no_single_examples(changes, text):
  assert_refused(DataError, text, data.as_examples, _dataset(**changes))
