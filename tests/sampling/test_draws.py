"""Numbers, counts and orders that are drawn, against whole numbers."""

import bisect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp.plan import binomial
from episodic_dp.sampling import draws

RANGES = (1, 2, 3, 5, 7, 1150, 65535, 65536, 65537, 10**8, 2**31 - 1)


def _number(words):
  value = 0
  for word in words:
    value = value << 32 | int(word)
  return value


def _words(value):
  return [(value >> shift) & 0xFFFFFFFF for shift in (96, 64, 32, 0)]


@pytest.mark.parametrize("n", RANGES)
def test_uniform_equals_big_integers(n):
  rng = np.random.default_rng(n)
  bits = rng.integers(0, 2**32, (200, 4), np.uint32)
  # Words of all zeros and all ones carry in every possible way.
  bits[100:] = np.where(rng.random((100, 4)) < 0.5, 0, 2**32 - 1)
  bits[0], bits[1] = 0, 2**32 - 1
  got = jax.jit(draws.uniform_below)(jnp.asarray(bits), n)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, [_number(b) * n >> 128 for b in bits])
  assert got[0] == 0 and got[1] == n - 1


def test_smallest_number_that_reaches_a_value():
  """Exact rounding: the preimage of v starts at ceil(v 2^128 / n)."""
  for n in (3, 1150, 2**31 - 1):
    for value in (1, n // 2 + 1, n - 1):
      start = -(-(value << 128) // n)
      words = [_words(start - 1), _words(start)]
      got = draws.uniform_below(jnp.asarray(words, jnp.uint32), n)
      assert got.tolist() == [value - 1, value]


ALPHA = 1e-6

_draw = jax.jit(draws.draw_ordered, static_argnums=2)


def _shuffle(targets, n):
  """Sequential Fisher-Yates; entries of the array are made when touched."""
  array, out = {}, []
  for i, j in enumerate(targets):
    if i < n:
      array[i], array[j] = array.get(j, j), array.get(i, i)
    out.append(array.get(i, i))
  return out


def _targets(bits, n):
  slots = bits.shape[0]
  left = jnp.maximum(n - jnp.arange(slots), 1)
  below = jax.jit(draws.uniform_below)(jnp.asarray(bits), left)
  return (np.arange(slots) + np.asarray(below)).tolist()


@pytest.mark.parametrize("way", ["_compare", "_sort"])
@pytest.mark.parametrize("slots", [1, 2, 7, 100])
def test_equals_a_sequential_shuffle(way, slots, monkeypatch):
  monkeypatch.setattr(
      draws, "_MAX_COMPARED", slots if way == "_compare" else slots - 1
  )
  rng = np.random.default_rng(slots)
  rows, want = [], []
  for n in (slots, slots + 1, slots + 3, 2 * slots, 5 * slots, 10**6):
    for _ in range(50):
      rows.append(rng.integers(np.arange(slots), n))
      want.append(_shuffle(rows[-1].tolist(), n))
  # Chains as long and as tangled as they come.
  forward = np.minimum(np.arange(slots) + 1, slots - 1)
  for row in (forward, np.full(slots, slots - 1), np.arange(slots)):
    rows.append(row)
    want.append(_shuffle(row.tolist(), slots))
  resolve = jax.jit(lambda targets: draws.resolve_swaps(targets))
  got = resolve(jnp.asarray(np.stack(rows), jnp.int32))
  np.testing.assert_array_equal(got, want)


def test_all_possible_targets_give_all_orders_equally_often():
  n = 5
  rows = list(itertools.product(*(range(i, n) for i in range(n))))
  got = jax.jit(draws.resolve_swaps)(jnp.asarray(rows, jnp.int32))
  orders = {tuple(r) for r in got.tolist()}
  assert len(rows) == 120 and orders == set(itertools.permutations(range(n)))


@pytest.mark.parametrize(
    "slots,n", [(1, 1), (4, 4), (4, 9), (4, 2), (4, 0), (40, 40), (40, 13)]
)
def test_draw_equals_a_sequential_shuffle_of_its_own_targets(slots, n):
  bits = np.random.default_rng(n).integers(0, 2**32, (slots, 4), np.uint32)
  got = _draw(jnp.asarray(bits), n, slots)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, _shuffle(_targets(bits, n), n))
  # With too few children: all of them, then padding that holds its position.
  assert sorted(got[:n].tolist()) == list(range(n)) or n > slots
  assert got[n:].tolist() == list(range(n, slots))
  assert len(set(got.tolist())) == slots


@pytest.mark.parametrize("slots,n", [(3, 5), (5, 3)])
def test_orders_are_uniform(slots, n):
  number = 20_000
  bits = jax.random.bits(jax.random.key(n), (number, slots, 4), jnp.uint32)
  got = np.asarray(_draw(bits, n, slots))[:, : min(n, slots)]
  orders, counts = np.unique(got, axis=0, return_counts=True)
  assert len(orders) == len(
      list(itertools.permutations(range(n), min(n, slots)))
  )
  assert stats.chisquare(counts).pvalue > ALPHA


_draw_counts = jax.jit(draws.draw_counts, static_argnums=3)


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
  got = _draw_counts(bits, tables, jnp.asarray(which), steps)
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
  got = np.asarray(_draw_counts(bits, tables, 0, steps))
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


def test_stated_bias_covers_the_worst_range():
  """The share of 2^128 numbers that hit one value is off by at most 1/2^128."""
  n, total = 2**31 - 1, 1 << 128
  short, extra = divmod(total, n)
  # `extra` values have one number more than `short`, the others `short`.
  distance = extra * ((short + 1) * n - total) / (n * total)
  assert distance <= binomial.UNIFORM_ERROR
