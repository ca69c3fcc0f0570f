"""The trade-off curve of a guarantee: an attacker's largest gain.

An attacker sees the result of a run, and guesses whether a unit took part. Let
x be the probability of a wrong "yes" and 1 - y that of a right "yes". If
(epsilon, delta) holds in the direction "remove", and (epsilon, delta') in the
direction "add", then

  y >= 1 - delta - e^epsilon x   and   x >= 1 - delta' - e^epsilon y

(Dong, Roth and Su, "Gaussian Differential Privacy", 2022, proposition 2.5, for
each direction alone). All points of the privacy curve hold together, so the
largest of these lines is a lower bound on y. Fewer points give a lower bound
that is smaller, never one that is too large. The attacker may ask instead
whether the unit was absent, which exchanges the directions; the larger gain of
both counts.

A Gaussian trade-off curve G_mu, that of N(0, 1) against N(mu, 1), covers a
curve if its delta is at least the curve's at every epsilon. Between two points
the curve's delta is below their chord, since it is convex in u = e^epsilon. The
chord is the line 1 - y - u x through one point (x, y), and the Gaussian's delta
is the largest 1 - G_mu(x) - u x over all x. So G_mu covers the segment if
G_mu(x) <= y:

  mu >= Phi^-1(1 - x) - Phi^-1(y).

The largest of these numbers covers all segments.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
from typing import Any

import numpy as np
import scipy

from episodic_dp import _validate
from episodic_dp import plain

# The spacing of the points of a curve, in ln(delta / (1 - delta)).
_SPACING = 0.1
# Deltas below this share of the false-positive rate do not matter to it.
_LITTLE = 1e-3
_LEAST_DELTA, _MOST_LOG_ODDS = 1e-12, 30.0
# Shares of a chord's slope to try.
_LOG_SHARES = -math.log(2) * np.arange(4)[:, None]
# A share that covers rounding errors, which are far smaller.
_ROUNDING = 1e-9

Costs = Callable[[float | None, float | None], Mapping[str, float]]
"""(delta, None) -> epsilons by direction, and (None, epsilon) -> deltas."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack:
  """The largest gain of any attacker, whatever they know.

  Attributes:
    false_positive_rate: the probability that the attacker is wrong about a unit
      that did not take part (or, if they ask for absence, that did).
    true_positive_rate: the largest probability of being right about a unit that
      did; without a run it would be the false-positive rate.
    gaussian_mu: the least mu whose Gaussian trade-off curve covers the
      guarantee's down to `gaussian_delta`; infinity if none does.
    gaussian_delta: delta(epsilon) is at most that of the Gaussian, or this.
    neighbours: as in `Guarantee`.
    caveat: as in `Guarantee`.
    assumptions: those of the guarantee.
  """

  false_positive_rate: float
  true_positive_rate: float
  gaussian_mu: float
  gaussian_delta: float
  neighbours: str
  caveat: str
  assumptions: tuple[str, ...]

  def as_dict(self) -> dict[str, Any]:
    """Return plain data for JSON; an infinite mu is the text "inf"."""
    return plain.to_plain(self)


@dataclasses.dataclass(frozen=True)
class Points:
  """Points of the privacy curve in one direction, by ascending epsilon.

  As a function of e^epsilon the broken line through them is convex.

  Attributes:
    epsilons: float64[n], ascending from 0, finite.
    deltas: float64[n], descending.
  """

  epsilons: np.ndarray
  deltas: np.ndarray

  def gaussian_mu(self) -> float:
    """Return a mu that covers the curve between its points, 0 for one point."""
    # A line that falls less, from the same point, is above the chord too.
    log_x = log_slopes(self.epsilons, self.deltas) + _LOG_SHARES
    beyond = self.deltas[:-1] + np.exp(self.epsilons[:-1] + log_x)  # 1 - y
    mu = scipy.special.ndtri(np.minimum(beyond, 1.0))
    mu = mu - scipy.special.ndtri_exp(log_x)
    return float(mu.min(axis=0).max(initial=0.0)) * (1 + _ROUNDING)


