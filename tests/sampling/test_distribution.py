"""The draws of both samplers: by Algorithm 1, their structure and cost."""

import functools

import jax
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws
from episodic_dp.sampling import numpy_sampler
from tests import frequencies
from tests import plans
from tests.sampling import oracle

F, P, A = plan.FixedSize, plan.Poisson, plan.All
KEY = jax.random.key(7)
DRAWS = 40_000


def _hierarchy(tree=oracle.TREE):
  return plans.nested(oracle.LEVELS, tree)


def _draw(hierarchy, p, number=DRAWS):
  """indices and mask of many steps of one run."""
  steps = np.arange(number, dtype=np.int32)
  key = jax.random.key(20221)
  many = jax.jit(
      jax.vmap(lambda step: sampling.sample(key, hierarchy, p, step))
  )
  return tuple(np.asarray(a) for a in many(steps))


def _draw_without_jax(hierarchy, p, number=DRAWS):
  """The same of the NumPy sampler: the tree drawn many times in one step."""
  unit = plan.EPISODE if p.repeats else hierarchy.levels[0]
  release = plans.release(hierarchy, p, unit)
  return numpy_sampler._draw(bytes(16), release, 0, (number, *p.repeats))


@functools.cache
def _draw_tree(stages, draw=_draw):
  """Draws from Example 3.1, shared between tests."""
  return draw(_hierarchy(), plan.SamplingPlan(stages))


both_samplers = pytest.mark.parametrize(
    "draw", [_draw, _draw_without_jax], ids=["jax", "numpy"]
)
PLANS = [
    (F(1), F(1), F(1)),
    (F(2), F(2), F(1)),
    (F(2), F(2), F(2)),
    (P(0.5), P(0.25), F(1)),
    (F(1), P(0.3), A()),
    (P(0.7), P(0.6), P(0.5)),
    (A(), F(2), P(0.25)),
]


# Each plan is a program that is compiled; some of them are in `make test-slow`.
@pytest.mark.parametrize(
    "stages",
    [*PLANS[:5], *(pytest.param(p, marks=pytest.mark.slow) for p in PLANS[5:])],
    ids=str,
)
@pytest.mark.few(2)
def test_inclusion_of_leaves_and_of_pairs(stages):
  hierarchy, p = _hierarchy(), plan.SamplingPlan(stages)
  indices, mask = _draw_tree(stages)
  assert indices.shape[1:] == sampler_error.capacities(hierarchy, p)
  if not any(isinstance(stage, P) for stage in stages[1:]):
    for step in range(8):
      _check_structure(indices[step], mask[step], 18)
  included = oracle.included(indices, mask, 18)
  exact = oracle.check_pairs(oracle.TREE, stages, included, DRAWS)
  rate = plan.inclusion_rate(hierarchy, p, "drawing")
  assert rate == pytest.approx(max(np.diag(exact)))


@both_samplers
@pytest.mark.parametrize("stages", PLANS[:4], ids=str)
@pytest.mark.few(3)
def test_subsets_are_as_likely_as_in_algorithm_1(stages, draw):
  indices, mask = _draw_tree(stages, draw)
  drawn = oracle.included(indices, mask, 18)
  oracle.check_subsets(oracle.TREE, stages, drawn, DRAWS)


@both_samplers
def test_every_order_of_all_is_equally_likely(draw):
  hierarchy = plans.nested("image", 4)
  indices, mask = draw(hierarchy, plans.sampling(A()))
  assert mask.all()
  frequencies.check_rows(indices, 24)


@pytest.mark.slow
def test_order_is_uniform_given_the_subset_at_every_stage():
  indices, _ = _draw_tree((F(2), F(2), F(2)))
  character = _hierarchy().parents(2)[indices[..., 0]]
  for first in (
      character[:, 0, 0] < character[:, 1, 0],
      character[:, :, 0] < character[:, :, 1],
      indices[..., 0] < indices[..., 1],
  ):
    # Columns are independent coins, so that one binomial holds for all.
    oracle.check_frequencies([first.sum()], first.size, [0.5])
  # Also where the number drawn is random.
  indices, mask = _draw(
      plans.nested("image", 6),
      plans.sampling(0.5),
  )
  three = mask.sum(axis=1) == 3
  frequencies.check_rows(np.argsort(indices[three][:, :3], axis=1), 6)


