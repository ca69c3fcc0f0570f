"""ArrayDataset and Splits refuse parts that do not fit together."""

import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import plan

LEVELS = ("class", "drawing")


def _images(rows, size=4):
  return np.zeros((rows, size, size, 1), np.uint8)


def _dataset(**changes):
  fields = {
      "name": "tiny",
      "images": _images(6),
      "hierarchy": plan.Hierarchy.regular((3, 2), levels=LEVELS),
  }
  return data.ArrayDataset(**(fields | changes))


def test_accepts_matching_parts():
  dataset = _dataset(rotate=True)
  assert dataset.image_shape == (4, 4, 1)
  np.testing.assert_array_equal(dataset.rows(np.arange(6)), np.arange(6))
  shown = repr(dataset)  # No value of an image.
  assert shown == "ArrayDataset('tiny', uint8[6, 4, 4, 1], 3 class > 6 drawing)"


@pytest.mark.parametrize(
    "images, text",
    [
        (_images(6).astype(np.float64), "float64"),
        ([[0]], "list"),
        (_images(6)[..., 0], r"\(6, 4, 4\)"),
        (_images(0), r"\(0, 4, 4, 1\)"),
        (_images(7), "7 images and its hierarchy 6 leaves"),
    ],
)
def test_refuses_wrong_images(images, text):
  with pytest.raises(ValueError, match=text):
    _dataset(images=images)


@pytest.mark.parametrize("shape", [(5,), (7, 2), (4, 4, 1)])
def test_accepts_features_of_one_to_three_axes(shape):
  dataset = _dataset(images=np.zeros((6, *shape), np.float32))
  assert dataset.image_shape == shape
  if len(shape) < 3:
    with pytest.raises(ValueError, match="cannot be rotated"):
      _dataset(images=dataset.images, rotate=True)


def test_refuses_rotating_oblong_images():
  images = np.zeros((6, 4, 5, 1), np.uint8)
  assert _dataset(images=images).image_shape == (4, 5, 1)
  with pytest.raises(ValueError, match=r"\(6, 4, 5, 1\)"):
    _dataset(images=images, rotate=True)


POINTS = np.zeros((6, 1, 1, 2), np.float32)


def test_points_bring_their_targets():
  dataset = _dataset(images=POINTS, targets=1)
  assert dataset.image_shape == (1, 1, 1)
  with pytest.raises(ValueError, match="different shapes and targets"):
    plain = _dataset(images=np.zeros((6, 1, 1, 1), np.uint8))
    data.Splits(train=dataset, validation=dataset, test=plain)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"images": POINTS.astype(np.uint8)}, r"uint8\[6, 1, 1, 2\]"),
        ({"images": np.zeros((6, 2, 2, 2), np.float32)}, r"\[6, 2, 2, 2\]"),
        ({"targets": 2}, "targets=2: give"),
        ({"targets": -1}, "targets=-1"),
        ({"rotate": True}, "cannot be rotated"),
        ({"images": POINTS[:5]}, "5 images and its hierarchy 6 leaves"),
    ],
)
def test_refuses_wrong_points(changes, text):
  with pytest.raises(ValueError, match=text):
    _dataset(**({"images": POINTS, "targets": 1} | changes))


def test_refuses_leaf_rows_outside_the_array():
  hierarchy = plan.Hierarchy.from_labels({"class": [1, 0, 1, 0]})
  object.__setattr__(hierarchy, "leaf_rows", np.asarray([1, 3, 0, 4], np.int32))
  with pytest.raises(ValueError, match="row 4 of 4 images"):
    _dataset(images=_images(4), hierarchy=hierarchy)


def test_rows_may_share_images_but_not_leave_the_array():
  hierarchy = plan.Hierarchy.regular(
      (1000, 3, 2), levels=("participant", "class", "image"), copies=True
  )
  shared = _dataset(hierarchy=hierarchy, rows=lambda leaf: leaf % 6)
  assert int(shared.rows(jnp.int32(11))) == 5
  with pytest.raises(ValueError, match="leaf 5999 to row 6"):
    _dataset(
        hierarchy=hierarchy,
        rows=lambda leaf: jnp.where(leaf == 5999, 6, leaf % 6),
    )
  with pytest.raises(ValueError, match="float32"):
    _dataset(hierarchy=hierarchy, rows=lambda leaf: leaf / 1000)
  with pytest.raises(ValueError, match="keep the shape"):
    _dataset(hierarchy=hierarchy, rows=lambda leaf: leaf[:1])


def test_splits_have_one_shape_and_rotate_only_training():
  good = _dataset()
  data.Splits(train=_dataset(rotate=True), validation=good, test=good)
  with pytest.raises(ValueError, match="split has rotate=True"):
    data.Splits(train=good, validation=_dataset(rotate=True), test=good)
  with pytest.raises(ValueError, match="different shapes"):
    larger = _dataset(images=_images(6, 5))
    data.Splits(train=good, validation=good, test=larger)


def test_examples_are_their_own_units_and_keep_their_classes():
  labels = {"class": np.array(["b", "a", "b", "a", "c", "b"])}
  hierarchy = plan.Hierarchy.from_labels(labels, leaf="drawing")
  images = np.arange(6, dtype=np.uint8).repeat(16).reshape(6, 4, 4, 1)
  found = data.as_examples(_dataset(images=images, hierarchy=hierarchy))
  assert found.hierarchy.levels == ("drawing",)
  assert found.hierarchy.sizes == (6,)
  assert found.labels.tolist() == [1, 0, 1, 0, 2, 1]  # By row, not by leaf.
  assert (found.images == images).all()
  again = data.as_examples(found)
  assert again.labels is found.labels and again.hierarchy.sizes == (6,)


def test_classes_are_the_units_above_the_images_in_a_deeper_tree():
  hierarchy = plan.Hierarchy.from_sizes(
      [[1, 2], [3]], levels=("writer", *LEVELS)
  )
  found = data.as_examples(_dataset(hierarchy=hierarchy))
  assert found.labels.tolist() == [0, 1, 1, 2, 2, 2]
  given = np.array([5, 4, 3, 2, 1, 0])
  kept = data.as_examples(_dataset(hierarchy=hierarchy, labels=given))
  assert kept.labels is given


@pytest.mark.parametrize(
    "changes, text",
    [
        (dict(images=POINTS, targets=1), "whose targets are numbers"),
        (dict(rows=lambda leaf: leaf // 2), "share images"),
        (
            dict(
                hierarchy=plan.Hierarchy.regular(
                    (3, 2), levels=LEVELS, copies=True
                )
            ),
            "share images",
        ),
        (
            dict(hierarchy=plan.Hierarchy.regular((6,), levels=("drawing",))),
            "neither classes nor labels",
        ),
    ],
)
def test_what_are_no_single_examples_is_refused(changes, text):
  with pytest.raises(ValueError) as e:
    data.as_examples(_dataset(**changes))
  assert text in str(e.value)
