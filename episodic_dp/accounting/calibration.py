"""Calibration: from a target epsilon to the noise, the steps or the tasks."""

from collections.abc import Callable
import dataclasses
import functools
import math

from episodic_dp import _validate
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.guarantee import AnyAccountant
from episodic_dp.accounting.guarantee import guarantee
from episodic_dp.errors import PlanError

_LARGEST_NOISE, _SMALLEST_RATE, _MOST_TASKS = 2.0**40, 1e-12, 2**20
# The resulting epsilon is at least this share of the target; the search aims
# slightly below the target.
_SHARE, _AIM = 0.992, 0.997


def calibrate(
    release: plan_lib.Release,
    *,
    steps: int,
    epsilon: float,
    delta: float,
    level: str,
    accountant: AnyAccountant = "pld",
    neighbours: report.Relation = "add-or-remove",
    allow_no_noise: bool = False,
) -> plan_lib.Mechanism:
  """Find the noise multiplier that spends a target epsilon.

  Args:
    release: the release; only its noise multiplier changes.
    steps: T, at least 1.
    epsilon: the target, > 0.
    delta: in (0, 1).
    level: the privacy unit.
    accountant: composes the steps; "pld", "rdp", "moments" or an `Accountant`.
    neighbours: the relation, as in `guarantee`.
    allow_no_noise: whether to return almost no noise if delta is as large as
      the probability that the run samples one unit at all.

  Returns:
    The release's mechanism with a `noise_multiplier` for which epsilon is at
    most the target, and at least 99 % of it.

  Raises:
    PlanError: a value is out of range; or no noise reaches epsilon because
      delta is below the sampler's error; or every noise does, because delta is
      so large.
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
  _validate.positive("epsilon", epsilon)
  mechanism = release.mechanism
  report.refuse_un_noised(mechanism)
  if math.isinf(mechanism.clip_norm):
    raise _validate.refusal(
        "clip_norm", mechanism.clip_norm,
        "a finite number, without which no noise reaches an epsilon (in a"
        " command leave private=0 out, or set --config.mechanism.clip_norm=1)",
    )
  # With a noised count, the search may try multipliers that are too small for
  # the count's noise.
  fixed = mechanism.with_fixed_norm

  def reached(inverse: float) -> float:
    tried = dataclasses.replace(fixed, noise_multiplier=1 / inverse)
    return guarantee(
        release.replace(mechanism=tried),
        steps=steps, delta=delta, level=level, accountant=accountant,
        neighbours=neighbours,
    ).epsilon

  found = _largest(
      reached, epsilon, 1 / (mechanism.noise_multiplier or 1.0),
      1 / _LARGEST_NOISE, _LARGEST_NOISE,
  )
  if found is None:
    raise PlanError(
        f"no noise reaches epsilon={epsilon:g} at delta={delta:g}: delta is"
        " too small for the number of steps; use a larger delta"
    )
  if found >= _LARGEST_NOISE and not allow_no_noise:
    raise PlanError(
        f"delta={delta:g} is at least the probability that {steps} steps sample"
        f" one unit of level '{level}' at all, so no noise is needed and the"
        " data of sampled units would be published: use a delta much smaller"
        " than one over the number of units (in Python, allow_no_noise=True"
        " accepts it)"
    )
  return dataclasses.replace(mechanism, noise_multiplier=1 / found)


def max_steps(
    release: plan_lib.Release,
    *,
    target_epsilon: float,
    delta: float,
    level: str,
    limit: int = 10**7,
    accountant: AnyAccountant = "pld",
    neighbours: report.Relation = "add-or-remove",
) -> int:
  """Find the largest number of steps within a target epsilon (0: none).

  Args:
    release: the release of a step.
    target_epsilon: at least 0.
    delta: in (0, 1).
    level: the privacy unit.
    limit: the largest answer.
    accountant: composes the steps.
    neighbours: the relation, as in `guarantee`.

  Returns:
    The number of steps, at most `limit`.

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: a value is out of range.
  """
  _validate.count("limit", limit, 1)
  if math.isinf(target_epsilon):
    return limit
  _validate.positive("target_epsilon", target_epsilon, zero=True)
  report.refuse_un_noised(release.mechanism)

  def reached(t: float) -> float:
    return guarantee(
        release, steps=int(t), delta=delta, level=level, accountant=accountant,
        neighbours=neighbours,
    ).epsilon

  found = _largest(reached, target_epsilon, 1, 1, limit, whole=True)
  return 0 if found is None else int(found)


def max_tasks(
    release: plan_lib.Release,
    *,
    steps: int,
    target_epsilon: float,
    delta: float,
    level: str,
    accountant: AnyAccountant = "pld",
    neighbours: report.Relation = "add-or-remove",
) -> plan_lib.SamplingPlan:
  """Find the most tasks per step within a target epsilon.

  Args:
    release: the release; only the size of its plan's first stage changes (or,
      for form "independent", its number of tasks).
    steps: T, at least 1.
    target_epsilon: above 0.
    delta: in (0, 1).
    level: the privacy unit.
    accountant: composes the steps.
    neighbours: the relation, as in `guarantee`.

  Returns:
    The plan with the largest `FixedSize(n)` or number of tasks, or with a
    `Poisson(p)` whose epsilon is at least 99 % of the target; see
    `plan.tasks_per_step`.

  Raises:
    PlanError: even one task per step exceeds the target, or the first stage has
      no size to choose.
    UnsoundPlanError: no guarantee is proved for the combination.
  """
  _validate.positive("target_epsilon", target_epsilon)
  plan = release.plan
  stage = plan.stages[0]
  whole = isinstance(stage, plan_lib.FixedSize)
  if not whole and not isinstance(stage, plan_lib.Poisson):
    raise PlanError(
        f"the first stage {stage} has no number of tasks to choose: use"
        " Poisson(p) or FixedSize(n)"
    )
  unit, least, most = 1, _SMALLEST_RATE, 1.0
  if isinstance(stage, plan_lib.FixedSize):
    if plan.form == "disjoint":
      # Sampled classes are cut into tasks of `way`.
      way, tasks = plan.task_form.way, release.drawn_per_step
      unit = way // math.gcd(way, round(tasks * way / stage.n))
    least, most = 1, release.hierarchy.num_units(0) // unit
  if plan.repeats:
    most = _MOST_TASKS

  def sized(count: float) -> plan_lib.SamplingPlan:
    if plan.repeats:
      episode = dataclasses.replace(plan.task_form, tasks=int(count))
      return dataclasses.replace(plan, episode=episode)
    first: plan_lib.Stage
    if whole:
      first = plan_lib.FixedSize(int(count) * unit)
    else:
      first = plan_lib.Poisson(count)
    return dataclasses.replace(plan, stages=(first, *plan.stages[1:]))

  def reached(count: float) -> float:
    return guarantee(
        release.replace(plan=sized(count)),
        steps=steps, delta=delta, level=level, accountant=accountant,
        neighbours=neighbours,
    ).epsilon

  found = _largest(reached, target_epsilon, least, least, most, whole=whole)
  if found is None:
    raise PlanError(
        f"target_epsilon={target_epsilon:g} is exceeded with the fewest tasks:"
        " raise noise_multiplier or take fewer steps"
    )
  return sized(found)


def _largest(
    reached: Callable[[float], float],
    target: float,
    start: float,
    lowest: float,
    highest: float,
    *,
    whole: bool = False,
) -> float | None:
  """Find approximately the largest argument whose value is at most a target.

  Args:
    reached: an increasing function.
    target: above 0.
    start: the first argument to try.
    lowest: the smallest argument.
    highest: the largest argument.
    whole: whether arguments are whole numbers; then the answer is exact.

  Returns:
    The argument; None if the lowest argument exceeds the target.
  """
  value = functools.cache(reached)
  low = high = start
  while value(high) <= target:
    if high >= highest:
      return high
    low, grown = high, 2 * high
    if whole:  # Epsilon grows about as the square root of steps, or faster.
      ratio = target / value(low) if value(low) > 0 else 8.0
      grown = math.ceil(low * min(max(ratio**2, 2.0), 64.0))
    high = min(highest, grown)
  while value(low) > target:
    if low <= lowest:
      return None
    low, high = low / 2, low
  turn = 0

  def apart() -> bool:
    if whole:
      return high - low > 1
    return value(low) < _SHARE * target and high > low * (1 + 1e-9)

  while apart():
    middle = _between(
        low, value(low), high, value(high), target, turn, whole
    )
    turn += 1
    if value(middle) <= target:
      low = middle
    else:
      high = middle
  return low


def _between(
    low: float, at_low: float, high: float, at_high: float, target: float,
    turn: int, whole: bool,
) -> float:
  """Guess the argument that reaches the target: values are near powers."""
  middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
  if 0 < at_low < target < at_high < math.inf and turn % 4 < 3:
    aim = target if whole else _AIM * target
    share = math.log(max(aim / at_low, 1.0)) / math.log(at_high / at_low)
    middle = low * (high / low) ** share
  if whole:  # Overshoot in turns, so that the bracket closes from both sides.
    middle += (high - low) * 0.02 * (1 if turn % 2 else -1)
    return min(max(round(middle), low + 1), high - 1)
  margin = 0.05 * (high - low)
  return min(max(middle, low + margin), high - margin)
