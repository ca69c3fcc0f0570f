"""Glyphs and sinusoids: deterministic, disjoint, and as described."""

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import sinusoid

SIZES = {"train": 40, "validation": 10, "test": 50}
COUNTS = dict(zip(
    ("participants", "validation_participants", "test_participants"),
    SIZES.values(),
))
EACH = {"glyphs": (8, 5), "sinusoid": (12,)}
OPTIONS = {"glyphs": COUNTS, "sinusoid": COUNTS | {"points": 12}}


@pytest.fixture(scope="module", params=OPTIONS)
def made(request):
  return request.param, data.load(request.param, **OPTIONS[request.param])


def test_splits_have_the_declared_sizes_and_share_nothing(made):
  name, splits = made
  rows = set()
  for part, count in SIZES.items():
    found = getattr(splits, part)
    assert found.hierarchy.sizes == (count, *EACH[name])
    assert not found.hierarchy.copies and not found.rotate
    rows |= {row.tobytes() for row in found.images}
  assert len(rows) == 100 * np.prod(EACH[name])


def test_a_larger_set_holds_the_smaller_and_a_seed_gives_another(made):
  name, splits = made
  # 17 is no multiple of the rendering chunk.
  fewer = data.load(name, **(OPTIONS[name] | {"participants": 17}))
  rows = 17 * np.prod(EACH[name])
  np.testing.assert_array_equal(fewer.train.images, splits.train.images[:rows])
  np.testing.assert_array_equal(fewer.test.images, splits.test.images)
  other = data.load(name, **(OPTIONS[name] | {"seed": 1})).test.images
  same = (other == splits.test.images).reshape(len(other), -1).all(1)
  assert same.mean() < 0.01


def test_points_lie_on_the_participants_curves():
  splits = data.load("sinusoid", **OPTIONS["sinusoid"])
  for part, count in SIZES.items():
    found = getattr(splits, part)
    assert found.image_shape == (1, 1, 1) and found.targets == 1
    x, y = np.moveaxis(found.images.reshape(count, 12, 2), 2, 0)
    amplitude, phase = sinusoid.curves(count, split=part)
    np.testing.assert_allclose(
        y, amplitude[:, None] * np.sin(x - phase[:, None]), atol=1e-5
    )
  amplitude, phase = sinusoid.curves(300)
  for values, low, high in (
      (amplitude, 0.1, 5), (phase, 0, np.pi), (x.ravel(), -5, 5)
  ):
    assert low <= values.min() < low + 0.05 * (high - low)
    assert high - 0.05 * (high - low) < values.max() <= high


def test_glyphs_are_learnable_and_not_trivial():
  images = data.load("glyphs", **COUNTS).test.images
  assert images.min() == 0 and images.max() == 255 == np.median(images)
  dark = (images < 128).mean((1, 2, 3))
  assert dark.min() > 0.01 and dark.max() < 0.5
  glyphs = images.reshape(50, 8, 5, -1) / 255.0
  rng, hits = np.random.default_rng(0), []
  for _ in range(400):  # Nearest neighbours, of 5-way tasks.
    chosen = rng.choice(8, 5, replace=False)
    task = glyphs[rng.integers(50), chosen]
    support, query = np.stack(
        [one[rng.choice(5, 2, replace=False)] for one in task], axis=1
    )
    distance = ((query[:, None] - support) ** 2).sum(-1)
    hits.append((distance.argmin(1) == np.arange(5)).mean())
  assert 0.5 < np.mean(hits) < 0.8  # Chance is 0.2.
  # The amount of ink varies more between writers than by chance.
  ink = (1 - glyphs).mean((2, 3))
  assert ink.mean(1).var() > 2 * ink.var(axis=1, ddof=1).mean() / 8