@both_samplers
def test_tasks_drawn_independently(draw):
  """Same class in two tasks: as often as for independent draws."""
  hierarchy = plans.nested("c image", [2, 2, 2, 2])
  episode = plan.Episode(1, 1, 1, form="independent", tasks=2)
  p = plans.sampling(1, 2, episode=episode)
  indices, mask = draw(hierarchy, p)
  assert indices.shape[1:] == (2, 1, 2) and mask.all()
  frequencies.check_pairs(indices[:, 0, 0, 0], indices[:, 1, 0, 0], 8)


def test_steps_are_independent():
  hierarchy = plans.nested("image", 8)
  indices, _ = _draw(hierarchy, plans.sampling(1))
  frequencies.check_pairs(indices[:-1, 0], indices[1:, 0], 8)


@both_samplers
@pytest.mark.few(1)
def test_empty_and_short_units(draw):
  tree = [[0, 1, 5], [], [3]]
  stages = (F(2), P(0.5), F(2))
  hierarchy = _hierarchy(tree)
  p = plan.SamplingPlan(stages, allow_short_units=True)
  indices, mask = draw(hierarchy, p)
  oracle.check_pairs(tree, stages, oracle.included(indices, mask, 9), DRAWS)


# Structure and cost -----------------------------------------------------------


def _check_structure(indices, mask, leaves):
  """Padding last, whole below a masked unit, row 0; nothing drawn twice."""
  indices, mask = np.asarray(indices), np.asarray(mask)
  assert (indices.dtype, mask.dtype) == (np.int32, bool)
  assert indices.shape == mask.shape
  present = mask
  for _ in range(mask.ndim):
    assert (np.diff(present.astype(int), axis=-1) <= 0).all()
    present = present[..., 0]
  assert (indices[~mask] == 0).all()
  drawn = indices[mask]
  assert len(set(drawn.tolist())) == drawn.size
  assert drawn.size == 0 or (drawn.min() >= 0 and drawn.max() < leaves)


def test_short_units_are_taken_whole():
  hierarchy = plans.nested("class image", [3, 0, 1])
  p = plans.sampling(A(), 2)
  with pytest.raises(plan.PlanError, match="class 1 has 0 of level 'image'"):
    sampling.sample(KEY, hierarchy, p, 0)
  p = plans.sampling(A(), 2, allow_short_units=True)
  for step in range(4):
    indices, mask = sampling.sample(KEY, hierarchy, p, step)
    drawn = [tuple(sorted(i[m].tolist())) for i, m in zip(indices, mask)]
    two = next(d for d in drawn if len(d) == 2)
    assert sorted(drawn) == sorted([(), (3,), two]) and set(two) < {0, 1, 2}
    assert not indices[~mask].any()


@pytest.mark.slow
def test_leaf_rows_are_rows_of_the_data():
  """Labels in scrambled order: what is drawn from a unit carries its label."""
  rng = np.random.default_rng(0)
  label = rng.permutation(np.repeat(np.arange(10), 6))
  hierarchy = plan.Hierarchy.from_labels({"class": label})
  assert hierarchy.leaf_rows is not None
  p = plans.sampling(0.4, 3)
  seen, padded = set(), 0
  for step in range(30):
    indices, mask = sampling.sample(KEY, hierarchy, p, step)
    # A masked slot holds row 0, not the row of leaf 0.
    _check_structure(indices, mask, 60)
    classes = label[np.asarray(indices)][mask[:, 0]]
    assert (classes == classes[:, :1]).all()
    assert len(set(classes[:, 0])) == len(classes)
    seen |= set(indices[mask].tolist())
    padded += int((~mask).sum())
  assert len(seen) > 50 and padded


def test_pure_in_key_and_step():
  hierarchy, p = _hierarchy(), plans.sampling(2, 2, 2)
  first, _ = sampling.sample(KEY, hierarchy, p, 3)
  again, _ = sampling.sample(KEY, _hierarchy(), p, np.int64(3))
  np.testing.assert_array_equal(first, again)
  others = [
      sampling.sample(key, hierarchy, p, step)[0].tolist()
      for key, step in (
          (KEY, 4), (KEY, 2**31 - 1), (jax.random.key(8), 3)
      )
  ]
  assert first.tolist() not in others and others[0] != others[1]


