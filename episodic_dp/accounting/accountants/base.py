"""Accountants, the phases that they compose, and bounds for a whole run.

An accountant turns phases (unit profiles and their number of steps) into an
upper bound on the privacy profile of the whole run, one direction at a time.
The charge for the sampler's error, which all of them share, is computed here.
"""

import abc
import dataclasses
import math
from typing import Protocol, TypeVar

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.unit_profile import UnitProfiles
from episodic_dp.plan import sampler_error


@dataclasses.dataclass(frozen=True)
class Phase:
  """Equal steps (or passes) of a run, seen from one level.

  Attributes:
    unit_profiles: profiles of each type of unit of the level; their maximum is
      composed.
    times: number of compositions, at least 1.
  """

  unit_profiles: UnitProfiles
  times: int


Phases = tuple[Phase, ...]
Reals = TypeVar("Reals", float, np.ndarray)
"""One number or float64[n]."""

# The hockey-stick divergence is computed to about ten digits or better.
_ROUNDING = 1e-9


# Curves ---------------------------------------------------------------------


class Curve(Protocol):
  """An upper bound on one direction's privacy profile of a run."""

  def epsilon(self, delta: float) -> float:
    """Return the smallest epsilon >= 0 known to hold at delta, or infinity."""

  def delta(self, epsilon: float) -> float:
    """Return the smallest delta known to hold at epsilon >= 0, at most 1."""


@dataclasses.dataclass(frozen=True)
class BoundedLoss:
  """A run whose loss is bounded except with a small probability.

  Attributes:
    bound: the largest loss; infinity if it is unknown.
    beyond: an upper bound on the probability of a larger loss.
  """

  bound: float
  beyond: float

  def epsilon(self, delta: float) -> float:
    """See `Curve`."""
    return self.bound if self.beyond <= delta else math.inf

  def delta(self, epsilon: float) -> float:
    """See `Curve`."""
    return min(self.beyond, 1.0) if epsilon >= self.bound else 1.0


# The curve of a run that releases private data without noise.
UNPROTECTED = BoundedLoss(math.inf, 0.0)


@dataclasses.dataclass(frozen=True)
class GaussianCurve:
  """A Gaussian mechanism of some sensitivity, in noise standard deviations.

  T releases of distance d equal one release of distance sqrt(T) d, exactly.
  Every answer is rounded up: at the returned epsilon and delta, the exact
  privacy profile (Balle and Wang, "Improving the Gaussian Mechanism for
  Differential Privacy", ICML 2018, theorem 8) is at most the given or returned
  delta.
  """

  distance: float

  def epsilon(self, delta: float) -> float:
    """See `Curve`."""
    if delta <= 0 or math.isinf(self.distance):
      return math.inf
    if self.delta(0.0) <= delta:
      return 0.0
    low, high = 0.0, self.distance * (self.distance / 2 + 1)
    while self.delta(high) > delta:
      high *= 2
    # Plain bisection: importing SciPy's root finders takes longer than it
    # saves.
    while high - low > 1e-14 * high:
      middle = (low + high) / 2
      if self.delta(middle) > delta:
        low = middle
      else:
        high = middle
    return high * (1 + 1e-14)

  def delta(self, epsilon: float) -> float:
    """See `Curve`."""
    if math.isinf(self.distance):
      return 1.0
    found = amplification.hockey_stick(np.asarray(epsilon), self.distance)
    return min(1.0, float(found) * (1 + _ROUNDING))


@dataclasses.dataclass(frozen=True)
class Least:
  """The minimum of several bounds, at every delta and epsilon."""

  curves: tuple[Curve, ...]

  def epsilon(self, delta: float) -> float:
    """See `Curve`."""
    return min(curve.epsilon(delta) for curve in self.curves)

  def delta(self, epsilon: float) -> float:
    """See `Curve`."""
    return min(curve.delta(epsilon) for curve in self.curves)


