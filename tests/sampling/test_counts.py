"""Poisson counts against whole-number search and the true binomial."""

import bisect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp.plan import binomial
from episodic_dp.sampling import draws

ALPHA = 1e-6

_draw = jax.jit(draws.draw_counts, static_argnums=3)


def _number(words):
  value = 0
  for word in words:
    value = value << 32 | int(word)
  return value


def _words(value):
  return [(value >> shift) & 0xFFFFFFFF for shift in (96, 64, 32, 0)]


@pytest.mark.parametrize("p", [0.004, 0.3, 0.5, 1.0])
def test_equals_a_search_in_whole_numbers(p):
  """For several tables behind one another, at and around every threshold."""
  sizes = [0, 1, 2, 5, 20, 300]
  tables, steps = draws.count_tables(sizes, p)
  rng = np.random.default_rng(0)
  words, which, want = [], [], []
  for k, n in enumerate(sizes):
    table = binomial.binomial_table(n, p)
    thresholds = [_number(t) for t in table.thresholds]
    values = {0, 2**128 - 1}
    values |= {int.from_bytes(rng.bytes(16), "big") for _ in range(20)}
    for t in thresholds[:: max(1, len(thresholds) // 30)]:
      values |= {t - 1, t, min(t + 1, 2**128 - 1)}
    for value in values - {-1}:
      words.append(_words(value))
      which.append(k)
      want.append(table.first + bisect.bisect_right(thresholds, value))
    assert want[-1] <= table.capacity
  bits = jnp.asarray(np.asarray(words, np.uint32))
  got = _draw(bits, tables, jnp.asarray(which), steps)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "n,p",
    [
        (1, 0.5),
        (7, 0.9),
        (18, 0.3),
        (1000, 0.5),
        (400_000, 0.004),
        (10**8, 1.6e-5),
    ],
)
def test_counts_follow_the_binomial(n, p):
  number = 20_000
  tables, steps = draws.count_tables([n], p)
  bits = jax.random.bits(jax.random.key(n), (number, 4), jnp.uint32)
  got = np.asarray(_draw(bits, tables, 0, steps))
  low, high = stats.binom.ppf([1e-3, 1 - 1e-3], n, p).astype(int)
  # Cells with an expected count of at least about 20, tails lumped.
  edges = np.unique(np.linspace(low, high, 25).astype(int))
  cdf = np.concatenate([[0.0], stats.binom.cdf(edges, n, p), [1.0]])
  expected = np.diff(cdf) * number
  observed = np.bincount(
      np.searchsorted(edges, got), minlength=expected.size
  )
  keep = expected > 0
  assert not observed[~keep].any()
  pvalue = stats.chisquare(observed[keep], expected[keep]).pvalue
  assert pvalue > ALPHA, (observed, expected)


def test_rate_one_takes_all_and_no_child_gives_none():
  bits = jnp.asarray([[0] * 4, [2**32 - 1] * 4], jnp.uint32)
  for n in (0, 3):
    tables, steps = draws.count_tables([n], 1.0)
    assert _draw(bits, tables, 0, steps).tolist() == [n, n]
  tables, steps = draws.count_tables([0], 0.25)
  assert _draw(bits, tables, 0, steps).tolist() == [0, 0]
