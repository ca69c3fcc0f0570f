"""Accountants, the phases that they compose, and bounds for a whole run.

An accountant turns phases (unit profiles and their number of steps) into an
upper bound on the privacy profile of the whole run, one direction at a time.
The charge for the sampler's error, which all of them share, is computed here.
"""

import abc
import dataclasses
import math
from typing import Protocol

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
    if delta <= 0:
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


def charge_sampler_error(
    curve: Curve, error: sampler_error.SamplerError
) -> Curve:
  """Bound a run whose sampler differs slightly from the plan.

  Let v be the variation, s the log ratio, t the tails and u the unmatched
  probability, all steps together (section 10 of the README of `accounting`).
  Then

    delta(epsilon)                  + (1 + e^epsilon) v   at epsilon,
    e^s (delta(epsilon) + (1 + e^epsilon) t)              at epsilon + 2 s, and
    e^s (delta(epsilon) + u)                              at epsilon + 2 s

  hold; their minimum is returned.

  Args:
    curve: the bound for an exact sampler of the plan.
    error: the error of all steps together.
  """
  return _Charged(curve, error) if error.variation > 0 else curve


def remaining_delta(delta: float, error: sampler_error.SamplerError) -> float:
  """Subtract the sampler's error from delta; 0 or less means none remains."""
  reduced = math.nextafter(delta * math.exp(-error.log_ratio), 0.0)
  return max(
      delta - 2 * error.variation,
      reduced - min(2 * error.tails, error.unmatched),
  )


def negligible(error: sampler_error.SamplerError, epsilon: float) -> float:
  """Find a delta that is negligible next to the sampler's error at epsilon."""
  charges = [_grown(error.variation, epsilon)]
  below = epsilon - 2 * error.log_ratio
  if below >= 0:
    charges.append(min(_grown(error.tails, below), error.unmatched))
  return _LITTLE * min(charges)


# If the sampler's error takes less than this share of delta at an epsilon, no
# other bound is tried.
_LITTLE = 1e-5


@dataclasses.dataclass(frozen=True)
class _Charged:
  """See `charge_sampler_error`."""

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


# Accountants ----------------------------------------------------------------


class Accountant(abc.ABC):
  """Composes phases; frozen and hashable.

  Formal guarantees: for every direction, `epsilon` and `delta` are upper bounds
  on the true values for the phases' profiles. Rounding, truncation and
  discretisation only increase them.
  """

  name: str

  @abc.abstractmethod
  def curve(
      self,
      phases: Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> Curve:
    """Bound a run, precisely near the given delta or epsilon.

    Args:
      phases: the phases to compose.
      direction: "remove" or "add".
      delta: in (0, 1), or None if epsilon is given.
      epsilon: at least 0, or None if delta is given.
      enough: values of the answer at or below this need not be distinguished
        (epsilon for a given delta, delta for a given epsilon); a fast bound at
        or below it suffices.

    Raises:
      PlanError: the accountant cannot compose these phases.
    """

  def epsilon(
      self,
      phases: Phases,
      direction: Direction,
      delta: float,
      error: sampler_error.SamplerError = sampler_error.EXACT,
      enough: float = 0.0,
  ) -> float:
    """Compute epsilon of a run in one direction, or infinity.

    Args:
      phases: the phases to compose.
      direction: "remove" or "add".
      delta: in (0, 1).
      error: error of the run's sampler, all steps together; see
        `charge_sampler_error`.
      enough: epsilons at or below this need not be distinguished.
    """
    if sampled(phases) + 2 * error.variation <= delta:
      return 0.0
    left = remaining_delta(delta, error)
    if left <= 0:
      return math.inf
    curve = self.curve(phases, direction, delta=left, enough=enough)
    return charge_sampler_error(curve, error).epsilon(delta)

  def delta(
      self,
      phases: Phases,
      direction: Direction,
      epsilon: float,
      error: sampler_error.SamplerError = sampler_error.EXACT,
      enough: float = 0.0,
  ) -> float:
    """Compute delta of a run in one direction at epsilon; see `epsilon`."""
    curve = self.curve(
        phases, direction, epsilon=epsilon,
        enough=max(enough, negligible(error, epsilon)),
    )
    return min(
        1.0,
        charge_sampler_error(curve, error).delta(epsilon),
        sampled(phases) + 2 * error.variation,
    )


@dataclasses.dataclass(frozen=True)
class Shared(Accountant):
  """Computes one curve for all deltas between two powers of 100.

  Attributes:
    accountant: computes the curve, precisely near the smaller power.
  """

  accountant: Accountant
  name = "shared"

  def curve(
      self,
      phases: Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> Curve:
    """See `Accountant`."""
    if delta is not None:
      delta, enough = 100.0 ** math.floor(math.log(delta, 100)), 0.0
    return self.accountant.curve(
        phases, direction, delta=delta, epsilon=epsilon, enough=enough
    )
