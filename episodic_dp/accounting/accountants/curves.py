"""Upper bounds on the privacy profile of a whole run."""

import dataclasses
import math
from typing import Protocol

from episodic_dp.accounting.profiles import gaussian


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
class Least:
  """The best of several bounds, at every delta and epsilon."""

  curves: tuple[Curve, ...]

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return min(curve.epsilon(delta) for curve in self.curves)

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return min(curve.delta(epsilon) for curve in self.curves)


def charge_sampler_error(curve: Curve, error: float) -> Curve:
  """Bound a run whose sampler is not quite the plan's.

  Args:
    curve: the bound for the plan's own sampler.
    error: total variation between the two samplers, all steps together. It
      holds on both neighbours, so that delta(epsilon) + (1 + exp(epsilon))
      error is what must not exceed delta.
  """
  return _Charged(curve, error) if error > 0 else curve


@dataclasses.dataclass(frozen=True)
class _Charged:
  """See `charge_sampler_error`."""

  curve: Curve
  error: float

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    if 2 * self.error >= delta:
      return math.inf
    value = self.curve.epsilon(delta - 2 * self.error)
    for _ in range(100):
      if math.isinf(value) or math.log(self.error) + value >= math.log(delta):
        return math.inf
      raised = value * (1 + 1e-9)
      charged = self.curve.epsilon(delta - (1 + math.exp(raised)) * self.error)
      if charged <= raised:
        return raised
      value = charged
    return math.inf

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    charge = math.log(self.error) + math.log1p(math.exp(-epsilon)) + epsilon
    return min(1.0, self.curve.delta(epsilon) + math.exp(min(charge, 0.0)))