def sampled(phases: Phases) -> float:
  """Bound the probability that a run samples the unit at all.

  The run is the same with and without a unit that it never samples. So this is
  a delta that holds at every epsilon: section 10 of the proof.
  """
  log_never = 0.0
  for phase in phases:
    rate = max(unit.inclusion_rate for unit in phase.unit_profiles)
    if rate >= 1:
      return 1.0
    log_never += phase.times * math.log1p(-rate)
  return min(1.0, -math.expm1(log_never) * (1 + 1e-12))


# If the sampler's error takes less than this share of delta at an epsilon, no
# other bound is tried.
_LITTLE = 1e-5


@dataclasses.dataclass(frozen=True)
class _Charged:
  """A run whose sampler differs slightly from the plan.

  Let v be the variation, s the log ratio, t the tails and u the unmatched
  probability, all steps together (section 10 of the README of `accounting`).
  Then

    delta(epsilon)                  + (1 + e^epsilon) v   at epsilon,
    e^s (delta(epsilon) + (1 + e^epsilon) t)              at epsilon + 2 s, and
    e^s (delta(epsilon) + u)                              at epsilon + 2 s

  hold; their minimum is returned.

  Attributes:
    curve: the bound for an exact sampler of the plan.
    error: the error of all steps together, with a variation above 0.
  """

  curve: Curve
  error: sampler_error.SamplerError

  def epsilon(self, delta: float) -> float:
    """See `Curve`."""
    error = self.error
    first = self._additive(delta, error.variation)
    if first + math.log(error.variation) < math.log(_LITTLE * delta):
      return first
    reduced = math.nextafter(delta * math.exp(-error.log_ratio), 0.0)
    least = self._additive(reduced, error.tails)
    if reduced > error.unmatched:
      least = min(least, self.curve.epsilon(reduced - error.unmatched))
    return min(first, math.nextafter(least + 2 * error.log_ratio, math.inf))

  def _additive(self, delta: float, variation: float) -> float:
    """Find epsilon whose delta covers (1 + e^epsilon) times the variation."""
    if variation == 0:
      return self.curve.epsilon(delta)
    if 2 * variation >= delta:
      return math.inf
    value = self.curve.epsilon(delta - 2 * variation)
    for _ in range(100):
      if math.isinf(value) or math.log(variation) + value >= math.log(delta):
        return math.inf
      raised = value * (1 + 1e-9)
      charged = self.curve.epsilon(delta - (1 + math.exp(raised)) * variation)
      if charged <= raised:
        return raised
      value = charged
    return math.inf

  def delta(self, epsilon: float) -> float:
    """See `Curve`."""
    error = self.error
    bounds = [self.curve.delta(epsilon) + _grown(error.variation, epsilon)]
    below = math.nextafter(epsilon - 2 * error.log_ratio, -math.inf)
    if below >= 0:
      charge = min(_grown(error.tails, below), error.unmatched)
      bounds.append(
          math.exp(error.log_ratio) * (self.curve.delta(below) + charge)
      )
    return min(1.0, *bounds)


def _grown(variation: float, epsilon: float) -> float:
  """Compute (1 + e^epsilon) times a variation, at most 1."""
  if variation == 0:
    return 0.0
  charge = math.log(variation) + math.log1p(math.exp(-epsilon)) + epsilon
  return math.exp(min(charge, 0.0))


