"""Sinusoids: points of the curves that are announced, the same every time."""

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import sinusoid

OPTIONS = {
    "participants": 300,
    "validation_participants": 20,
    "test_participants": 50,
    "points": 12,
}


@pytest.fixture(scope="module")
def splits():
  return data.load("sinusoid", **OPTIONS)


def _points(dataset):
  """x and y, [participants, points] each."""
  flat = dataset.images.reshape(-1, 12, 2)
  return flat[..., 0], flat[..., 1]


@pytest.mark.parametrize(
    "split,count", [("train", 300), ("validation", 20), ("test", 50)]
)
def test_points_lie_on_the_participants_curves(splits, split, count):
  dataset = getattr(splits, split)
  assert dataset.hierarchy.sizes == (count, 12)
  assert dataset.hierarchy.levels == ("participant", "point")
  assert dataset.images.dtype == np.float32 and dataset.targets == 1
  assert dataset.image_shape == (1, 1, 1)
  amplitude, phase = sinusoid.curves(count, split=split)
  x, y = _points(dataset)
  np.testing.assert_allclose(
      y, amplitude[:, None] * np.sin(x - phase[:, None]), atol=1e-5
  )


def test_amplitudes_phases_and_places_fill_their_ranges(splits):
  amplitude, phase = sinusoid.curves(300)
  x, _ = _points(splits.train)
  for values, low, high in (
      (amplitude, 0.1, 5), (phase, 0, np.pi), (x.ravel(), -5, 5)
  ):
    assert low <= values.min() < low + 0.05 * (high - low)
    assert high - 0.05 * (high - low) < values.max() <= high
    assert abs(values.mean() - (low + high) / 2) < 0.1 * (high - low)


def test_more_participants_hold_the_fewer(splits):
  fewer = data.load("sinusoid", **(OPTIONS | {"participants": 17}))
  np.testing.assert_array_equal(
      fewer.train.images, splits.train.images[: 17 * 12]
  )
  np.testing.assert_array_equal(fewer.test.images, splits.test.images)
  other = data.load("sinusoid", **(OPTIONS | {"seed": 1}))
  assert (other.test.images != splits.test.images).all()


def test_splits_and_participants_share_no_point(splits):
  x = np.concatenate(
      [_points(p)[0].ravel() for p in (splits.train, splits.test)]
  )
  assert len(np.unique(x)) > 0.99 * x.size  # float32 repeats a few by chance.


@pytest.mark.parametrize("option", ["points", "participants"])
@pytest.mark.parametrize("value", [0, 1.5, True])
def test_wrong_options_are_named(option, value):
  with pytest.raises(ValueError, match=f"option {option}={value}"):
    data.load("sinusoid", **{option: value})


def test_wrong_seeds_are_named():
  with pytest.raises(ValueError, match="seed=-1"):
    data.load("sinusoid", seed=-1)
