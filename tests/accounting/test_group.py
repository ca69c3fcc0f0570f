"""Groups: above the truth, growing with the group, refused where unproved."""

import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from tests.oracles import exact


def release_of(sizes, stages, clip="user", z=1.0, episode=None):
  levels = ("user", "image")[: len(sizes)]
  return plan.Release(
      plan.Hierarchy.regular(sizes, levels=levels),
      plan.SamplingPlan(stages, episode),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z),
  )


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("group", [2, 5, 30])
def test_gaussians_of_a_group_cost_no_less_than_one_that_far(group, steps):
  release = release_of((100,), (plan.All(),), z=20.0)
  asked = dict(steps=steps, level="user", group=group)
  found = accounting.guarantee(release, delta=1e-5, **asked)
  whole = base.GaussianCurve(group / 20.0 * steps**0.5)
  truth = whole.epsilon(1e-5)
  assert truth <= found.epsilon <= 4 * truth + 0.1
  at = accounting.guarantee(release, epsilon=found.epsilon, **asked).delta
  assert at <= 1e-5 * (1 + 1e-6)
  assert at >= whole.delta(found.epsilon)
  assert f"up to {group} units" in found.neighbours


@pytest.mark.parametrize("stage", [plan.Poisson(0.3), plan.All()])
@pytest.mark.parametrize("group", [2, 3])
def test_the_bound_is_above_an_enumerated_group(stage, group):
  release = release_of((6,), (stage,), z=1.5)
  h, stages = release.hierarchy, release.plan.stages
  root = smaller = exact.tree(h)
  for unit in range(group):
    smaller = exact.without(smaller, 0, unit)
  drawn = exact.samples(root, stages), exact.samples(smaller, stages)
  for rest in (-1.0, 0.0, 1.0):
    pair = [
        exact.mixture(d, 0, lambda u, rest=rest: 1 if u[1] < group else rest)
        for d in drawn
    ]
    for epsilon in (0.3, 1.0, 3.0):
      truth = max(
          exact.hockey_stick(p, q, math.exp(epsilon), 1.5)
          for p, q in (pair, pair[::-1])
      )
      bound = accounting.guarantee(
          release, steps=1, level="user", epsilon=epsilon, group=group
      ).delta
      assert truth <= bound + 1e-12


def test_it_grows_with_the_group_and_one_is_the_guarantee_itself():
  release = release_of((400, 5), (plan.Poisson(0.02), plan.Poisson(0.3)))
  for level in release.levels:
    asked = dict(steps=20, level=level, delta=1e-5)
    found = [
        accounting.guarantee(release, group=group, **asked).epsilon
        for group in (1, 2, 4)
    ]
    assert found == sorted(found)
    assert found[0] == accounting.guarantee(release, **asked).epsilon
    replaced = accounting.guarantee(release, neighbours="replace-one", **asked)
    assert replaced.epsilon <= found[1]


def test_groups_without_a_bound_are_refused():
  asked = dict(steps=1, level="user", delta=1e-5)
  fixed = release_of((10, 4), (plan.FixedSize(4), plan.Poisson(0.5)))
  with pytest.raises(plan.UnsoundPlanError, match="more often once one"):
    accounting.guarantee(fixed, group=2, **asked)
  poisson = release_of((10,), (plan.Poisson(0.5),))
  with pytest.raises(plan.UnsoundPlanError, match="add-or-remove"):
    accounting.guarantee(
        poisson, group=2, neighbours="replace-one", **asked
    )
  for group in (0, 1.5, True, 10**7):
    with pytest.raises(plan.PlanError, match="group"):
      accounting.guarantee(poisson, group=group, **asked)
  silent = release_of((10,), (plan.All(),), z=0.0)
  assert math.isinf(accounting.guarantee(silent, group=3, **asked).epsilon)
