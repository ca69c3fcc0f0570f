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
from episodic_dp.accounting.reference import exact

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


def divergences(labels, units, removed, stages, clip, gradient, epsilon, z):
  """What one step on the data tells of a row: both trees built from labels."""
  every = np.arange(len(next(iter(labels.values()))))
  found = []
  for rows in (every, np.delete(every, removed)):
    tree = plan.Hierarchy.from_labels(
        {name: values[rows] for name, values in labels.items()}, units=units
    )
    found.append(mixture(tree, rows, stages, clip, gradient))
  alpha = math.exp(epsilon)
  return {
      "remove": exact.hockey_stick(*found, alpha, z),
      "add": exact.hockey_stick(*reversed(found), alpha, z),
  }


def claimed(labels, units, stages, clip, epsilon, z):
  h = plan.Hierarchy.from_labels(labels, units=units)
  release = plan.Release(
      h,
      plan.SamplingPlan(stages, allow_short_units=True),
      plan.Mechanism(clip_unit=h.levels[clip], noise_multiplier=z),
  )
  kinds = accounting.unit_profiles(release, "example")
  at = np.asarray([epsilon])
  return {d: float(unit_profile.profile(kinds, at, d)[0]) for d in BOTH}


def test_the_counterexample():
  """A single record of class A beside four of class B."""
  labels = {"class": np.asarray(list("ABBBB"))}
  stages = (plan.FixedSize(1), plan.All())
  case = (0, stages, 1, lambda rows: -1.0 if rows == (0,) else 1.0, 2.0, 2.0)
  bound = claimed(labels, None, stages, 1, 2.0, 2.0)
  assert max(bound.values()) == pytest.approx(4.7e-6, rel=0.01)
  read_off = divergences(labels, None, *case)
  assert max(read_off.values()) == pytest.approx(0.216, abs=5e-4)
  declared = divergences(labels, ["A", "B"], *case)
  assert max(declared.values()) <= max(bound.values())
  h = plan.Hierarchy.from_labels(labels)
  release = plan.Release(
      h,
      plan.SamplingPlan(stages),
      plan.Mechanism(clip_unit="example", noise_multiplier=2.0),
  )
  assumed = accounting.guarantee(
      release, steps=1, delta=1e-5, level="example"
  ).assumptions
  assert any("stays when a unit is emptied" in line for line in assumed)


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


@pytest.mark.parametrize("seed", range(60))
def test_random_trees_with_empty_units(seed):
  rng = np.random.default_rng(seed)
  rows, depth = int(rng.integers(2, 6)), int(rng.integers(1, 3))
  labels = {f"level{k}": rng.integers(0, 3, rows) for k in range(depth)}
  units = list(zip(*(values.tolist() for values in labels.values())))
  units += [tuple(rng.integers(0, 4, depth).tolist()) for _ in range(2)]
  if depth == 2:
    units.append((int(rng.integers(0, 5)),))  # Perhaps with nothing at all.
  stages = tuple(STAGES[i] for i in rng.integers(0, 4, depth + 1))
  clip, removed = int(rng.integers(0, depth + 1)), int(rng.integers(rows))
  epsilon, z = float(rng.uniform(0, 1.5)), float(rng.uniform(0.5, 2))
  values = {}

  def gradient(drawn):
    return values.setdefault(drawn, float(rng.choice([-1.0, 1.0, 0.5])))

  truth = divergences(
      labels, units, removed, stages, clip, gradient, epsilon, z
  )
  h = plan.Hierarchy.from_labels(labels, units=units)
  order = np.arange(rows) if h.leaf_rows is None else h.leaf_rows
  leaf = order.tolist().index(removed)

  def of_node(node):
    leaves = exact.clip_units(node, depth)
    return gradient(tuple(sorted(int(order[n[1]]) for n in leaves)))

  # The neighbour that is built is the one that the proof has.
  whole = plan.SamplingPlan(stages, allow_short_units=True)
  proved = exact.divergences(
      exact.pair(h, whole, depth, leaf), clip, of_node, epsilon, z
  )
  bound = claimed(labels, units, stages, clip, epsilon, z)
  for direction in BOTH:
    assert truth[direction] == pytest.approx(proved[direction], abs=1e-12)
    assert truth[direction] <= bound[direction] + 1e-9
