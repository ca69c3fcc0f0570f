"""How many steps a run may take: fixed before it starts, never by its data."""

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.training import errors


def planned_steps(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    steps: int,
    delta: float,
    target_epsilon: float | None = None,
    level: str | None = None,
) -> int:
  """The steps asked for, or fewer where the target would be passed.

  Args:
    hierarchy: what is sampled.
    plan: how.
    mechanism: what is released.
    steps: the number asked for, at least 1.
    delta: of the guarantee.
    target_epsilon: the budget, or None for no limit.
    level: the level whose guarantee is limited; the primary level for None.

  Raises:
    RunError: steps below 1, or not even one step is within the target.
    UnsoundPlanError: the level has no guarantee.
  """
  if not isinstance(steps, int) or steps < 1:
    raise errors.RunError(
        f"steps={steps!r} must be a whole number of at least 1"
    )
  if target_epsilon is None:
    return steps
  level = level or hierarchy.levels[0]
  remedy = (
      f"raise noise_multiplier (now {mechanism.noise_multiplier}), sample less"
      " per step, or raise target_epsilon"
  )
  if not mechanism.noise_multiplier:
    raise errors.RunError(
        f"target_epsilon={target_epsilon} cannot be met without noise: {remedy}"
    )
  limit = accounting.max_steps(
      hierarchy,
      plan,
      mechanism,
      target_epsilon=target_epsilon,
      delta=delta,
      level=level,
      limit=steps,
  )
  if limit < 1:
    raise errors.RunError(
        f"target_epsilon={target_epsilon} at level '{level}' and delta={delta}"
        f" is passed by the first step: {remedy}"
    )
  return limit
