"""The norm bound and the sensitivity, on vectors chosen to break them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import private
from episodic_dp.private import clipping

pytestmark = pytest.mark.optimized

CLIP = {
    by: jax.jit(
        lambda tree, norm, by=by: private.clip(tree, norm, by), static_argnums=1
    )
    for by in ("global", "layer")
}


def exact_norm(tree) -> float:
  leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
  return math.sqrt(sum(float(np.sum(leaf**2)) for leaf in leaves))


def tree(scale=1.0, seed=0, sizes=((70, 9), (13,), (1, 2, 3))):
  rng = np.random.default_rng(seed)
  return {
      str(i): (scale * rng.standard_normal(size)).astype(np.float32)
      for i, size in enumerate(sizes)
  }


def spoiled(value):
  result = tree()
  result["1"][4] = value
  return result


CASES = {
    "small": tree(1e-3),
    "large": tree(1e3),
    "square overflows": tree(1e25),
    "nearly overflows": tree(1e37),
    "square underflows": tree(1e-25),
    "subnormal": tree(1e-40),
    "zero": tree(0.0),
    "nan": spoiled(np.nan),
    "inf": spoiled(np.inf),
    "minus inf": spoiled(-np.inf),
    "largest": spoiled(np.finfo(np.float32).max),
    "equal entries": {"a": np.ones(4096, np.float32)},
}


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("norm", [1e-3, 1.0, 75.0])
@pytest.mark.parametrize("name", CASES)
def test_norm_is_at_most_the_clip_norm(name, norm, by):
  clipped = CLIP[by](CASES[name], norm)
  assert exact_norm(clipped.gradient) <= norm
  finite = all(np.isfinite(leaf).all() for leaf in CASES[name].values())
  assert clipped.finite == finite
  if not finite:
    assert exact_norm(clipped.gradient) == 0


def test_norm_is_at_most_the_clip_norm_for_many_vectors():
  """Rounding must not lift any of 4000 vectors over the bound."""
  rng = np.random.default_rng(1)
  vectors = rng.standard_normal((4000, 300)).astype(np.float32)
  clipped = jax.jit(jax.vmap(lambda v: private.clip(v, 1.0)))(vectors)
  norms = np.sqrt(np.sum(np.asarray(clipped.gradient, np.float64) ** 2, 1))
  assert norms.max() <= 1.0
  assert norms.min() > 1 - 1e-4
  assert clipped.clipped.all()


def test_direction_is_kept_and_small_gradients_are_untouched():
  for name, untouched in (("small", True), ("square overflows", False)):
    gradient = CASES[name]
    result = CLIP["global"](gradient, 75.0)
    expected = min(1.0, 75.0 / exact_norm(gradient))
    for key in gradient:
      np.testing.assert_allclose(
          result.gradient[key], gradient[key] * expected, rtol=1e-4
      )
      if untouched:
        np.testing.assert_array_equal(result.gradient[key], gradient[key])
    assert result.clipped == (not untouched)


def test_layers_are_clipped_one_by_one():
  gradient = tree() | {"1": 1e-3 * np.ones(13, np.float32)}
  result = CLIP["layer"](gradient, 1.0).gradient
  bound = 1 / math.sqrt(3)
  np.testing.assert_array_equal(result["1"], gradient["1"])
  for key in ("0", "2"):
    np.testing.assert_allclose(exact_norm(result[key]), bound, rtol=1e-4)
    assert exact_norm(result[key]) <= bound


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("name", CASES)
def test_infinite_clip_norm_changes_finite_gradients_in_no_bit(name, by):
  gradient = CASES[name]
  result = CLIP[by](gradient, math.inf)
  for key, leaf in gradient.items():
    if result.finite:
      np.testing.assert_array_equal(result.gradient[key], leaf)
    else:
      np.testing.assert_array_equal(result.gradient[key], 0)
  assert not result.clipped


@pytest.mark.parametrize("by", ["global", "layer"])
def test_sensitivity_holds_for_neighbours(by):
  """The sum with one unit added, removed or replaced, over all cases."""
  norm = 2.0
  def total(units):
    return np.asarray(
        sum(
            np.concatenate([
                np.asarray(leaf, np.float64).ravel()
                for leaf in jax.tree.leaves(CLIP[by](unit, norm).gradient)
            ])
            for unit in units
        )
    )
  units = [unit for name, unit in CASES.items() if name != "equal entries"]
  others = [tree(50.0, seed=9), jax.tree.map(lambda a: -a, tree(50.0, seed=9))]
  base, moved = total(units + others[:1]), 0.0
  for i in range(len(units)):
    rest = units[:i] + units[i + 1 :] + others[:1]
    change = np.linalg.norm(total(rest) - base)
    assert change <= private.sensitivity(norm) + 1e-9
    for other in others:
      change = np.linalg.norm(total([*rest, other]) - base)
      assert change <= private.sensitivity(norm, "replace-one") + 1e-9
  # Opposite gradients reach the bound, so a smaller one would be wrong.
  moved = np.linalg.norm(total(others[:1]) - total(others[1:]))
  assert moved > private.sensitivity(norm, "replace-one") * (1 - 1e-4)


def test_half_precision_gradients_are_clipped_in_float32():
  gradient = jnp.full(1000, 300.0, jnp.bfloat16)
  result = private.clip(gradient, 1.0).gradient
  assert result.dtype == jnp.float32 and 1 - 1e-4 < exact_norm(result) <= 1


@pytest.mark.parametrize("count", [1, 5, 16, 17, 37, 300])
def test_add_up_is_the_sum_over_the_first_axis(count):
  units = {
      "a": np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3),
      "b": np.arange(count, dtype=np.float32) % 7,
  }
  total = clipping.sum_units(units)
  for name, unit in units.items():
    np.testing.assert_array_equal(total[name], unit.sum(0))  # Whole numbers.
