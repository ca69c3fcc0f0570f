"""The guarantee of a run, with the sentences that it rests on."""

from collections.abc import Sequence
import dataclasses
import decimal
import json
import math
from typing import Any

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import amplification
from episodic_dp.accounting import distances
from episodic_dp.accounting import pld
from episodic_dp.accounting import profile

ACCOUNTANTS = ("pld",)

# What every guarantee assumes; `assumptions` adds what a plan brings.
ASSUMED_THROUGHOUT = (
    "Every step draws a fresh independent sample (no epochs).",
    "The noised sum is divided by public constants only.",
    "The keys of sampling and noise stay secret.",
    "Noise is added exactly once, whatever the number of devices.",
    "Within every unit the drawn order is uniformly random.",
    "Checkpoints and hyperparameters are chosen on public data, or the choice"
    " costs epsilon of its own.",
    "Sizes of the hierarchy are public, and so are the plan and the mechanism.",
    "Sums and noise are floating-point numbers; their distance from real-valued"
    " Gaussian noise is not accounted for.",
    "Nothing else about the private data is released: no training loss or"
    " accuracy, no norm statistics, and the number of steps does not depend on"
    " them.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
  """(epsilon, delta)-differential privacy of one level of a hierarchy.

  Attributes:
    epsilon: the larger of the two directions; infinity for no guarantee.
    delta: as asked, errors of the sampler included.
    level: the privacy unit.
    neighbours: the relation, "add or remove one <level>".
    direction: the direction that needs the larger epsilon, "remove" for the
      divergence of the run with the unit from the run without it.
    epsilons: epsilon of each direction.
    accountant: how steps were composed.
    assumptions: sentences that the guarantee rests on.
    steps: the number of steps.
    inclusion_rate: eta, the largest probability that a step draws one unit.
    kinds: the rates and distances of the level's units.
    caveat: what the guarantee must not be mistaken for, to be said wherever it
      is printed, or "".
  """

  epsilon: float
  delta: float
  level: str
  neighbours: str
  direction: str
  accountant: str
  assumptions: tuple[str, ...]
  steps: int
  inclusion_rate: float
  epsilons: dict[str, float]
  kinds: profile.Kinds = ()
  caveat: str = ""

  @property
  def privacy_unit(self) -> str:
    """The level whose presence is protected."""
    return self.level

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON; an infinite epsilon is the string "inf"."""

    def number(value: float) -> float | str:
      return value if math.isfinite(value) else "inf"

    return {
        "level": self.level,
        "epsilon": number(self.epsilon),
        "delta": self.delta,
        "neighbours": self.neighbours,
        "direction": self.direction,
        "epsilons": {k: number(v) for k, v in self.epsilons.items()},
        "accountant": self.accountant,
        "steps": self.steps,
        "inclusion_rate": self.inclusion_rate,
        "units": [kind.as_dict() for kind in self.kinds],
        "caveat": self.caveat,
        "assumptions": list(self.assumptions),
    }

  def to_json(self) -> str:
    """`as_dict` as JSON text."""
    return json.dumps(self.as_dict(), indent=2, allow_nan=False)

  def __str__(self) -> str:
    if math.isinf(self.epsilon):
      return f"{self.level}: no formal guarantee (epsilon is infinite)"
    return (
        f"{self.level}: epsilon {rounded_up(self.epsilon)} at delta"
        f" {self.delta:g} ({self.neighbours}; {self.steps} steps;"
        f" {self.direction} direction; {self.accountant})"
        + (f". {self.caveat}" if self.caveat else "")
    )


def rounded_up(epsilon: float) -> str:
  """Epsilon with four digits, for people, never less than it is."""
  if math.isinf(epsilon):
    return "inf"
  context = decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)
  return f"{context.create_decimal(repr(float(epsilon))):f}"


def guarantee(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    steps: int,
    delta: float,
    level: str,
    accountant: str = "pld",
) -> Guarantee:
  """The guarantee of one level, both directions, errors of the sampler charged.

  Args:
    hierarchy: public sizes.
    plan: one stage per level.
    mechanism: clip unit and noise; without noise epsilon is infinite.
    steps: T, at least 1.
    delta: in (0, 1).
    level: the privacy unit.
    accountant: "pld".

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: a value is out of range, or plan and hierarchy disagree.
  """
  _check(steps, delta, accountant)
  kinds = kinds_of(hierarchy, plan, mechanism, level)
  epsilons = _epsilons(
      kinds, steps, delta, _sampling_error(hierarchy, plan)
  )
  direction = max(epsilons, key=lambda d: epsilons[d])
  return Guarantee(
      epsilon=epsilons[direction],
      delta=float(delta),
      level=level,
      neighbours=f"add or remove one {level}",
      direction=direction,
      accountant=accountant,
      assumptions=assumptions(hierarchy, plan, mechanism, level),
      steps=int(steps),
      inclusion_rate=plan_lib.inclusion_rate(hierarchy, plan, level),
      epsilons=epsilons,
      kinds=kinds,
      caveat=_caveat(hierarchy, level),
  )


def guarantees(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    steps: int,
    delta: float,
    accountant: str = "pld",
) -> dict[str, Guarantee]:
  """Level -> Guarantee, for every level that has one, in tree order.

  Raises:
    UnsoundPlanError: no level has one; the text is the first level's.
  """
  found = {}
  first: plan_lib.UnsoundPlanError | None = None
  for level in hierarchy.levels:
    try:
      found[level] = guarantee(
          hierarchy, plan, mechanism, steps=steps, delta=delta, level=level,
          accountant=accountant,
      )
    except plan_lib.UnsoundPlanError as e:
      first = first or e
  if not found and first is not None:
    raise first
  return found


def kinds_of(
    hierarchy, plan, mechanism, level
) -> tuple[amplification.Amplification, ...]:
  """`distances.kinds`, or () for a sound combination without noise."""
  if mechanism.noise_multiplier == 0:
    distances.refuse_unsound(hierarchy, plan, mechanism, level)
    return ()
  return distances.kinds(hierarchy, plan, mechanism, level)


def epsilon(
    q: float,
    p: float,
    distances: float | Sequence[float],  # pylint: disable=redefined-outer-name
    steps: int,
    delta: float,
    *,
    direction: amplification.Direction | None = None,
) -> float:
  """The bare formula: epsilon of one kind of unit, without a hierarchy.

  Args:
    q: the rate at which the unit's parent is chosen.
    p: the unit's own rate inside its parent.
    distances: (d_a, d_b) in noise standard deviations: how far the released sum
      is from both others when the parent is not chosen, and with the unit
      against without it. One number stands for both.
    steps: T, at least 1.
    delta: in (0, 1).
    direction: "remove" or "add"; None for the larger.

  Raises:
    PlanError: a value is out of range.
  """
  _check(steps, delta, "pld")
  pair = tuple(np.atleast_1d(np.asarray(distances, float)).tolist())
  if len(pair) not in (1, 2) or not all(d >= 0 for d in pair):
    raise plan_lib.PlanError(
        f"distances {distances!r} must be one number or (d_a, d_b), not"
        " negative"
    )
  for name, rate in (("q", q), ("p", p)):
    if not 0 <= rate <= 1:
      raise plan_lib.PlanError(f"{name}={rate!r} must lie between 0 and 1")
  if not all(map(math.isfinite, pair)):
    return math.inf if q * p > 0 else 0.0
  kind = amplification.Amplification(
      (float(q),), float(p), (pair[0],), pair[-1]
  )
  found = _epsilons((kind,), steps, delta, 0.0)
  if direction is None:
    return max(found.values())
  if direction not in found:
    raise plan_lib.PlanError(
        f"direction {direction!r} must be 'remove', 'add' or None"
    )
  return found[direction]


def epsilon_curve(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    steps: Sequence[int],
    delta: float,
    level: str,
) -> list[float]:
  """Epsilon after each number of steps, never falling with the number."""
  if not len(steps):
    return []
  for t in steps:
    _check(t, delta, "pld")
  kinds = kinds_of(hierarchy, plan, mechanism, level)
  error = _sampling_error(hierarchy, plan)
  if not kinds:
    return [math.inf] * len(steps)
  rising = sorted(set(map(int, steps)))
  columns = [
      pld.curve(kinds, direction, rising, float(delta), error)
      for direction in amplification.DIRECTIONS
  ]
  values = np.max(columns, axis=0)
  # More steps never cost less, so a smaller value later on is valid before.
  values = np.minimum.accumulate(values[::-1])[::-1]
  by_steps = dict(zip(rising, values.tolist()))
  return [by_steps[int(t)] for t in steps]


def max_steps(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    target_epsilon: float,
    delta: float,
    level: str,
    limit: int = 10**7,
) -> int:
  """The most steps whose epsilon is at most the target (0: not even one).

  Args:
    hierarchy: public sizes.
    plan: one stage per level.
    mechanism: clip unit and noise.
    target_epsilon: at least 0.
    delta: in (0, 1).
    level: the privacy unit.
    limit: the largest answer.

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: a value is out of range.
  """
  _check(1, delta, "pld")
  if not target_epsilon >= 0:
    raise plan_lib.PlanError(
        f"target_epsilon {target_epsilon!r} must be at least 0"
    )
  kinds = kinds_of(hierarchy, plan, mechanism, level)
  error = _sampling_error(hierarchy, plan)

  def reached(t: int) -> float:
    worst = 0.0
    for direction in amplification.DIRECTIONS:
      if kinds and worst <= target_epsilon:
        value = pld.epsilon(kinds, direction, t, float(delta), error)
        worst = max(worst, value)
    return worst if kinds else math.inf

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
  """Where epsilon, a power of the steps between them, reaches the target."""
  middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
  if 0 < at_low < target < at_high < math.inf and turn % 4 < 3:
    share = math.log(target / at_low) / math.log(at_high / at_low)
    middle = low * (high / low) ** share
    # Overstep by turns, so that the bracket closes from both sides.
    middle += (high - low) * 0.02 * (1 if turn % 2 else -1)
  return min(max(round(middle), low + 1), high - 1)


def _epsilons(
    kinds: pld.Kinds, steps: int, delta: float, error: float
) -> dict[str, float]:
  """Epsilon in each direction; () stands for no noise."""
  if not kinds:
    return dict.fromkeys(amplification.DIRECTIONS, math.inf)
  return {
      d: pld.epsilon(kinds, d, int(steps), float(delta), error)
      for d in amplification.DIRECTIONS
  }


def _sampling_error(hierarchy, plan) -> float:
  return plan_lib.sampling_error(hierarchy, plan)


def _check(steps: int, delta: float, accountant: str) -> None:
  """PlanError for a number of steps, delta or accountant out of range."""
  whole = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
  if not whole or steps < 1:
    raise plan_lib.PlanError(
        f"steps {steps!r} must be a whole number of at least 1"
    )
  if not (isinstance(delta, (int, float)) and 0 < delta < 1):
    raise plan_lib.PlanError(
        f"delta {delta!r} must lie between 0 and 1, and well below 1 / (number"
        " of units)"
    )
  if accountant not in ACCOUNTANTS:
    raise plan_lib.PlanError(
        f"unknown accountant {accountant!r}: choose one of"
        f" {', '.join(map(repr, ACCOUNTANTS))}"
    )


def assumptions(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
) -> tuple[str, ...]:
  """Every sentence that the guarantee of a level rests on."""
  result = list(ASSUMED_THROUGHOUT)
  if mechanism.noise_multiplier == 0:
    result.append("No noise is added: nothing is guaranteed (epsilon = inf).")
  result.append(
      "Each clipped gradient belongs to one"
      + (
          " task (a group of drawn classes)"
          if mechanism.clip_unit == plan_lib.EPISODE
          else f" {mechanism.clip_unit}"
      )
      + ", depends on no other clip unit, and counts as zero where it is not"
      " finite; no statistics are carried between clip units."
  )
  result.append(
      f"Neighbours differ by one {level}; the larger of the two data sets has"
      " the sizes given."
  )
  if any(isinstance(s, plan_lib.FixedSize) for s in plan.stages):
    result.append(
        "Where a stage is FixedSize, a removed unit is replaced in the sample:"
        " the sum moves by up to twice the clip norm for every clip unit that"
        " it holds."
    )
  if hierarchy.copies:
    result.append(_caveat(hierarchy, level))
  return tuple(result)


def _caveat(hierarchy: plan_lib.Hierarchy, level: str) -> str:
  """What must be said of synthetic participants wherever epsilon is."""
  if not hierarchy.copies:
    return ""
  return (
      f"The guarantee is for one {level} and says nothing about the records"
      f" below it, which recur under other units of level '{level}'."
  )
