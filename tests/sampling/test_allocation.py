"""Passes over the primary units: each unit in exactly one step of a pass."""

import functools

import jax
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws

ALPHA = 1e-6
KEY = jax.random.key(11)
LEVELS = ("participant", "class", "image")


def _plan(steps, *below):
  return plan.SamplingPlan((plan.RandomAllocation(steps), *below))


def _flat(units):
  return plan.Hierarchy.regular((units,), levels=LEVELS[:1])


@functools.cache
def _compiled(units, steps):
  hierarchy, p = _flat(units), _plan(steps)

  def draw(key, numbers):
    return jax.vmap(lambda step: sampling.sample(key, hierarchy, p, step))(
        numbers
    )

  return jax.jit(draw)


def _draw(units, steps, numbers, key=KEY):
  """indices, mask [len(numbers), slots] of the steps with these numbers."""
  drawn = _compiled(units, steps)(key, np.asarray(numbers, np.int32))
  return tuple(np.asarray(a) for a in drawn)


def _bins(units, steps, number, key=KEY):
  """int[units]: the step that uses each unit in one pass; checks all of it."""
  first = number * steps
  indices, mask = _draw(units, steps, range(first, first + steps), key)
  assert (indices[~mask] == 0).all()
  assert (np.diff(mask.astype(int), axis=1) <= 0).all()  # padding last
  bins = np.full(units, -1)
  for step in range(steps):
    drawn = indices[step][mask[step]]
    assert (bins[drawn] == -1).all() and np.unique(drawn).size == drawn.size
    bins[drawn] = step
  assert (bins >= 0).all()
  return bins


@pytest.mark.parametrize("units,steps", [(50, 7), (5, 40)])
def test_every_unit_is_in_one_step_of_each_pass(units, steps):
  passes = [_bins(units, steps, number) for number in range(3)]
  if units == 50:
    assert len({tuple(bins.tolist()) for bins in passes}) == 3
    other = _bins(units, steps, 0, jax.random.key(12))
    assert (passes[0] != other).any()


def test_many_chunks_make_one_uniform_pass():
  """Three chunks of units, the last one not full."""
  units, steps = 2 * draws._CHUNK + 20_000, 10
  one, two = (_bins(units, steps, number) for number in range(2))
  assert stats.chisquare(np.bincount(one, minlength=steps)).pvalue > ALPHA
  # Uniform in every chunk, and independent between chunks and passes.
  size = draws._CHUNK
  for first, second in (
      (one[:size], one[size : 2 * size]),
      (one[size - 20_000 : size], one[-20_000:]),
      (one, two),
  ):
    table = np.bincount(first * steps + second, minlength=steps**2)
    assert stats.chisquare(table).pvalue > ALPHA


def test_every_assignment_is_equally_likely():
  """Three units and two steps, exactly: eight assignments."""
  indices, mask = _draw(3, 2, np.arange(0, 16_000))
  drawn = np.zeros((16_000, 3), bool)
  rows = np.broadcast_to(np.arange(16_000)[:, None], indices.shape)
  drawn[rows[mask], indices[mask]] = True
  first, second = drawn[0::2], drawn[1::2]
  assert (first != second).all()
  counts = np.bincount(first @ np.array([1, 2, 4]), minlength=8)
  assert stats.chisquare(counts).pvalue > ALPHA
  # One pass says nothing of the next.
  codes = first @ np.array([1, 2, 4])
  pairs = np.bincount(codes[:-1:2] * 8 + codes[1::2], minlength=64)
  assert stats.chisquare(pairs).pvalue > ALPHA


def test_counts_are_binomial():
  _, mask = _draw(300, 10, 7 + 10 * np.arange(2000))  # one step of each pass
  counts = mask.sum(axis=1)
  edges = np.unique(stats.binom.ppf(np.linspace(0.1, 0.9, 9), 300, 0.1))
  cdf = np.concatenate([[0], stats.binom.cdf(edges, 300, 0.1), [1]])
  observed = np.bincount(
      np.searchsorted(edges, counts), minlength=edges.size + 1
  )
  assert stats.chisquare(observed, np.diff(cdf) * 2000).pvalue > ALPHA


def test_order_within_a_step_is_uniform():
  indices, mask = _draw(6, 2, np.arange(20_000))
  three = indices[mask.sum(axis=1) == 3][:, :3]
  orders, counts = np.unique(np.argsort(three), axis=0, return_counts=True)
  assert len(orders) == 6 and stats.chisquare(counts).pvalue > ALPHA
  subsets, counts = np.unique(np.sort(three), axis=0, return_counts=True)
  assert len(subsets) == 20 and stats.chisquare(counts).pvalue > ALPHA
  # In the steps of a pass of one step the order is drawn anew.
  whole, _ = _draw(4, 1, np.arange(5000))
  orders, counts = np.unique(whole, axis=0, return_counts=True)
  assert len(orders) == 24 and stats.chisquare(counts).pvalue > ALPHA


def test_units_that_hold_unequal_families():
  tree = [[4, 2, 3], [4, 5], [2], [3, 3, 3, 3]]
  hierarchy = plan.Hierarchy.from_sizes(tree, levels=LEVELS)
  p = _plan(3, plan.All(), plan.FixedSize(2))
  alphabet = np.repeat(range(4), [sum(sizes) for sizes in tree])
  drawn = []
  for step in range(3):
    indices, mask = sampling.sample(KEY, hierarchy, p, step)
    assert indices.shape == mask.shape == sampler_error.capacities(hierarchy, p)
    for unit, present in zip(np.asarray(indices), np.asarray(mask)):
      if present.any():
        owner = set(alphabet[unit[present]].tolist())
        assert len(owner) == 1
        # Every class of the unit, two drawings of each.
        assert present.sum() == 2 * len(tree[min(owner)])
        assert np.unique(unit[present]).size == present.sum()
        drawn += owner
  assert sorted(drawn) == [0, 1, 2, 3]


def test_more_units_than_slots_are_dropped():
  chosen, count = draws.draw_assigned(
      KEY, 0, units=50, steps=1, slots=20
  )
  assert count == 20
  np.testing.assert_array_equal(chosen, np.arange(20))


def test_memory_forgets_the_number_of_participants():
  few, many = (
      draws.draw_assigned.lower(
          KEY, 0, units=units, steps=steps, slots=2000
      ).compile().memory_analysis().temp_size_in_bytes
      for units, steps in ((10**6, 625), (10**8, 62_500))
  )
  assert 0 < many <= 1.1 * few < 32e6
