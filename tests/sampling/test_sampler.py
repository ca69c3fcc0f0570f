"""Shapes, masks, purity and cost of `sample`."""


import jax
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import sampler_error

F, P, A = plan.FixedSize, plan.Poisson, plan.All
LEVELS = ("alphabet", "character", "drawing")
KEY = jax.random.key(7)


def _example():
  return plan.Hierarchy.from_sizes([[4, 2, 3], [4, 5]], levels=LEVELS)


def _check_structure(indices, mask, leaves):
  """Padding last, whole below a masked unit, row 0; nothing drawn twice."""
  indices, mask = np.asarray(indices), np.asarray(mask)
  assert indices.dtype == np.int32 and mask.dtype == bool
  assert indices.shape == mask.shape
  present = mask
  for _ in range(mask.ndim):
    assert (np.diff(present.astype(int), axis=-1) <= 0).all()
    present = present[..., 0]
  assert (indices[~mask] == 0).all()
  drawn = indices[mask]
  assert len(set(drawn.tolist())) == drawn.size
  assert drawn.size == 0 or (drawn.min() >= 0 and drawn.max() < leaves)


@pytest.mark.parametrize(
    "stages", [(F(2), A()), (P(0.5), F(2)), (A(), P(0.5))], ids=str
)
def test_structure(stages):
  """Above two drawings of each character."""
  hierarchy = _example()
  p = plan.SamplingPlan((*stages, F(2)))
  for step in range(8):
    indices, mask = sampling.sample(KEY, hierarchy, p, step)
    assert indices.shape == sampler_error.capacities(hierarchy, p)
    _check_structure(indices, mask, 18)
    if not any(isinstance(s, P) for s in stages):
      assert mask.sum() == 2 * (3 + 2)


def test_short_units_are_taken_whole():
  hierarchy = plan.Hierarchy.from_sizes([3, 0, 1], levels=("class", "image"))
  p = plan.SamplingPlan((A(), F(2)))
  with pytest.raises(plan.PlanError, match="class 1 has 0 of level 'image'"):
    sampling.sample(KEY, hierarchy, p, 0)
  p = plan.SamplingPlan((A(), F(2)), allow_short_units=True)
  for step in range(4):
    indices, mask = sampling.sample(KEY, hierarchy, p, step)
    drawn = [tuple(sorted(i[m].tolist())) for i, m in zip(indices, mask)]
    two = next(d for d in drawn if len(d) == 2)
    assert sorted(drawn) == sorted([(), (3,), two]) and set(two) < {0, 1, 2}
    assert not indices[~mask].any()


def test_leaf_rows_are_rows_of_the_data():
  """Labels in scrambled order: what is drawn from a unit carries its label."""
  rng = np.random.default_rng(0)
  label = rng.permutation(np.repeat(np.arange(10), 6))
  hierarchy = plan.Hierarchy.from_labels({"class": label})
  assert hierarchy.leaf_rows is not None
  p = plan.SamplingPlan((P(0.4), F(3)))
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
  hierarchy, p = _example(), plan.SamplingPlan((F(2), F(2), F(2)))
  first, _ = sampling.sample(KEY, hierarchy, p, 3)
  again, _ = sampling.sample(KEY, _example(), p, np.int64(3))
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
  hierarchy = plan.Hierarchy.regular((size, 5, 2), levels=LEVELS)
  p = plan.SamplingPlan((F(400), F(5), F(2)))
  indices, mask = sampling.sample(KEY, hierarchy, p, 0)
  _check_structure(indices, mask, hierarchy.num_leaves)
  units = np.asarray(indices) // 10
  assert (units == units[:, :1, :1]).all()
  assert np.median(units) > size // 4 and units.max() > size - size // 50
  everything = np.sort(np.asarray(indices).reshape(400, 10) % 10, axis=1)
  assert (everything == np.arange(10)).all()
  one = plan.Hierarchy.regular((1, 2**31 - 1), levels=LEVELS[:2])
  indices, mask = sampling.sample(KEY, one, plan.SamplingPlan((A(), F(50))), 0)
  _check_structure(indices, mask, 2**31 - 1)
  assert indices.max() > 2**30


def _draw_1600(participants):
  hierarchy = plan.Hierarchy.regular((participants, 5, 2), levels=LEVELS)
  p = plan.SamplingPlan((F(1600), F(5), F(2)))
  return jax.jit(lambda step: sampling.sample(KEY, hierarchy, p, step))


def test_cost_forgets_the_number_of_participants():
  """Compiled operations and bytes, for 10^8 and 10^4 participants."""
  few, many = (
      _draw_1600(n).lower(0).compile().cost_analysis() for n in (10**4, 10**8)
  )
  for measure in ("flops", "bytes accessed"):
    assert 0 < many[measure] <= 1.1 * few[measure]
