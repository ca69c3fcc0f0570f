"""Clipping, the sum and the noise: exact norms, and the announced spread."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp import private
from episodic_dp.private import clipping
from episodic_dp.private import noise

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


SIZE = 200_001


def test_is_standard_normal():
  x = np.asarray(noise.standard_normal(jax.random.key(0), (SIZE,)), np.float64)
  squares = float(np.sum(x**2))
  low, high = stats.chi2.interval(1 - 1e-6, SIZE)
  assert low < squares < high
  assert stats.kstest(x, "norm").pvalue > 1e-6
  # The two halves come from the same radii and other angles.
  half = SIZE // 2
  assert abs(np.corrcoef(x[:half], x[half + 1 :])[0, 1]) < 5 / np.sqrt(half)
  for bound in (3.0, 4.0):
    beyond = int(np.sum(np.abs(x) > bound))
    expected = 2 * stats.norm.sf(bound) * SIZE
    assert stats.binomtest(beyond, SIZE, expected / SIZE).pvalue > 1e-6


def test_tails_follow_the_words_to_the_last_bit():
  """The radius is the inverse of exp(-r^2 / 2) at the word's fraction."""
  zeros = np.arange(1, 63)
  words = [1 << (63 - int(z)) for z in zeros]
  high = jnp.asarray([w >> 32 for w in words], jnp.uint32)
  low = jnp.asarray([w & 0xFFFFFFFF for w in words], jnp.uint32)
  x, y = noise._box_muller(high, low, jnp.zeros(len(words), jnp.uint32))
  mass = (np.asarray(words, np.float64) + 0.5) * 2.0**-64
  np.testing.assert_allclose(x**2 / 2, -np.log(mass), rtol=1e-5)
  np.testing.assert_array_equal(y, 0)
  assert float(x.max()) > 9.2
  # The other end: the same words above one half give radii near 0.
  x, _ = noise._box_muller(high | np.uint32(1 << 31), low, jnp.zeros_like(high))
  np.testing.assert_allclose(x**2 / 2, -np.log1p(-mass), rtol=1e-5)


def test_scales_and_adds_to_every_leaf_alone():
  total = {"a": jnp.full((50, 40), 3.0), "b": jnp.full((50, 40), -1.0)}
  add = jax.jit(private.add_noise, static_argnums=2)
  noised = add(jax.random.key(1), total, 5.0)
  drawn = {k: np.asarray(noised[k] - total[k]).ravel() for k in total}
  for values in drawn.values():
    low, high = stats.chi2.interval(1 - 1e-6, values.size)
    assert low < np.sum((values / 5) ** 2) < high
  correlation = np.corrcoef(drawn["a"], drawn["b"])[0, 1]
  assert abs(correlation) < 5 / np.sqrt(2000)
  again = add(jax.random.key(1), total, 5.0)
  np.testing.assert_array_equal(again["a"], noised["a"])
  other = add(jax.random.key(2), total, 5.0)
  assert np.mean(np.asarray(other["a"]) == np.asarray(noised["a"])) < 0.01


def test_no_noise_changes_nothing():
  total = {"a": jnp.arange(3.0)}
  assert private.add_noise(jax.random.key(0), total, 0.0) is total


def test_a_sum_of_four_normals_is_as_normal_as_one():
  total = {"a": jnp.zeros(SIZE), "b": jnp.zeros(SIZE)}
  add = jax.jit(
      lambda key: private.add_noise(key, total, 3.0, terms=4)
  )
  found = add(jax.random.key(4))
  low, high = stats.chi2.interval(1 - 1e-6, SIZE)
  for values in found.values():
    values = np.asarray(values, np.float64) / 3
    assert low < np.sum(values**2) < high
    assert stats.kstest(values, "norm").pvalue > 1e-6
  a, b = (np.asarray(found[name]) for name in "ab")
  assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(SIZE)
  np.testing.assert_array_equal(add(jax.random.key(4))["a"], found["a"])
  # It is the sum of four independent draws, none of them that of one term.
  drawn = [
      np.asarray(
          noise.standard_normal(
              jax.random.fold_in(jax.random.key(4), j), (2 * SIZE,)
          ),
          np.float64,
      )
      for j in range(4)
  ]
  both = np.concatenate([a, b])
  np.testing.assert_allclose(both, 3 * sum(drawn) / 2, atol=1e-5)
  assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 5 / np.sqrt(SIZE)
  one = private.add_noise(jax.random.key(4), total, 3.0)["a"]
  assert abs(np.corrcoef(a, one)[0, 1]) < 5 / np.sqrt(SIZE)


def test_every_array_can_have_a_spread_of_its_own():
  key, zeros = jax.random.key(5), [jnp.zeros(40), jnp.zeros((3, 2))]
  found = private.add_noise(key, zeros, jnp.array([0.5, 2.0]))
  for i, spread in enumerate((0.5, 2.0)):
    same = private.add_noise(key, zeros, spread)
    np.testing.assert_array_equal(found[i], same[i])
    shared = private.add_noise(key, zeros, jnp.array([spread]))
    np.testing.assert_array_equal(found[i], shared[i])