def log_slopes(epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
  """Return ln of how steeply delta falls with e^epsilon, between points."""
  return (
      np.log(-np.diff(deltas)) - epsilons[1:]
      - np.log(-np.expm1(-np.diff(epsilons)))
  )


@functools.lru_cache(maxsize=8)
def points(costs: Costs, least: float) -> dict[str, Points]:
  """Compute the privacy curve from epsilon 0 down to a delta.

  Args:
    costs: of the run.
    least: the last delta, above 0.

  Returns:
    Direction -> its points. They end earlier if epsilon is infinite there.
  """
  starts = costs(None, 0.0)
  last = float(scipy.special.logit(least))
  first = scipy.special.logit(max(starts.values()))
  first = float(np.clip(first, last, _MOST_LOG_ODDS))
  number = max(2, math.ceil((first - last) / _SPACING))
  grid = scipy.special.expit(np.linspace(first, last, number)).tolist()
  sampled = [(delta, costs(delta, None)) for delta in grid]
  return {
      way: _convex(start, [(each[way], delta) for delta, each in sampled])
      for way, start in starts.items()
  }


def _convex(start: float, rows: list[tuple[float, float]]) -> Points:
  """Leave out points above a chord of others, as the curve is convex.

  Args:
    start: a bound on delta at epsilon 0.
    rows: epsilon and delta of points, by descending delta.
  """
  # At u = 0, delta is 1: the chord from there may be lower at u = 1.
  for epsilon, delta in rows:
    start = min(start, 1 - (1 - delta) * math.exp(-epsilon))
  kept = [(0.0, start)]
  for epsilon, delta in rows:
    if not (kept[-1][0] < epsilon < math.inf and delta < kept[-1][1]):
      continue
    kept.append((epsilon, delta))
    while len(kept) > 2:
      before, after = log_slopes(*np.transpose(kept[-3:]))
      if before > after:
        break
      del kept[-2]
  return Points(*np.transpose(kept))


def true_positive_rate(curve: Mapping[str, Points], rate: float) -> float:
  """Bound the true-positive rate at a false-positive rate."""
  largest = 0.0
  for way, other in (("remove", "add"), ("add", "remove")):
    gain, loss = curve[way], curve[other]
    with np.errstate(over="ignore"):
      above = np.exp(gain.epsilons) * rate + gain.deltas
    below = 1 - np.exp(-loss.epsilons) * (1 - rate - loss.deltas)
    largest = max(largest, float(min(above.min(), below.min())))
  return min(1.0, largest * (1 + _ROUNDING))


def attack(
    costs: Costs,
    delta: float,
    rate: float,
    *,
    neighbours: str,
    caveat: str,
    assumptions: tuple[str, ...],
) -> Attack:
  """Compute what an attacker gains.

  Args:
    costs: of the run.
    delta: the delta down to which a Gaussian has to cover the curve.
    rate: the false-positive rate.
    neighbours: of the guarantee.
    caveat: of the guarantee.
    assumptions: of the guarantee.

  Raises:
    PlanError: the rate is not in (0, 1).
  """
  _validate.fraction("false_positive_rate", rate)
  delta = min(max(delta, _LEAST_DELTA), 0.5)
  least = min(delta, max(_LITTLE * rate, _LEAST_DELTA))
  curve = points(costs, delta)
  mu = max(part.gaussian_mu() for part in curve.values())
  if math.isinf(max(costs(delta, None).values())):
    mu = math.inf
  if least < delta:
    curve = points(costs, least)
  return Attack(
      false_positive_rate=rate,
      true_positive_rate=true_positive_rate(curve, rate),
      gaussian_mu=mu,
      gaussian_delta=delta,
      neighbours=neighbours,
      caveat=caveat,
      assumptions=assumptions,
  )