# Questions -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Delta:
  """The question for the epsilon of a run at a delta.

  Attributes:
    value: delta, in (0, 1).
    least: smaller epsilons need not be told apart; a fast bound below it will
      do.
    shared: whether one curve answers for all deltas between two powers of 100,
      because many of them are asked.
  """

  value: float
  least: float = 0.0
  shared: bool = False

  unknown = math.inf

  def of(self, curve: Curve) -> float:
    """Return the answer that a curve gives."""
    return curve.epsilon(self.value)

  def is_below(self, curve: Curve) -> bool:
    """Return whether the answer of a curve is at most `least`."""
    return curve.delta(self.least) <= self.value

  def epsilon(self, curve: Curve) -> float:
    """Return the epsilon in question."""
    return curve.epsilon(self.value)

  def of_moments(self, power: Reals, log_moment: Reals) -> Reals:
    """Return the epsilon that E e^(power * loss) gives."""
    return (log_moment - math.log(self.value)) / power

  def from_moments(self, least: float) -> float:
    """Return the answer for the least of those numbers."""
    return max(0.0, least)

  def without(self, error: sampler_error.SamplerError) -> "Delta | None":
    """Return the question for an exact sampler; None if no delta is left."""
    reduced = math.nextafter(self.value * math.exp(-error.log_ratio), 0.0)
    left = max(
        self.value - 2 * error.variation,
        reduced - min(2 * error.tails, error.unmatched),
    )
    if left <= 0:
      return None
    if self.shared:
      return Delta(100.0 ** math.floor(math.log(left, 100)))
    return Delta(left, self.least)


@dataclasses.dataclass(frozen=True)
class Epsilon:
  """The question for the delta of a run at an epsilon.

  Attributes:
    value: epsilon, at least 0.
    least: smaller deltas need not be told apart; a fast bound below it will do.
  """

  value: float
  least: float = 0.0

  unknown = 1.0

  def of(self, curve: Curve) -> float:
    """Return the answer that a curve gives."""
    return curve.delta(self.value)

  def is_below(self, curve: Curve) -> bool:
    """Return whether the answer of a curve is at most `least`."""
    return self.of(curve) <= self.least

  def epsilon(self, curve: Curve) -> float:
    """Return the epsilon in question."""
    return self.value

  def of_moments(self, power: Reals, log_moment: Reals) -> Reals:
    """Return ln of the delta that E e^(power * loss) gives."""
    return log_moment - power * self.value

  def from_moments(self, least: float) -> float:
    """Return the answer for the least of those numbers."""
    return math.exp(min(least, 0.0))

  def without(self, error: sampler_error.SamplerError) -> "Epsilon":
    """Return the question for an exact sampler.

    A delta that is negligible next to the sampler's error is not resolved.
    """
    charges = [_grown(error.variation, self.value)]
    below = self.value - 2 * error.log_ratio
    if below >= 0:
      charges.append(min(_grown(error.tails, below), error.unmatched))
    return Epsilon(self.value, max(self.least, _LITTLE * min(charges)))


Question = Delta | Epsilon

# Accountants ----------------------------------------------------------------


class Accountant(abc.ABC):
  """Composes phases; frozen and hashable.

  Formal guarantees: for every direction, answers are upper bounds on the true
  values for the phases' profiles. Rounding, truncation and discretisation only
  increase them.
  """

  name: str

  @abc.abstractmethod
  def curve(
      self, phases: Phases, direction: Direction, at: Question
  ) -> Curve:
    """Bound a run in one direction, precisely near the question.

    Raises:
      PlanError: the accountant cannot compose these phases.
    """

  def answer(
      self,
      phases: Phases,
      direction: Direction,
      at: Question,
      error: sampler_error.SamplerError = sampler_error.EXACT,
  ) -> float:
    """Compute epsilon at a delta, or delta at an epsilon, in one direction.

    Args:
      phases: the phases to compose.
      direction: "remove" or "add".
      at: the question.
      error: error of the run's sampler, all steps together; see
        `_Charged`.
    """
    unseen = BoundedLoss(0.0, sampled(phases) + 2 * error.variation)
    exact = at.without(error)
    if at.of(unseen) == 0 or exact is None:
      return at.of(unseen)
    curve = self.curve(phases, direction, exact)
    if error.variation > 0:
      curve = _Charged(curve, error)
    return min(at.of(unseen), at.of(curve))
