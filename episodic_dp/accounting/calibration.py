"""From a wanted epsilon to the noise, the steps or the tasks per step."""

from collections.abc import Callable
import dataclasses
import math

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.guarantee import AnyAccountant
from episodic_dp.accounting.guarantee import guarantee

_LARGEST = 2.0**40


def calibrate(
    release: plan_lib.Release,
    *,
    steps: int,
    epsilon: float,
    delta: float,
    level: str,
    accountant: AnyAccountant = "pld",
) -> plan_lib.Mechanism:
  """Find the noise multiplier that spends a wanted epsilon.

  Args:
    release: all but its noise multiplier is kept.
    steps: T, at least 1.
    epsilon: the epsilon asked for, > 0.
    delta: in (0, 1).
    level: the privacy unit.
    accountant: how steps are composed.

  Returns:
    The release's mechanism with a `noise_multiplier` for which the epsilon is
    at most the one asked for, and at least 99 % of it.

  Raises:
    PlanError: a value is out of range, or no noise reaches epsilon because
      delta is below the sampler's error.
    UnsoundPlanError: no guarantee is proved for the combination.

  Examples:
    >>> import math
    >>> from episodic_dp import accounting, plan
    >>> r = plan.Release(
    ...     plan.Hierarchy.regular((1000,), levels=("user",)),
    ...     plan.SamplingPlan((plan.Poisson(0.05),)),
    ...     plan.Mechanism(clip_unit="user", noise_multiplier=1.0),
    ... )
    >>> m = accounting.calibrate(
    ...     r, steps=100, epsilon=2.0, delta=1e-5, level="user"
    ... )
    >>> math.ceil(100 * m.noise_multiplier) / 100
    1.35
  """
  if not (epsilon > 0 and math.isfinite(epsilon)):
    raise plan_lib.PlanError(
        f"epsilon {epsilon!r} must be a positive finite number"
    )
  mechanism = release.mechanism
  report.refuse_un_noised(mechanism)
  # Where a count takes a part of the noise, the search may try multipliers that
  # have no room for it.
  fixed = mechanism.with_fixed_norm

  def reached(z: float) -> float:
    return guarantee(
        release.replace(
            mechanism=dataclasses.replace(fixed, noise_multiplier=z)
        ),
        steps=steps, delta=delta, level=level, accountant=accountant,
    ).epsilon

  # low reaches more than asked, high at most.
  high = mechanism.noise_multiplier or 1.0
  value = reached(high)
  if value > epsilon:
    while value > epsilon:
      low, value_low = high, value
      high *= 2
      if high > _LARGEST:
        raise plan_lib.PlanError(
            f"no noise reaches epsilon {epsilon:g} at delta {delta:g}: delta is"
            " too small for the number of steps; use a larger delta"
        )
      value = reached(high)
  else:
    low, value_low = high, value
    while value_low <= epsilon:
      high, value = low, value_low
      low /= 2
      if low < 1 / _LARGEST:
        return dataclasses.replace(mechanism, noise_multiplier=high)
      value_low = reached(low)
  while value < 0.992 * epsilon and high > low * (1 + 1e-9):
    # Epsilon is close to a power of z: aim a little below the asked value.
    middle = math.sqrt(low * high)
    if 0 < value and value_low < math.inf:
      slope = math.log(value_low / value) / math.log(low / high)
      guess = high * (0.997 * epsilon / value) ** (1 / slope)
      margin = 0.05 * (high - low)
      if low + margin < guess < high - margin:
        middle = guess
      elif guess >= high - margin:
        middle = high - margin
      else:
        middle = low + margin
    value_middle = reached(middle)
    if value_middle > epsilon:
      low, value_low = middle, value_middle
    else:
      high, value = middle, value_middle
  return dataclasses.replace(mechanism, noise_multiplier=high)


def max_steps(
    release: plan_lib.Release,
    *,
    target_epsilon: float,
    delta: float,
    level: str,
    limit: int = 10**7,
    accountant: AnyAccountant = "pld",
) -> int:
  """Find the most steps whose epsilon is at most the target (0: none).

  Args:
    release: what a step samples and releases.
    target_epsilon: at least 0.
    delta: in (0, 1).
    level: the privacy unit.
    limit: the largest answer.
    accountant: how steps are composed.

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: a value is out of range.
  """
  if not target_epsilon >= 0:
    raise plan_lib.PlanError(
        f"target_epsilon {target_epsilon!r} must be at least 0"
    )
  report.refuse_un_noised(release.mechanism)

  def reached(t: int) -> float:
    return guarantee(
        release, steps=t, delta=delta, level=level, accountant=accountant
    ).epsilon

  if math.isinf(target_epsilon):
    return limit
  low, at_low = 1, reached(1)
  if at_low > target_epsilon:
    return 0
  high, at_high = low, at_low
  while at_high <= target_epsilon:
    low, at_low = high, at_high
    if high >= limit:
      return limit
    # Epsilon grows about as the square root of the steps, or faster.
    ratio = target_epsilon / at_low if at_low > 0 else 4.0
    high = min(limit, math.ceil(high * min(max(1.1 * ratio**2, 2.0), 64.0)))
    at_high = reached(high)
  turn = 0
  while high - low > 1:
    middle = _between(low, at_low, high, at_high, target_epsilon, turn)
    turn += 1
    value = reached(middle)
    if value <= target_epsilon:
      low, at_low = middle, value
    else:
      high, at_high = middle, value
  return low


