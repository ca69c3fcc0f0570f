"""Upper bounds on the privacy profile of a whole run."""

import dataclasses
import functools
import math
from typing import Protocol

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import gaussian

# Numbers of Gaussians that are told apart; more are rounded up to fewer.
_MAX_GROUPS = 96


class Curve(Protocol):
  """An upper bound on one direction's privacy profile of a run."""

  def epsilon(self, delta: float) -> float:
    """The smallest epsilon >= 0 known to hold at delta, or infinity."""

  def delta(self, epsilon: float) -> float:
    """The smallest delta known to hold at epsilon >= 0, at most 1."""


@dataclasses.dataclass(frozen=True)
class Negligible:
  """The profile of a run that no delta of interest tells from nothing.

  Attributes:
    bound: an upper bound on the total variation of its two outputs.
  """

  bound: float

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return 0.0 if self.bound <= delta else math.inf

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    del epsilon  # Delta falls with it.
    return min(self.bound, 1.0)


@dataclasses.dataclass(frozen=True)
class BoundedLoss:
  """A run whose loss is nearly surely bounded.

  Attributes:
    bound: the largest loss.
    beyond: an upper bound on the probability of a larger one.
  """

  bound: float
  beyond: float

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return self.bound if self.beyond <= delta else math.inf

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return self.beyond if epsilon >= self.bound else 1.0


@dataclasses.dataclass(frozen=True)
class Unprotected:
  """A run that releases private data without noise."""

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    del delta
    return math.inf

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    del epsilon
    return 1.0


@dataclasses.dataclass(frozen=True)
class GaussianCurve:
  """One Gaussian of a distance, in noise standard deviations."""

  distance: float

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    if delta <= 0:
      return math.inf
    return gaussian.analytic_epsilon(1 / self.distance, delta)

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return gaussian.analytic_delta(1 / self.distance, epsilon)


@dataclasses.dataclass(frozen=True)
class RevealedCurve:
  """Gaussians of which each is met with a probability, and it is told which.

  K ~ Binomial(times, rate) of them are one of distance d sqrt(K).

  Attributes:
    rate: of each.
    distance: d, in noise standard deviations.
    times: how many.
  """

  rate: float
  distance: float
  times: int

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    whole = GaussianCurve(self.distance * math.sqrt(self.times))
    high = whole.epsilon(delta)
    if self.rate == 1 or not math.isfinite(high):
      return high
    if self.delta(0.0) <= delta:
      return 0.0
    low = 0.0
    while high - low > 1e-9 * high:
      middle = (low + high) / 2
      if self.delta(middle) > delta:
        low = middle
      else:
        high = middle
    return high

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    whole = GaussianCurve(self.distance * math.sqrt(self.times)).delta(epsilon)
    if self.rate == 1:
      return whole
    weights, far = self._distances
    value = weights @ amplification.hockey_stick(
        np.full_like(far, epsilon), far
    )
    return min(whole, float(value) * (1 + 1e-9))

  @functools.cached_property
  def _distances(self) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of K > 0, in groups rounded up, and d sqrt K."""
    at, weights = counts.coarser(
        counts.binomial(self.times, self.rate), _MAX_GROUPS
    )
    some = at > 0
    return weights[some], self.distance * np.sqrt(at[some])


@dataclasses.dataclass(frozen=True)
class Least:
  """The best of several bounds, at every delta and epsilon."""

  curves: tuple[Curve, ...]

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return min(curve.epsilon(delta) for curve in self.curves)

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return min(curve.delta(epsilon) for curve in self.curves)


@dataclasses.dataclass(frozen=True)
class Largest:
  """What holds for each of several units, and so for any of them."""

  curves: tuple[Curve, ...]

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return max(curve.epsilon(delta) for curve in self.curves)

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return max(curve.delta(epsilon) for curve in self.curves)


def charge_sampler_error(
    curve: Curve, error: plan_lib.SamplerError
) -> Curve:
  """Bound a run whose sampler is not quite the plan's.

  With v the variation, s the ratio's logarithm, t the tails and u what is
  unmatched, all steps together (section 9 of the README of `accounting`),

    delta(epsilon)                  + (1 + e^epsilon) v   at epsilon,
    e^s (delta(epsilon) + (1 + e^epsilon) t)              at epsilon + 2 s, and
    e^s (delta(epsilon) + u)                              at epsilon + 2 s

  hold; the best of them is told.

  Args:
    curve: the bound for the plan's own sampler.
    error: of all steps together.
  """
  return _Charged(curve, error) if error.variation > 0 else curve


def left_by_sampler(delta: float, error: plan_lib.SamplerError) -> float:
  """What the sampler's error leaves of delta; nothing where not above 0."""
  reduced = math.nextafter(delta * math.exp(-error.log_ratio), 0.0)
  return max(
      delta - 2 * error.variation,
      reduced - min(2 * error.tails, error.unmatched),
  )


def negligible(error: plan_lib.SamplerError, epsilon: float) -> float:
  """A delta at epsilon that is next to nothing beside the sampler's error."""
  charges = [_grown(error.variation, epsilon)]
  below = epsilon - 2 * error.log_ratio
  if below >= 0:
    charges.append(min(_grown(error.tails, below), error.unmatched))
  return _LITTLE * min(charges)


# An epsilon at which the sampler's error takes less than this of delta is told.
_LITTLE = 1e-5


@dataclasses.dataclass(frozen=True)
class _Charged:
  """See `charge_sampler_error`."""

  curve: Curve
  error: plan_lib.SamplerError

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
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
    """Epsilon where (1 + e^epsilon) of the variation is charged to delta."""
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
    """See `base.Curve`."""
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
  """(1 + e^epsilon) of a variation, or 1 where that is less."""
  if variation == 0:
    return 0.0
  charge = math.log(variation) + math.log1p(math.exp(-epsilon)) + epsilon
  return math.exp(min(charge, 0.0))
