"""The noise: its spread, its shape, its tails, one draw per leaf."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp import private
from episodic_dp.private import noise

pytestmark = pytest.mark.optimized

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
