"""Sampling plans a little off a given one: other tasks, another stage."""

import dataclasses

import numpy as np

from episodic_dp import plan as plan_lib


def expected_tasks(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> float:
  """The expected tasks (without an episode: primary units) of a step."""
  if plan.episode is not None:
    return plan_lib.tasks_per_step(hierarchy, plan)
  units = hierarchy.num_units(0)
  return units * float(plan.stages[0].rate(np.asarray([units]))[0])


def with_more_tasks(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, factor: float
) -> plan_lib.SamplingPlan | None:
  """The plan with about `factor` times the tasks, or None."""
  stage, episode = plan.stages[0], plan.episode
  try:
    if episode is not None and episode.form == "independent":
      assert episode.tasks is not None
      tasks = max(1, round(episode.tasks * factor))
      return dataclasses.replace(
          plan, episode=dataclasses.replace(episode, tasks=tasks)
      )
    other: plan_lib.Stage
    if isinstance(stage, plan_lib.Poisson):
      other = plan_lib.Poisson(stage.p * factor)
    elif isinstance(stage, plan_lib.FixedSize):
      disjoint = episode is not None and episode.form == "disjoint"
      unit = episode.way if episode is not None and disjoint else 1
      other = plan_lib.FixedSize(unit * max(1, round(stage.n * factor / unit)))
    elif isinstance(stage, plan_lib.RandomAllocation):
      other = plan_lib.RandomAllocation(max(1, round(stage.steps / factor)))
    else:
      return None
    return _with_first_stage(hierarchy, plan, other)
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
    return None


def with_other_sampler(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> plan_lib.SamplingPlan | None:
  """The plan with tasks by FixedSize in place of Poisson, or the reverse."""
  stage, units = plan.stages[0], hierarchy.num_units(0)
  other: plan_lib.Stage
  try:
    if isinstance(stage, plan_lib.Poisson):
      other = plan_lib.FixedSize(max(1, round(stage.p * units)))
    elif isinstance(stage, plan_lib.FixedSize):
      other = plan_lib.Poisson(min(1.0, stage.n / units))
    else:
      return None
    return _with_first_stage(hierarchy, plan, other)
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
    return None


def _with_first_stage(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    stage: plan_lib.Stage,
) -> plan_lib.SamplingPlan:
  """The plan with another first stage; PlanError where that does not fit."""
  result = dataclasses.replace(plan, stages=(stage, *plan.stages[1:]))
  plan_lib.validate(hierarchy, result)
  return result
