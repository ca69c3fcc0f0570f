"""How many steps a run may take: fixed before it starts, never by its data."""

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.training import errors


def planned_steps(
    release: plan_lib.Release,
    *,
    steps: int,
    delta: float,
    target_epsilon: float | None = None,
    level: str | None = None,
) -> int:
  """The steps asked for, or fewer where the target would be passed.

  Args:
    release: what a step samples and releases.
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
  level, noise = level or release.levels[0], release.mechanism.noise_multiplier
  remedy = (
      f"raise noise_multiplier (now {noise}), sample less"
      " per step, or raise target_epsilon"
  )
  if not noise:
    raise errors.RunError(
        f"target_epsilon={target_epsilon} cannot be met without noise: {remedy}"
    )
  limit = accounting.max_steps(
      release,
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
