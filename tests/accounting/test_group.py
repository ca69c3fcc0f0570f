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


@pytest.mark.parametrize(
    "stage", [plan.Poisson(0.3), plan.FixedSize(2), plan.All()]
)
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
  release = release_of((400, 5), (plan.FixedSize(8), plan.Poisson(0.3)))
  for level in release.levels:
    found = [
        accounting.guarantee(
            release, steps=20, level=level, delta=1e-5, group=group
        ).epsilon
        for group in (1, 2, 4)
    ]
    assert found == sorted(found) and found[0] == accounting.guarantee(
        release, steps=20, level=level, delta=1e-5
    ).epsilon


def test_units_that_leave_raise_the_rate_of_those_that_stay():
  few, many = (
      accounting.guarantee(
          release_of((n,), (plan.FixedSize(5),), z=5.0), steps=10, level="user",
          delta=1e-5, group=5,
      ).epsilon
      for n in (10, 10**6)
  )
  poisson = accounting.guarantee(
      release_of((10,), (plan.Poisson(0.5),), z=5.0), steps=10, level="user",
      delta=1e-5, group=5,
  ).epsilon
  assert many < poisson < few


def test_what_is_not_proved_for_a_group_is_refused():
  task = plan.Episode(way=1, shot=1, query=1)
  release = release_of(
      (10, 4), (plan.FixedSize(4), plan.FixedSize(2)), episode=task
  )
  asked = dict(steps=1, level="user", delta=1e-5)
  with pytest.raises(plan.UnsoundPlanError, match="a group of 6 or fewer"):
    accounting.guarantee(release, group=7, **asked)
  with pytest.raises(plan.UnsoundPlanError, match="add-or-remove"):
    accounting.guarantee(
        release, group=2, neighbours="replace-one", **asked
    )
  for group in (0, 1.5, True, 10**7):
    with pytest.raises(plan.PlanError, match="group"):
      accounting.guarantee(release, group=group, **asked)
  silent = release_of((10,), (plan.All(),), z=0.0)
  assert math.isinf(accounting.guarantee(silent, group=3, **asked).epsilon)


def test_classes_of_crossing_levels_are_refused():
  diagnoses = [d for d in range(6) for _ in range(8)]
  patients = [p % 20 for d in range(6) for p in range(5 * d, 5 * d + 8)]
  release = plan.Release(
      plan.Hierarchy.from_labels(
          {"diagnosis": diagnoses, "patient": patients},
          leaf="image", crossing="patient",
      ),
      plan.SamplingPlan(
          (plan.FixedSize(3), plan.FixedSize(2), plan.FixedSize(1)),
          plan.Episode(
              way=3, shot=1, query=1, form="independent", tasks=3,
              classes="diagnosis",
          ),
      ),
      plan.Mechanism(clip_unit=plan.EPISODE, noise_multiplier=2.0),
  )
  with pytest.raises(plan.UnsoundPlanError, match="several diagnosis units"):
    accounting.guarantee(
        release, steps=1, level="patient", delta=1e-5, group=2
    )
