"""Profiles of units with a random number of clip units.

A user whose examples are sampled and clipped one by one moves the sum by at
most K clip norms, where K is the random number of his sampled examples, not by
the largest possible number. This is the case of `line_mixture` with

  S  the mixture of N(k d) over K, given that the unit is sampled,
  R  N(0) if the unit's own stage is `Poisson` or `All`, since the unit is then
     absent; under `FixedSize` another unit replaces it, with a number K' of
     clip units: the mixture of N(-k' d),

where d is the distance of one clip unit, the inverse of the noise multiplier.
The worst case has all of them in one direction at full length (Choquette-Choo,
Ganesh, Steinke and Thakurta, "Privacy Amplification for Matrix Mechanisms",
ICLR 2024).
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
class RandomCount(amplification.UnitProfile):
  """The rates of one type of unit, and its number of clip units.

  Attributes:
    outer_rates: r_1 .. r_(l-1), the rates of the stages above the unit's own.
    rate: p, the rate of the unit's own stage.
    outer_distances: one per outer rate: the change of the sum by other
      differences if the path breaks there, in standard deviations of the noise.
    number: K, the number of clip units under the unit, given that it is
      sampled.
    instead: K', the same for the replacing unit; always 0 without one.
    distance: of one clip unit, in standard deviations of the noise.
    replaced: whether the unit has other data in one of the neighbours. Both
      then sample K clip units of it, with opposite gradients at worst, and
      equal ones if the unit is not sampled.
  """

  outer_rates: tuple[float, ...]
  rate: float
  outer_distances: tuple[float, ...]
  number: counts_lib.Counts
  instead: counts_lib.Counts
  distance: float
  replaced: bool = False

  counting = True
  families = 1

  @property
  def at_most(self) -> amplification.Amplification:
    """Return the unit with its largest possible number of clip units."""
    most = self.number.most, self.instead.most
    own = sum(most) * self.distance
    # To the positive part of a direction: the unit, or the replacing one.
    outer = tuple(max(most) * self.distance + d for d in self.outer_distances)
    if self.replaced:
      return amplification.Amplification(
          (*self.outer_rates, self.rate), 1.0, (*outer, own),
          max(2 * most[0] * self.distance, own),
      )
    return amplification.Amplification(self.outer_rates, self.rate, outer, own)

  def raised(self, chance: float) -> "RandomCount":
    """Return the unit with numbers raised by a probability."""
    return dataclasses.replace(
        self,
        number=counts_lib.raised(self.number, chance),
        instead=counts_lib.raised(self.instead, chance),
    )

  @property
  def inclusion_rate(self) -> float:
    """Return P(K + K' > 0), the probability that a step samples either."""
    reached = math.prod(self.outer_rates) * self.rate
    other = self.number if self.replaced else self.instead
    some = self.number.some
    return reached * min(1.0, some + other.some * max(0.0, 1 - some))

  @property
  def tail(self) -> tuple[float, float]:
    """Return (P(K + K' > 0), the largest distance), by joint convexity."""
    farthest = max(self.at_most.unit_sensitivity, _MIN_DISTANCE)
    return self.inclusion_rate, farthest

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    return self.below_tail(log_alpha, lambda at: _curve(self, direction)(at))

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`.

    The replacing unit is assumed to be known, and as large as possible.
    """
    number = counts_lib.coarser(self.number, line_mixture.MOST_GROUPS)
    return math.log(math.prod(self.outer_rates)) + line_mixture.log_divergence(
        np.append((number.values + self.instead.most) * self.distance, 0.0),
        np.append(self.rate * number.probs, 1 - self.rate),
        log_alpha,
        direction,
    )


@functools.lru_cache(maxsize=128)  # An average has ten curves.
def _curve(
    kind: RandomCount, direction: Direction
) -> line_mixture.MixtureCurve:
  d = max(kind.distance, _MIN_DISTANCE)
  (numbers, probs), (others, instead) = (
      counts_lib.without_tail(number)
      for number in (kind.number, kind.instead)
  )
  q, outer = math.prod(kind.outer_rates), len(kind.outer_rates)
  line = line_mixture.Line(
      seen=probs[None],
      seen_at=numbers * d,
      instead=instead,
      instead_at=others * d,
      outer=np.asarray(kind.at_most.outer_weights[:outer]),
      # So far away that a double cannot distinguish it from infinity.
      outer_at=np.minimum(kind.outer_distances, 1e6),
      parent_rate=q,
      rate=kind.rate,
  )
  if kind.replaced:
    line = line._replace(
        instead=probs,
        instead_at=line.seen_at,
        outer=np.append(line.outer, q * (1 - kind.rate) * instead),
        outer_at=np.append(line.outer_at, line.instead_at),
        parent_rate=q * kind.rate,
        rate=1.0,
    )
  (curve,) = line_mixture.curves(line, direction)
  return curve


@dataclasses.dataclass(frozen=True)
class RandomType(amplification.UnitProfile):
  """A unit whose type is random in each step.

  Attributes:
    parts: pairs (probability, type), from the least to the most expensive type;
      the probabilities add up to 1.
  """

  parts: tuple[tuple[float, amplification.UnitProfile], ...]

  slow = True
  counting = True
  families = 1

  def raised(self, chance: float) -> "RandomType":
    """Return types with numbers raised by a probability."""
    *others, (last, most) = (
        (share, kind.raised(chance)) for share, kind in self.parts
    )
    return RandomType((*others, (last + chance, most)))

  @property
  def inclusion_rate(self) -> float:
    """Return that of the most expensive part, at least that of others."""
    return self.parts[-1][1].inclusion_rate

  @property
  def tail(self) -> tuple[float, float]:
    """Return the tail of the most expensive part, at least that of others."""
    return self.parts[-1][1].tail

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    log_alpha = np.asarray(log_alpha, float)
    value = np.zeros_like(log_alpha)
    for chance, kind in self.parts:
      if chance > 0:
        value += chance * kind.divergence(log_alpha, direction)
    return value

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    return np.logaddexp.reduce([
        math.log(chance) + kind.log_divergence(log_alpha, direction)
        for chance, kind in self.parts
        if chance > 0
    ])
