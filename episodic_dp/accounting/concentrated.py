"""Gaussian and concentrated differential privacy of a composed run.

Without any use of sampling: a step whose divergences are at most those of N(d)
against N(0) is d-GDP and d^2/2-zCDP, a loss of at most e is
2 Phi^-1(1 / (1 + e^-e))-GDP and e^2/2-zCDP (chords of a convex function lie
above it; Bun and Steinke, "Concentrated Differential Privacy", TCC 2016), mu
add up in squares and rho add up. These hold for every a and every order;
sampling cannot lower them, as the rarest outputs are those in which the unit
was drawn every time. Up to an order it does: `truncated_rho` has rho with
D_l <= rho l for every l in (1, order], since (l - 1) D_l is convex in l and so
lies below its chords.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from episodic_dp.accounting.accountants import log_moments
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import laplace
from episodic_dp.accounting.profiles import unit_profile

# Up to which orders rho is told.
ORDERS = (2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256, 512)
# A fine ladder of orders for chords: ratios of order - 1.
_LADDER_RATIO = 1.08
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Concentrated:
  """What holds at every error and every order.

  Attributes:
    mu: of Gaussian differential privacy.
    rho: of zero-concentrated differential privacy.
  """

  mu: float
  rho: float


def of(run: Phases) -> Concentrated | None:
  """mu and rho of a run; None where a profile has no Gaussian tail."""
  squares = rho = 0.0
  for phase in run:
    found = [_one(unit) for unit in phase.unit_profiles]
    if any(pair is None for pair in found):
      return None
    pairs = [pair for pair in found if pair is not None]
    squares += phase.times * max(mu for mu, _ in pairs) ** 2
    rho += phase.times * max(own for _, own in pairs)
  up = 1 + _ROUNDING
  return Concentrated(math.sqrt(squares) * up, rho * up)


def _one(unit: unit_profile.UnitProfile) -> tuple[float, float] | None:
  if isinstance(unit, laplace.Laplace):
    loss = unit.distance
    # Phi^-1(1 / (1 + e^-e)), from the smaller tail.
    mu = -2 * float(special.ndtri_exp(-np.logaddexp(0.0, loss)))
    return mu, loss**2 / 2
  if unit.tail is None or unit.tail[0] > 1:
    return None
  weight, distance = unit.tail
  return (distance, distance**2 / 2) if weight > 0 else (0.0, 0.0)


def truncated_rho(run: Phases, orders: Sequence[int] = ORDERS) -> list[float]:
  """rho with D_l <= rho l for l in (1, order], one for each order.

  Raises:
    PlanError: the run has no bound on its moments.
  """
  ladder = _ladder(orders)
  moments = np.max(
      [
          sum(
              (
                  phase.times
                  * log_moments.log_moments(
                      phase.unit_profiles, direction, ladder
                  )
                  for phase in run
              ),
              start=np.zeros(len(ladder)),
          )
          for direction in amplification.DIRECTIONS
      ],
      axis=0,
  )
  at = np.concatenate([[1.0], ladder])
  value = np.concatenate([[0.0], moments])
  steepest = [
      _steepest(at[i], at[i + 1], value[i], value[i + 1])
      for i in range(len(ladder))
  ]
  # The ladder has all orders asked for among its points.
  return [
      max(steepest[: ladder.index(float(order)) + 1]) * (1 + _ROUNDING)
      for order in orders
  ]


def _ladder(orders: Sequence[int]) -> tuple[float, ...]:
  """Orders above 1, dense, with the given ones among them."""
  last = max(orders)
  count = math.ceil(math.log(last / 0.002) / math.log(_LADDER_RATIO))
  small = 1 + np.geomspace(0.002, last - 1, count)
  found = {*small.tolist(), *map(float, orders)}
  return tuple(sorted(order for order in found if order <= last))


def _steepest(
    low: float, high: float, at_low: float, at_high: float
) -> float:
  """The largest k(l) / (l (l - 1)) for the chord k from low to high."""
  slope = (at_high - at_low) / (high - low)
  start = at_low - slope * low  # k = start + slope l
  if low == 1.0:  # k = slope (l - 1)
    return slope
  candidates = [low, high]
  # The derivative is 0 where -slope l^2 - 2 start l + start = 0.
  inside = start * start + start * slope
  if slope and inside >= 0:
    root = math.sqrt(inside)
    candidates += [
        x
        for x in ((-start + root) / slope, (-start - root) / slope)
        if low < x < high
    ]
  return max((start + slope * x) / (x * (x - 1)) for x in candidates)
