"""Participants that are computed, not stored."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.sampling import synthetic

ALPHA = 1e-6
SIZES = dict(
    participants=400_000, classes=30, examples_per_class=6, way=5, per_class=2
)


def test_rows_are_fixed_and_distinct():
  hierarchy, rows = sampling.synthetic_participants(11, **SIZES)
  assert hierarchy.sizes == (400_000, 5, 2) and hierarchy.copies
  leaf = jnp.arange(2000 * 10).reshape(2000, 5, 2)
  got = np.asarray(rows(leaf))
  assert got.dtype == np.int32 and got.shape == leaf.shape
  classes, images = got // 6, got % 6
  assert (classes[..., 0] == classes[..., 1]).all() and classes.max() < 30
  assert all(len(set(c)) == 5 for c in classes[..., 0])
  assert (images[..., 0] != images[..., 1]).all()
  # A leaf's row does not depend on what it is asked together with.
  order = np.random.default_rng(0).permutation(leaf.size).reshape(leaf.shape)
  np.testing.assert_array_equal(rows(order), got.ravel()[order])
  _, other = sampling.synthetic_participants(12, **SIZES)
  assert (np.asarray(other(leaf)) != got).mean() > 0.9


def test_the_public_function_does_not_change():
  """A resumed or repeated run must meet the same participants."""
  _, rows = sampling.synthetic_participants(11, **SIZES)
  got = rows(np.asarray([0, 1, 10, 3_999_999]))
  assert got.tolist() == [66, 70, 163, 75]


def test_classes_and_images_are_uniform():
  _, rows = sampling.synthetic_participants(5, **SIZES)
  got = np.asarray(rows(jnp.arange(60_000))).reshape(6000, 5, 2)
  first = np.bincount(got[:, 0, 0] // 6, minlength=30)
  assert stats.chisquare(first).pvalue > ALPHA
  pair = np.bincount(
      (got[..., 0] % 6 * 6 + got[..., 1] % 6).ravel(), minlength=36
  )
  expected = np.where(np.arange(36) % 7 == 0, 0, 1 / 30) * pair.sum()
  keep = expected > 0
  assert not pair[~keep].any()
  assert stats.chisquare(pair[keep], expected[keep]).pvalue > ALPHA


@pytest.mark.slow
def test_most_copies_are_counted_over_all_participants(monkeypatch):
  sizes = dict(SIZES, participants=700)
  hierarchy, rows = sampling.synthetic_participants(3, **sizes)
  held = np.asarray(rows(jnp.arange(7000))).reshape(700, 10)
  by_image = [sum(image in set(h) for h in held) for image in range(180)]
  by_class = [sum(c in set(h // 6) for h in held) for c in range(30)]
  expected = {"class": max(by_class), "image": max(by_image)}
  assert rows.most_copies() == expected
  monkeypatch.setattr(synthetic, "_CHUNK", 64)  # the last one is not full
  assert rows.most_copies() == expected
  np.testing.assert_array_equal(
      np.asarray(rows.owned(jnp.arange(700))).reshape(700, 10), held
  )
  assert hierarchy is rows.hierarchy and hierarchy.most_copies is None


@pytest.mark.parametrize(
    "change,message",
    [
        ({"way": 31}, "way 31 cannot be drawn .* from classes 30"),
        ({"per_class": 7}, "per_class 7 .* from examples_per_class 6"),
        ({"per_class": 0}, "per_class 0"),
        ({"classes": 2**30}, "more than 2\\^31 - 1 rows"),
        ({"participants": 2**31}, "leaves, more than"),
        ({"key_seed": 2**32}, "key_seed 4294967296"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
  arguments = {"key_seed": 0, **SIZES, **change}
  with pytest.raises(plan.PlanError, match=message):
    sampling.synthetic_participants(arguments.pop("key_seed"), **arguments)
