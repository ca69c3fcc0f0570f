"""What is known of a run's privacy at one level, to be printed and stored."""

import dataclasses
import decimal
import math
from typing import Any

from episodic_dp.accounting.lower_bounds import bound
from episodic_dp.accounting.profiles import unit_profile


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee:
  """(epsilon, delta)-differential privacy of one level of a hierarchy.

  Attributes:
    epsilon: the larger of the two directions; infinity for no guarantee.
    delta: as asked, errors of the sampler included.
    level: the privacy unit.
    neighbours: the relation, "add or remove one LEVEL" or "replace one
      LEVEL".
    direction: the direction that needs the larger epsilon (or delta, where
      epsilon was given), "remove" for the divergence of the run with the unit
      from the run without it; "both" where they are not told apart.
    epsilons: epsilon of each direction, at delta.
    accountant: how steps were composed.
    assumptions: sentences that the guarantee rests on.
    steps: the number of steps of all runs.
    inclusion_rate: eta, the largest probability that a step draws one unit.
    unit_profiles: the rates and distances of the level's units, of all phases.
    caveat: what the guarantee must not be mistaken for, to be said wherever it
      is printed, or "".
    others: what was composed beside the steps, such as "1 query, 1 selection",
      or "".
    question: what `lower` answers; None where nothing is asked.
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
  unit_profiles: unit_profile.UnitProfiles = ()
  caveat: str = ""
  others: str = ""
  question: bound.Question | None = dataclasses.field(
      default=None, compare=False
  )

  @property
  def lower(self) -> float:
    """What epsilon (or delta, where epsilon was given) is at least.

    The exact loss of one data set that the plan allows: no analysis can promise
    less. 0 where none is known. It is computed when first read, which takes
    about a second.
    """
    return self.question.answer if self.question is not None else 0.0

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON; an infinite epsilon is the string "inf"."""

    def number(value: float) -> float | str:
      return value if math.isfinite(value) else "inf"

    asked = "epsilon"
    if self.question is not None and self.question.epsilon is not None:
      asked = "delta"
    return {
        "level": self.level,
        "epsilon": number(self.epsilon),
        "delta": self.delta,
        f"{asked}_lower": self.lower,
        "neighbours": self.neighbours,
        "direction": self.direction,
        "epsilons": {k: number(v) for k, v in self.epsilons.items()},
        "accountant": self.accountant,
        "steps": self.steps,
        **({"others": self.others} if self.others else {}),
        "inclusion_rate": self.inclusion_rate,
        "units": [kind.as_dict() for kind in self.unit_profiles],
        "caveat": self.caveat,
        "assumptions": list(self.assumptions),
    }

  def __repr__(self) -> str:
    return f"Guarantee({self})"

  def __str__(self) -> str:
    if math.isinf(self.epsilon):
      text = f"{self.level}: no formal guarantee (epsilon is infinite)"
      return f"{text}. {self.caveat}" if self.caveat else text
    return (
        f"{self.level}: epsilon {rounded_up(self.epsilon)} at delta"
        f" {self.delta:g} ({self.neighbours}; {self._composed()};"
        f" {self.direction} direction; {self.accountant})"
        + (f". {self.caveat}" if self.caveat else "")
    )

  def _composed(self) -> str:
    """'60 steps', '1 query, 1 selection', or both."""
    if not self.others:
      return f"{self.steps} steps"
    return f"{self.steps} steps, {self.others}" if self.steps else self.others


def rounded_up(epsilon: float) -> str:
  """Format epsilon with four digits, rounded up."""
  if math.isinf(epsilon):
    return "inf"
  return _rounded(epsilon, decimal.ROUND_CEILING)


def between(lower: float, epsilon: float) -> str:
  """Say between which numbers, of four digits, epsilon lies.

  Just the upper one where no lower one is known, or it is not finite.
  """
  if not 0 < lower <= epsilon < math.inf:
    return rounded_up(epsilon)
  low = _rounded(lower, decimal.ROUND_FLOOR)
  return f"between {low} and {rounded_up(epsilon)}"


def _rounded(value: float, rounding: str) -> str:
  context = decimal.Context(prec=4, rounding=rounding)
  digits = context.create_decimal(repr(float(value)))
  return f"{digits:.3e}" if digits >= 1_000_000 else f"{digits:f}"
