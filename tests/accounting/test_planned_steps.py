"""The budget is met before the run starts."""

import pytest

from episodic_dp import accounting
from episodic_dp import plan

HIERARCHY = plan.Hierarchy.regular((500, 5, 4), levels=("user", "class", "x"))
PLAN = plan.SamplingPlan(
    (plan.Poisson(0.1), plan.FixedSize(3), plan.FixedSize(2))
)


def _planned(steps, z=1.0, **options):
  mechanism = plan.Mechanism(clip_unit="user", noise_multiplier=z)
  return accounting.planned_steps(
    plan.Release(HIERARCHY, PLAN, mechanism), steps=steps, delta=1e-5, **options
  )


@pytest.mark.parametrize("level", [None, "class"])
def test_stops_at_the_last_step_within_the_target(level):
  steps = _planned(1000, target_epsilon=2.0, level=level)
  mechanism = plan.Mechanism(clip_unit="user", noise_multiplier=1.0)
  reached, passed = accounting.epsilon_curve(
      plan.Release(HIERARCHY, PLAN, mechanism),
      steps=[steps, steps + 1],
      delta=1e-5,
      level=level or "user",
  )
  assert 1 <= steps < 1000
  assert reached <= 2.0 < passed


def test_a_budget_may_end_inside_a_pass():
  """Each user once in 20 steps: two passes, and a part of the third."""
  passes = plan.SamplingPlan((plan.RandomAllocation(20), *PLAN.stages[1:]))
  mechanism = plan.Mechanism(clip_unit="user", noise_multiplier=1.0)
  run = dict(delta=1e-5)
  third = accounting.guarantee(
      plan.Release(HIERARCHY, passes, mechanism), steps=50, level="user", **run
  ).epsilon
  steps = accounting.planned_steps(
    plan.Release(HIERARCHY, passes, mechanism),
    steps=200,
    target_epsilon=third,
    **run,
  )
  assert steps == 50
  per_pass = [
    accounting.guarantee(
      plan.Release(HIERARCHY, passes, mechanism), steps=n, level="user", **run
    ).epsilon
    for n in (40, 60)
  ]
  assert per_pass[0] < third < per_pass[1]


def test_a_target_below_one_step_is_an_error():
  with pytest.raises(plan.PlanError, match="passed by the first step"):
    _planned(10, target_epsilon=0.01)


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_steps_must_be_a_whole_number(steps):
  with pytest.raises(plan.PlanError, match="whole number"):
    _planned(steps)
