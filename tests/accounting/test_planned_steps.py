"""The budget is met before the run starts."""

import pytest

from episodic_dp import accounting
from episodic_dp import plan

HIERARCHY = plan.Hierarchy.regular((500, 5, 4), levels=("user", "class", "x"))
PLAN = plan.SamplingPlan(
    (plan.Poisson(0.1), plan.FixedSize(3), plan.FixedSize(2))
)


def release_of(first=PLAN.stages[0]):
  return plan.Release(
      HIERARCHY,
      plan.SamplingPlan((first, *PLAN.stages[1:])),
      plan.Mechanism(clip_unit="user", noise_multiplier=1.0),
  )


def _planned(steps, release=None, **options):
  return accounting.planned_steps(
      release or release_of(), steps=steps, delta=1e-5, **options
  )


def epsilon_of(steps, level="user", release=None):
  return accounting.guarantee(
      release or release_of(), steps=steps, level=level, delta=1e-5
  ).epsilon


@pytest.mark.parametrize("level", [None, "class"])
def test_stops_at_the_last_step_within_the_target(level):
  steps = _planned(1000, target_epsilon=2.0, level=level)
  reached, passed = (
      epsilon_of(n, level or "user") for n in (steps, steps + 1)
  )
  assert 1 <= steps < 1000
  assert reached <= 2.0 < passed


def test_a_budget_may_end_inside_a_pass():
  """Each user once in 20 steps: two passes, and a part of the third."""
  passes = release_of(plan.RandomAllocation(20))
  two, part, three = (epsilon_of(n, release=passes) for n in (40, 50, 60))
  assert _planned(200, passes, target_epsilon=part) == 50
  assert two < part < three


def test_a_target_below_one_step_is_an_error():
  with pytest.raises(plan.PlanError, match="passed by the first step"):
    _planned(10, target_epsilon=0.01)


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_steps_must_be_a_whole_number(steps):
  with pytest.raises(plan.PlanError, match="whole number"):
    _planned(steps)
