"""Trees built from the labels with and without a record, enumerated.

What a guarantee compares is what a loader builds from the two data sets. Where
the units are declared, a unit whose last record leaves stays, as the proof has
it; where they are read off the records, it leaves too, and the claim is false.
"""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.profiles import unit_profile
from tests.oracles import exact
from tests.oracles import worst_case

BOTH = ("remove", "add")


def mixture(hierarchy, rows, stages, clip, gradient):
  """The sums of one step on a tree of some rows of the whole data.

  Args:
    hierarchy: of these rows.
    rows: their numbers in the whole data.
    stages: of the plan.
    clip: the clip level.
    gradient: the drawn rows of a clip unit, rising -> a number in [-1, 1].
  """
  order = hierarchy.leaf_rows
  order = np.arange(len(rows)) if order is None else order

  def of_unit(node):
    leaves = exact.clip_units(node, hierarchy.depth - 1)
    return gradient(tuple(sorted(int(rows[order[leaf[1]]]) for leaf in leaves)))

  drawn = exact.samples(exact.tree(hierarchy), stages)
  return exact.mixture(drawn, clip, of_unit)


def both_ways(sums, epsilon, z):
  """The divergences of removing and of adding, of the sums of two trees."""
  alpha = math.exp(epsilon)
  return [
      exact.hockey_stick(one, other, alpha, z)
      for one, other in (sums, sums[::-1])
  ]


def claimed(hierarchy, stages, clip, level, epsilon, z):
  release = plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, allow_short_units=True),
      plan.Mechanism(clip_unit=hierarchy.levels[clip], noise_multiplier=z),
  )
  kinds = accounting.unit_profiles(release, level)
  at = np.asarray([epsilon])
  return {d: float(unit_profile.profile(kinds, at, d)[0]) for d in BOTH}


def test_the_counterexample():
  """A single record of class A beside four of class B; that of A leaves."""
  labels = np.asarray(list("ABBBB"))
  stages, every = (plan.FixedSize(1), plan.All()), np.arange(5)

  def truth(units):
    trees = [
        plan.Hierarchy.from_labels({"class": labels[kept]}, units=units)
        for kept in (every, every[1:])
    ]
    bound = claimed(trees[0], stages, 1, "example", 2.0, 2.0)
    assert max(bound.values()) == pytest.approx(4.719e-6, rel=1e-3)
    sums = [
        mixture(t, kept, stages, 1, lambda rows: -1.0 if rows == (0,) else 1.0)
        for t, kept in zip(trees, (every, every[1:]))
    ]
    return max(both_ways(sums, 2.0, 2.0)), max(bound.values())

  read_off, bound = truth(None)
  assert read_off == pytest.approx(0.216, abs=5e-4)
  declared, bound = truth(["A", "B"])
  assert declared == pytest.approx(bound, rel=1e-6)


def test_the_assumption_is_gone_where_the_units_are_declared():
  labels = {"class": np.asarray(list("ABBBB"))}
  stages = (plan.Poisson(0.5), plan.All())
  for units, there in ((None, True), (["A", "B"], False)):
    release = plan.Release(
        plan.Hierarchy.from_labels(labels, units=units),
        plan.SamplingPlan(stages),
        plan.Mechanism(clip_unit="class", noise_multiplier=2.0),
    )
    for level in ("class", "example"):
      lines = accounting.guarantee(
          release, steps=1, delta=1e-5, level=level
      ).assumptions
      said = any("stays when a unit is emptied" in line for line in lines)
      # Without a class the list of classes is shorter, declared or not.
      assert said == (there and level == "example")


STAGES = (plan.FixedSize(1), plan.FixedSize(2), plan.Poisson(0.4), plan.All())


@pytest.mark.parametrize("seed", range(80))
def test_random_trees_with_empty_units(seed):
  """Remove one unit of any level from the data and from the list."""
  rng = np.random.default_rng(seed)
  rows, depth = int(rng.integers(2, 6)), int(rng.integers(1, 3))
  table = rng.integers(0, 3, (rows, depth))
  units = [tuple(row) for row in table.tolist()]
  units += [tuple(rng.integers(0, 4, depth).tolist()) for _ in range(2)]
  if depth == 2:
    units.append((int(rng.integers(0, 5)),))  # Perhaps with nothing at all.
  stages = tuple(STAGES[i] for i in rng.integers(0, 4, depth + 1))
  clip, level = (int(i) for i in rng.integers(0, depth + 1, 2))
  epsilon, z = float(rng.uniform(0, 1.5)), float(rng.uniform(0.5, 2))
  values = {}

  def gradient(drawn):
    return values.setdefault(drawn, float(rng.choice([-1.0, 1.0, 0.5])))

  def built(kept, units):
    labels = {f"level{k}": table[kept, k] for k in range(depth)}
    return plan.Hierarchy.from_labels(labels, units=units)

  every = np.arange(rows)
  whole = built(every, units)
  order = every if whole.leaf_rows is None else whole.leaf_rows
  unit = int(rng.integers(whole.num_units(level)))
  if level == depth:
    kept, fewer = np.delete(every, order[unit]), units
  else:  # With all that is below it; what is above it stays.
    path = tuple(
        whole.names[k][worst_case.ancestor(whole, level, unit, k)].item()
        for k in range(level + 1)
    )
    kept = every[(table[:, : level + 1] != path).any(axis=1)]
    fewer = [u for u in units if u[: level + 1] != path] + [path[:-1]] * level
  if not kept.size:
    return  # No data are left to build a tree of.
  sums = [
      mixture(tree, of, stages, clip, gradient)
      for tree, of in ((whole, every), (built(kept, fewer), kept))
  ]

  def of_node(node):
    leaves = exact.clip_units(node, depth)
    return gradient(tuple(sorted(int(order[n[1]]) for n in leaves)))

  # The neighbour that is built is the one that the proof has.
  described = plan.SamplingPlan(stages, allow_short_units=True)
  proved = exact.divergences(
      exact.pair(whole, described, level, unit), clip, of_node, epsilon, z
  )
  bound = claimed(whole, stages, clip, whole.levels[level], epsilon, z)
  truth = dict(zip(BOTH, both_ways(sums, epsilon, z)))
  for direction in BOTH:
    assert truth[direction] == pytest.approx(proved[direction], abs=1e-12)
    assert truth[direction] <= bound[direction] + 1e-9
