"""draw_ordered against a plain Fisher-Yates shuffle with the same targets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp.sampling import draws

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
