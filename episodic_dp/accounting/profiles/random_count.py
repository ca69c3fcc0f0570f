"""Profiles of units with a random number of drawn clip units.

A user whose examples are drawn and clipped one by one moves the sum by as many
clip norms as examples of his are drawn: K of them, a random number, and not by
the largest number that there could be. Of `line_mixture` it is the case with

  S  the mixture of N(k d) over K, given that the unit is drawn,
  R  N(0) where the unit's own stage is `Poisson` or `All`, since then the unit
     is absent; under `FixedSize` another unit takes its place, which may draw a
     number K' of clip units: the mixture of N(-k' d),

with d the distance of one clip unit, the noise multiplier's inverse. All of
them in one direction at full length is the worst (Choquette-Choo, Ganesh,
Steinke and Thakurta, "Privacy Amplification for Matrix Mechanisms", ICLR 2024).
"""

import dataclasses
import functools
import math

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts as counts_lib
from episodic_dp.accounting.profiles import line_mixture
from episodic_dp.accounting.profiles.amplification import Direction

# Distances below this are replaced by it: larger, so never optimistic.
_MIN_DISTANCE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCount:
  """The rates of one kind of unit, and how many clip units it draws.

  Attributes:
    outer_rates: r_1 .. r_(l-1), the rates of the stages above the unit's own.
    rate: p, the rate of the unit's own stage.
    outer_distances: one per outer rate: how far what else differs moves the
      sum where the path breaks there, in standard deviations of the noise.
    number: K, the number of clip units drawn under the unit, given it is drawn.
    instead: K', the same for what takes its place; always 0 for no unit.
    distance: of one clip unit, in standard deviations of the noise.
  """

  outer_rates: tuple[float, ...]
  rate: float
  outer_distances: tuple[float, ...]
  number: counts_lib.Counts
  instead: counts_lib.Counts
  distance: float

  slow = False

  @property
  def at_most(self) -> amplification.Amplification:
    """Return the unit with as many clip units as it can ever draw."""
    most = self.number.most, self.instead.most
    # To what is positive in a direction: the unit, or what takes its place.
    return amplification.Amplification(
        self.outer_rates,
        self.rate,
        tuple(max(most) * self.distance + d for d in self.outer_distances),
        sum(most) * self.distance,
    )

  def raised(self, chance: float) -> "RandomCount":
    """Return the unit with larger numbers, by a chance in total variation."""
    return dataclasses.replace(
        self,
        number=counts_lib.raised(self.number, chance),
        instead=counts_lib.raised(self.instead, chance),
    )

  @property
  def tail(self) -> tuple[float, float]:
    """Return (P(K + K' > 0), the largest distance), by joint convexity."""
    reached = math.prod(self.outer_rates) * self.rate
    none = self.number.none * self.instead.none
    return reached * (1 - none), self.at_most.unit_sensitivity

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Compute H_alpha in the direction, for alpha >= 1.

    Args:
      log_alpha: float64[n] of ln alpha >= 0.
      direction: "remove" for M(T) against M(T - t), "add" for the reverse.

    Returns:
      float64[n], an upper bound that convexity makes composable.
    """
    log_alpha = np.asarray(log_alpha, float)
    weight, farthest = self.tail
    if weight == 0:
      return np.zeros_like(log_alpha)
    farthest = max(farthest, _MIN_DISTANCE)
    bound = weight * amplification.hockey_stick(log_alpha, farthest)
    return np.minimum(bound, _curve(self, direction)(log_alpha))


@functools.lru_cache(maxsize=128)  # An average has ten.
def _curve(kind: RandomCount, direction: Direction) -> line_mixture.Curve:
  d = max(kind.distance, _MIN_DISTANCE)
  (numbers, probs), (others, instead) = (
      counts_lib.without_tail(number)
      for number in (kind.number, kind.instead)
  )
  line = line_mixture.Line(
      seen=probs[None],
      seen_at=numbers * d,
      instead=instead,
      instead_at=others * d,
      outer=np.asarray(kind.at_most.outer_weights),
      # So far off no double tells the distance from infinity.
      outer_at=np.minimum(kind.outer_distances, 1e6),
      parent_rate=math.prod(kind.outer_rates),
      rate=kind.rate,
  )
  (curve,) = line_mixture.curves(line, direction)
  return curve


Part = amplification.Amplification | RandomCount


@dataclasses.dataclass(frozen=True)
class Averaged:
  """A unit whose kind is drawn anew in each step.

  Attributes:
    parts: pairs (chance, kind), from the one that costs least to the one that
      costs most; the chances add up to 1.
  """

  parts: tuple[tuple[float, Part], ...]

  slow = True

  def raised(self, chance: float) -> "Averaged":
    """Return kinds with larger numbers, by a chance in total variation."""
    *others, (last, most) = (
        (share, kind.raised(chance) if isinstance(kind, RandomCount) else kind)
        for share, kind in self.parts
    )
    return Averaged((*others, (last + chance, most)))

  @property
  def tail(self) -> tuple[float, float]:
    """Return the tail of the part that costs most, never less than others'."""
    return self.parts[-1][1].tail

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Compute H_alpha in the direction, for alpha >= 1, float64[n]."""
    log_alpha = np.asarray(log_alpha, float)
    value = np.zeros_like(log_alpha)
    for chance, kind in self.parts:
      if chance > 0:
        value += chance * kind.divergence(log_alpha, direction)
    return value