def test_largest_leaf_numbers():
  """Leaves up to 2^31 - 1, where int32 arithmetic is about to overflow."""
  size = (2**31 - 1) // 10
  hierarchy = plans.tree(oracle.LEVELS, size, 5, 2)
  p = plans.sampling(400, 5, 2)
  indices, mask = sampling.sample(KEY, hierarchy, p, 0)
  _check_structure(indices, mask, hierarchy.num_leaves)
  units = np.asarray(indices) // 10
  assert (units == units[:, :1, :1]).all()
  assert np.median(units) > size // 4 and units.max() > size - size // 50
  everything = np.sort(np.asarray(indices).reshape(400, 10) % 10, axis=1)
  assert (everything == np.arange(10)).all()
  one = plans.tree(oracle.LEVELS[:2], 1, 2**31 - 1)
  indices, mask = sampling.sample(KEY, one, plans.sampling(A(), 50), 0)
  _check_structure(indices, mask, 2**31 - 1)
  assert indices.max() > 2**30


@pytest.mark.slow
def test_cost_forgets_the_number_of_participants():
  """Compiled operations and bytes, for 10^8 and 10^4 participants."""
  p = plans.sampling(1600, 5, 2)
  hierarchies = [
      plans.tree(oracle.LEVELS, n, 5, 2)
      for n in (10**4, 10**8)
  ]
  few, many = (
      jax.jit(lambda step, h=h: sampling.sample(KEY, h, p, step))
      .lower(0).compile().cost_analysis()
      for h in hierarchies
  )
  for measure in ("flops", "bytes accessed"):
    assert 0 < many[measure] <= 1.1 * few[measure]


# Passes: each unit is in exactly one step of a pass ---------------------------

@functools.cache
def _compiled(units, steps):
  hierarchy = plans.tree(oracle.LEVELS[:1], units)
  p = plans.sampling(plan.RandomAllocation(steps))
  return jax.jit(
      jax.vmap(
          lambda key, step: sampling.sample(key, hierarchy, p, step), (None, 0)
      )
  )


def _pass_steps(units, steps, numbers, key=KEY):
  """indices, mask [len(numbers), slots] of the steps with these numbers."""
  drawn = _compiled(units, steps)(key, np.asarray(numbers, np.int32))
  return tuple(np.asarray(a) for a in drawn)


def _bins(units, steps, number, key=KEY):
  """int[units]: the step that uses each unit in one pass; checks all of it."""
  first = number * steps
  indices, mask = _pass_steps(units, steps, range(first, first + steps), key)
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


@pytest.mark.slow
def test_many_chunks_make_one_uniform_pass(monkeypatch):
  """Three chunks of units, the last one not full."""
  size, steps = 1 << 12, 10
  monkeypatch.setattr(draws, "_CHUNK", size)
  one, two = (_bins(2 * size + 2000, steps, number) for number in range(2))
  frequencies.check_uniform(np.bincount(one, minlength=steps))
  # Uniform in every chunk, and independent between chunks and passes.
  for first, second in (
      (one[:size], one[size : 2 * size]),
      (one[size - 2000 : size], one[-2000:]),
      (one, two),
  ):
    frequencies.check_pairs(first, second, steps)


def test_every_assignment_is_equally_likely():
  """Three units and two steps, exactly: eight assignments."""
  indices, mask = _pass_steps(3, 2, np.arange(0, 16_000))
  drawn = oracle.included(indices, mask, 3)
  first, second = drawn[0::2], drawn[1::2]
  assert (first != second).all()
  codes = first @ np.array([1, 2, 4])
  frequencies.check_uniform(np.bincount(codes, minlength=8))
  # One pass says nothing of the next.
  frequencies.check_pairs(codes[:-1:2], codes[1::2], 8)


def test_counts_are_binomial():
  # One step of each pass.
  _, mask = _pass_steps(300, 10, 7 + 10 * np.arange(2000))
  frequencies.check_binomial(mask.sum(axis=1), 300, 0.1)


@pytest.mark.slow
def test_order_within_a_step_is_uniform():
  indices, mask = _pass_steps(6, 2, np.arange(20_000))
  three = indices[mask.sum(axis=1) == 3][:, :3]
  frequencies.check_rows(np.argsort(three), 6)
  frequencies.check_rows(np.sort(three), 20)
  # In the steps of a pass of one step the order is drawn again.
  frequencies.check_rows(_pass_steps(4, 1, np.arange(5000))[0], 24)


def test_units_that_hold_unequal_families():
  tree = [[4, 2, 3], [4, 5], [2], [3, 3, 3, 3]]
  hierarchy = plans.nested(oracle.LEVELS, tree)
  p = plans.sampling(plan.RandomAllocation(3), plan.All(), 2)
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
