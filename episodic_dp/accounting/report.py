"""What is known of a run's privacy at one level, to be printed and stored."""

import dataclasses
import decimal
import math
from typing import Any

from episodic_dp.accounting.profiles import unit_profile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
  """(epsilon, delta)-differential privacy of one level of a hierarchy.

  Attributes:
    epsilon: the larger of the two directions; infinity for no guarantee.
    delta: as asked, errors of the sampler included.
    level: the privacy unit.
    neighbours: the relation, "add or remove one <level>" or "replace one
      <level>".
    direction: the direction that needs the larger epsilon (or delta, where
      epsilon was given), "remove" for the divergence of the run with the unit
      from the run without it; "both" where they are not told apart.
    epsilons: epsilon of each direction, at delta.
    accountant: how steps were composed.
    assumptions: sentences that the guarantee rests on.
    steps: the number of steps.
    inclusion_rate: eta, the largest probability that a step draws one unit.
    kinds: the rates and distances of the level's units, of all phases.
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
  unit_profiles: unit_profile.UnitProfiles = ()
  caveat: str = ""

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
        "units": [kind.as_dict() for kind in self.unit_profiles],
        "caveat": self.caveat,
        "assumptions": list(self.assumptions),
    }

  def __str__(self) -> str:
    if math.isinf(self.epsilon):
      text = f"{self.level}: no formal guarantee (epsilon is infinite)"
      return f"{text}. {self.caveat}" if self.caveat else text
    return (
        f"{self.level}: epsilon {rounded_up(self.epsilon)} at delta"
        f" {self.delta:g} ({self.neighbours}; {self.steps} steps;"
        f" {self.direction} direction; {self.accountant})"
        + (f". {self.caveat}" if self.caveat else "")
    )


def rounded_up(epsilon: float) -> str:
  """Format epsilon with four digits, rounded up."""
  if math.isinf(epsilon):
    return "inf"
  context = decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)
  return f"{context.create_decimal(repr(float(epsilon))):f}"