def _between(
    low: int, at_low: float, high: int, at_high: float, target: float, turn: int
) -> int:
  """Guess the steps at which epsilon reaches the target.

  Between low and high epsilon is taken for a power of the steps.
  """
  middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
  if 0 < at_low < target < at_high < math.inf and turn % 4 < 3:
    share = math.log(target / at_low) / math.log(at_high / at_low)
    middle = low * (high / low) ** share
    # Overstep by turns, so that the bracket closes from both sides.
    middle += (high - low) * 0.02 * (1 if turn % 2 else -1)
  return min(max(round(middle), low + 1), high - 1)


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
    PlanError: steps below 1, or not even one step is within the target.
    UnsoundPlanError: the level has no guarantee.
  """
  if not isinstance(steps, int) or steps < 1:
    raise plan_lib.PlanError(
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
    raise plan_lib.PlanError(
        f"target_epsilon={target_epsilon} cannot be met without noise: {remedy}"
    )
  limit = max_steps(
      release,
      target_epsilon=target_epsilon,
      delta=delta,
      level=level,
      limit=steps,
  )
  if limit < 1:
    raise plan_lib.PlanError(
        f"target_epsilon={target_epsilon} at level '{level}' and delta={delta}"
        f" is passed by the first step: {remedy}"
    )
  return limit


def max_tasks(
    release: plan_lib.Release,
    *,
    steps: int,
    target_epsilon: float,
    delta: float,
    level: str,
    accountant: AnyAccountant = "pld",
) -> plan_lib.SamplingPlan:
  """Find the most tasks per step whose epsilon is within the target.

  Args:
    release: all but the size of its plan's first stage (or, for form
      "independent", its number of tasks) is kept.
    steps: T, at least 1.
    target_epsilon: above 0.
    delta: in (0, 1).
    level: the privacy unit.
    accountant: how steps are composed.

  Returns:
    The plan with the largest `FixedSize(n)` or number of tasks, or with a
    `Poisson(p)` whose epsilon is at least 99 % of the target; see
    `plan.tasks_per_step`.

  Raises:
    PlanError: not even one task per step is within the target, or the first
      stage has no size to choose.
    UnsoundPlanError: no guarantee is proved for the combination.
  """
  if not target_epsilon > 0:
    raise plan_lib.PlanError(
        f"target_epsilon {target_epsilon!r} must be positive"
    )

  def reached(candidate: plan_lib.SamplingPlan) -> float:
    return guarantee(
        release.replace(plan=candidate),
        steps=steps, delta=delta, level=level, accountant=accountant,
    ).epsilon

  hierarchy, plan = release.hierarchy, release.plan
  stage, episode = plan.stages[0], plan.episode
  if isinstance(stage, plan_lib.Poisson):
    return _largest_rate(plan, reached, target_epsilon)
  if not isinstance(stage, plan_lib.FixedSize):
    raise plan_lib.PlanError(
        f"the first stage {stage} has no number of tasks to choose: use"
        " Poisson(p) or FixedSize(n)"
    )
  independent = episode is not None and episode.form == "independent"
  unit, limit = 1, hierarchy.num_units(0)
  if independent:
    limit = 2**20
  elif episode is not None and episode.form == "disjoint":
    # Drawn classes are cut into tasks of `way`.
    inner = plan_lib.tasks_per_step(hierarchy, plan) * episode.way / stage.n
    unit = episode.way // math.gcd(episode.way, round(inner))

  def sized(count: int) -> plan_lib.SamplingPlan:
    if independent:
      assert episode is not None
      return dataclasses.replace(
          plan, episode=dataclasses.replace(episode, tasks=count)
      )
    first = plan_lib.FixedSize(count * unit)
    return dataclasses.replace(plan, stages=(first, *plan.stages[1:]))

  low, high = 0, limit // unit
  step = 1
  while low < high:  # Gallop up, then halve.
    middle = min(low + step, high)
    if reached(sized(middle)) <= target_epsilon:
      low, step = middle, 2 * step
    else:
      high, step = middle - 1, max((middle - 1 - low + 1) // 2, 1)
  if low == 0:
    raise plan_lib.PlanError(
        f"target_epsilon {target_epsilon:g} is passed with one task per step:"
        " raise noise_multiplier or take fewer steps"
    )
  return sized(low)


def _largest_rate(
    plan: plan_lib.SamplingPlan,
    reached: Callable[[plan_lib.SamplingPlan], float],
    target: float,
) -> plan_lib.SamplingPlan:
  """Find the largest Poisson rate of the first stage within the target."""

  def at(rate: float) -> tuple[plan_lib.SamplingPlan, float]:
    first = plan_lib.Poisson(rate)
    found = dataclasses.replace(plan, stages=(first, *plan.stages[1:]))
    return found, reached(found)

  best, value = at(1.0)
  if value <= target:
    return best
  low, high = 1e-12, 1.0
  best, value = at(low)
  if value > target:
    raise plan_lib.PlanError(
        f"target_epsilon {target:g} is passed at every rate: raise"
        " noise_multiplier or take fewer steps"
    )
  while value < 0.99 * target and high > low * (1 + 1e-9):
    middle = math.sqrt(low * high)
    found, at_middle = at(middle)
    if at_middle <= target:
      low, best, value = middle, found, at_middle
    else:
      high = middle
  return best
