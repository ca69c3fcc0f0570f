"""The best of a random number of runs: its profile and its moments.

Q is one run, made with hyperparameters that are drawn afresh; K runs are made,
and the one whose output is the best by a fixed order is released (ties are
broken by a fresh coin, so no two are equal). With f the generating function of
K, s = Q(better than y) and Q' the run on the neighbour, the released y has the
density

  A(y) = Q(y) f'(1 - s(y)),     f'(1) = m = E K.

*Truncated negative binomial* (shape e, g): f'(1 - s) = m (g / u)^(e+1) with
u = g + (1 - g) s, itself the probability, under Q, of "better than y, or else a
coin of g": what Q's guarantee says of events holds for u too, so that

  f'(1 - s) / f'(1 - s') = (u' / u)^(e+1).

  Profile.  u' <= g + (1-g)(e^a s + D(a)), D the profile of Q' against Q, and
  u >= g, so u'/u <= e^a + (1-g) D(a) / g for every a >= 0. With c = (e+1) ln of
  the least such bound, A - e^x A' <= f'(1 - s) (Q - e^(x-c) Q'), and
  f' <= m:   H_(e^x)(A || A') <= m H_(e^(x-c))(Q || Q').
  Moments.  Renyi's divergence R of order h of Q' against Q gives
  u' <= (u e^R)^(1 - 1/h), so u'/u <= e^(R (1 - 1/h)) g^(-1/h), and

    E (A/A')^l under A'  =  integral Q^l Q'^(1-l) f'(1-s) (u'/u)^((e+1)(l-1))
      <= m e^((l-1) (e+1) ((1 - 1/h) R + ln(1/g) / h)) E (Q/Q')^l under Q'

  for every order h: theorem 2 of Papernot and Steinke, "Hyperparameter Tuning
  with Renyi Differential Privacy" (ICLR 2022), with directions told apart.

*Poisson* (mean m): f'(1 - s) = m e^(-m s), and s' - s <= (e^a - 1) s + D(a).

  Profile.  a = 0: f'(1-s) / f'(1-s') <= e^(m D(0)), so c = m D(0) above.
  Moments.  With e^a = 1 + 1/(l-1) the exponent -m s + (l-1) m (s' - s) is at
  most (l-1) m D(a) (their theorem 6); no run at all adds e^-m.

Where candidates differ in what they cost, each bound on Q is the largest of
theirs (joint convexity). Everything holds for H and R of either direction, with
the other direction's D and R beside it.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from episodic_dp.accounting import run_counts
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.accountants import log_moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles.amplification import Direction

# A candidate's profile is precise near these deltas, and a bound everywhere.
_DELTAS = (1e-1, 1e-3, 1e-6, 1e-9, 1e-13, 1e-20, 1e-32, 1e-50)
_POINTS = 513
_MAX_ORDER = 512


@dataclasses.dataclass(frozen=True)
class PrivateSelection:
  """What selection among runs does to one kind of unit; a `UnitProfile`.

  Attributes:
    candidates: of each candidate the ways to compose its run; the best of them
      counts.
    runs: how many runs are made.
  """

  candidates: tuple[tuple[Phases, ...], ...]
  runs: run_counts.RunCount

  @property
  def tail(self) -> None:
    """None: its moments are bounded on their own."""

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""
    return {
        "kind": "selection",
        "runs": run_counts.to_dict(self.runs),
        "candidates": [
            [
                {"times": phase.times, **unit.as_dict()}
                for phase in ways[0]
                for unit in phase.unit_profiles
            ]
            for ways in self.candidates
        ],
    }

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """An upper bound on H_alpha, float64[n], for alpha >= 1."""
    shift = _shift(self, direction)
    x = np.asarray(log_alpha, float) - shift
    value = np.where(x < 0, -np.expm1(np.minimum(x, 0.0)), 0.0)
    above = x >= 0
    value[above] = _table(self.candidates, direction).at(x[above])
    below = _table(self.candidates, _other(direction)).at(-x[~above])
    value[~above] += np.exp(x[~above]) * below
    return np.minimum(self.runs.mean * value, 1.0)

  def log_moments(
      self, direction: Direction, orders: tuple[float, ...]
  ) -> np.ndarray:
    """ln E_Q (P/Q)^order or more, float64[orders], for orders above 1."""
    one = _log_moments(self.candidates, direction, orders)
    step = np.asarray(orders) - 1
    mean = self.runs.mean
    if isinstance(self.runs, run_counts.PoissonRuns):
      table = _table(self.candidates, _other(direction))
      moved = mean * table.at(np.log1p(1 / step))
      log_some = math.log(mean) + one + step * moved
      return np.maximum(np.logaddexp(-mean, log_some), 0.0)
    at = rdp.orders(_MAX_ORDER)
    order = np.asarray(at)
    renyi = _log_moments(self.candidates, _other(direction), at) / (order - 1)
    shift = (1 - 1 / order) * renyi - math.log(self.runs.gamma) / order
    # An order near 1 says no more than u'/u <= 1/g.
    best = min(float(shift.min()), -math.log(self.runs.gamma))
    return one + step * (self.runs.shape + 1) * best + math.log(mean)


@dataclasses.dataclass(frozen=True, eq=False)
class _Table:
  """A profile by its chords: an upper bound, as it is convex in alpha.

  Attributes:
    log_alpha: float64[n], rising from 0.
    value: float64[n], falling. Beyond the last point it stays.
  """

  log_alpha: np.ndarray
  value: np.ndarray

  def at(self, log_alpha: np.ndarray) -> np.ndarray:
    """float64[n], for alpha >= 1."""
    points, value = self.log_alpha, self.value
    right = np.clip(np.searchsorted(points, log_alpha), 1, points.size - 1)
    low, high = points[right - 1], points[right]
    x = np.minimum(log_alpha, points[-1])
    share = np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
    return value[right - 1] * (1 - share) + value[right] * share


def _other(direction: Direction) -> Direction:
  return "add" if direction == "remove" else "remove"


@functools.lru_cache(maxsize=32)
def _table(
    candidates: tuple[tuple[Phases, ...], ...], direction: Direction
) -> _Table:
  """The largest profile of any candidate."""
  exact = pld.PLD()
  found = [
      curves.Least(tuple(
          exact.curve(run, direction, delta=delta)
          for run in ways
          for delta in _DELTAS
      ))
      for ways in candidates
  ]
  ends = [
      curve.epsilon(delta * (1 + 1e-6))
      for curve in found
      for delta in _DELTAS
  ]
  far = max((end for end in ends if math.isfinite(end)), default=1.0)
  points = np.linspace(0.0, max(1.1 * far, 1e-3), _POINTS)
  values = [
      max(curve.delta(float(point)) for curve in found) for point in points
  ]
  return _Table(points, np.minimum.accumulate(values))


@functools.lru_cache(maxsize=64)
def _shift(selection: PrivateSelection, direction: Direction) -> float:
  """c: by how much the profile of one run is moved."""
  table = _table(selection.candidates, _other(direction))
  runs = selection.runs
  if isinstance(runs, run_counts.PoissonRuns):
    return runs.mean * float(table.value[0])
  bound = np.logaddexp(
      table.log_alpha,
      np.log(np.maximum(table.value, 1e-300) * (1 - runs.gamma) / runs.gamma),
  )
  # However far the runs are apart, u'/u <= 1/g.
  best = min(float(bound.min()), -math.log(runs.gamma))
  return (runs.shape + 1) * best


def _log_moments(
    candidates: tuple[tuple[Phases, ...], ...],
    direction: Direction,
    orders: tuple[float, ...],
) -> np.ndarray:
  """ln of the largest moments of any candidate, each by its best way."""

  def of(run: Phases) -> np.ndarray:
    parts = [
        phase.times
        * log_moments.log_moments(phase.unit_profiles, direction, orders)
        for phase in run
    ]
    return np.sum(parts, axis=0)

  return np.max(
      [np.min([of(run) for run in ways], axis=0) for ways in candidates],
      axis=0,
  )
