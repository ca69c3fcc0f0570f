"""Accountants that add up moments: Renyi divergences, and [S]'s moments.

Moments of a step's profile (`log_moments`) add over adaptive steps, each
direction on its own, so composition is a weighted sum; what differs is how an
epsilon is read off. Both are looser than `pld`, need no grid of losses for the
whole run, and are what papers report:

  RDP      Mironov, "Renyi Differential Privacy" (CSF 2017), with the conversion
           of Canonne, Kamath and Steinke (NeurIPS 2020, proposition 12);
  Moments  Abadi et al., "Deep Learning with Differential Privacy" (CCS 2016),
           as in [S], Sharma, "Differential Privacy & Approximate Bayesian
           Inference" (2019), equations 2.6-2.16.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import log_moments
from episodic_dp.accounting.profiles.amplification import Direction

# The conversion reads no order of 1.01 or less, where it loses digits.
_LEAST_CONVERTED, _LEAST_STEP = 1.01, 0.0105


@functools.lru_cache(maxsize=8)
def orders(max_order: int) -> tuple[float, ...]:
  """Every whole order from 2, and between 1 and 11 a tenth apart in order - 1.

  epsilon is near a (l - 1) + b / (l - 1) in the order l, so that l - 1 being
  off by half of a ratio r from the best costs (ln r)^2 / 8 of it: 0.1 % here,
  and less from 11 on, where the whole orders are at least as near.
  """
  small = 1 + np.geomspace(_LEAST_STEP, 10.0, 73)
  found = {*small[:-1].tolist(), *map(float, range(2, max_order + 1))}
  return tuple(sorted(order for order in found if order <= max_order))


def least_epsilon(delta: float, max_order: int = 512) -> float:
  """Return the epsilon that orders give a run without any loss."""
  zeros = np.zeros(len(orders(max_order)))
  return RenyiCurve(np.asarray(orders(max_order)), zeros).converted(delta)


def total_log_moments(
    phases: base.Phases, direction: Direction, at: tuple[float, ...]
) -> np.ndarray:
  """ln of the moments of a run, float64[orders]."""
  return sum(
      (
          phase.times
          * log_moments.log_moments(phase.unit_profiles, direction, at)
          for phase in phases
      ),
      start=np.zeros(len(at)),
  )


@dataclasses.dataclass(frozen=True, eq=False)
class RenyiCurve:
  """The privacy profile that Renyi divergences allow.

  Attributes:
    orders: float64[n], each above 1.
    rdp: float64[n], the Renyi divergences of the run.
  """

  orders: np.ndarray
  rdp: np.ndarray

  def epsilon(self, delta: float) -> float:
    """See `accountants.Curve`."""
    if delta <= 0:
      return math.inf
    if (self._variations() < delta).any():
      return 0.0
    return self.converted(delta)

  def converted(self, delta: float) -> float:
    """Epsilon by proposition 12 alone."""
    order, rdp = self._converted()
    with np.errstate(invalid="ignore"):
      found = (
          rdp + np.log1p(-1 / order)
          - (math.log(delta) + np.log(order)) / (order - 1)
      )
    return max(0.0, float(np.min(found, initial=math.inf)))

  def delta(self, epsilon: float) -> float:
    """See `accountants.Curve`."""
    order, rdp = self._converted()
    logs = (order - 1) * (rdp - epsilon + np.log1p(-1 / order)) - np.log(order)
    found = math.exp(min(float(np.min(logs, initial=0.0)), 0.0))
    return min(found, float(np.min(self._variations(), initial=1.0)))

  def _variations(self) -> np.ndarray:
    """sqrt(1 - e^-D), at most which is told apart (Bretagnolle and Huber)."""
    return np.sqrt(-np.expm1(-self.rdp)) * (1 + 1e-12)

  def _converted(self) -> tuple[np.ndarray, np.ndarray]:
    """The orders that proposition 12 is read at."""
    some = self.orders > _LEAST_CONVERTED
    return self.orders[some], self.rdp[some]


@dataclasses.dataclass(frozen=True, eq=False)
class MomentsCurve:
  """The privacy profile that the tail bound of [S] (2.8) allows.

  Attributes:
    lambdas: float64[n], whole numbers from 1.
    alpha: float64[n], ln E exp(lambda * loss) of the run in one direction. [S]
      (2.14) takes the larger direction at every lambda; taking it of epsilon,
      after the least lambda of each direction, is never more.
  """

  lambdas: np.ndarray
  alpha: np.ndarray

  def epsilon(self, delta: float) -> float:
    """min over lambda of (alpha - ln delta) / lambda, [S] (2.10)."""
    if delta <= 0:
      return math.inf
    return max(0.0, float(self._epsilons(delta).min()))

  def best_lambda(self, delta: float) -> int:
    """The lambda at which `epsilon` is found."""
    return int(self.lambdas[np.argmin(self._epsilons(delta))])

  def delta(self, epsilon: float) -> float:
    """min over lambda of exp(alpha - lambda epsilon), [S] (2.9)."""
    least = float((self.alpha - self.lambdas * epsilon).min())
    return math.exp(min(least, 0.0))

  def _epsilons(self, delta: float) -> np.ndarray:
    return (self.alpha - math.log(delta)) / self.lambdas


@dataclasses.dataclass(frozen=True)
class _MomentAccountant(base.Accountant):
  """The largest order of an accountant of moments, and its check."""

  max_order: int

  def __post_init__(self) -> None:
    if not 2 <= _validate.count("max_order", self.max_order) <= 4096:
      raise _validate.refusal("max_order", self.max_order, "2 to 4096")

  def options(self) -> dict[str, Any]:
    """See `accountants.Accountant`."""
    return {"max_order": self.max_order}


@dataclasses.dataclass(frozen=True)
class RDP(_MomentAccountant):
  """Renyi differential privacy with a dense list of orders.

  Attributes:
    max_order: the largest order.
  """

  max_order: int = 512

  name = "rdp"

  def curve(
      self,
      phases: base.Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> RenyiCurve:
    """See `accountants.Accountant`; as precise at every delta and epsilon.

    Raises:
      PlanError: a kind of unit has moments that are not known to be finite.
    """
    del delta, epsilon, enough
    at = orders(self.max_order)
    array = np.asarray(at)
    log_moments_at = total_log_moments(phases, direction, at)
    return RenyiCurve(array, log_moments_at / (array - 1))


@dataclasses.dataclass(frozen=True)
class Moments(_MomentAccountant):
  """The moments accountant of [S], by the moments of the tight profiles.

  Attributes:
    max_order: the largest lambda.
  """

  max_order: int = 256

  name = "moments"

  def curve(
      self,
      phases: base.Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> MomentsCurve:
    """See `accountants.Accountant`; as precise at every delta and epsilon.

    Raises:
      PlanError: a kind of unit has moments that are not known to be finite.
    """
    del delta, epsilon, enough
    at: Sequence[int] = range(1, self.max_order + 1)
    # E_P exp(lambda * loss) is the moment of order lambda + 1 under Q.
    alpha = total_log_moments(
        phases, direction, tuple(power + 1.0 for power in at)
    )
    return MomentsCurve(np.asarray(at, float), alpha)
