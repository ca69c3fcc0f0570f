"""A guarantee in the other languages of privacy, each an upper bound on loss.

From points (epsilon, delta) that hold, in both directions at once:

  trade-off  f(a), the least error of the second kind of any test, of "with the
             unit" against "without" or the reverse, whose error of the first
             kind is at most a: the largest of 1 - delta - e^epsilon a and
             e^-epsilon (1 - delta - a) over all points, and of 0;
  mu         the least mu for which Phi(Phi^-1(1 - a) - mu) <= f(a) wherever
             both errors are at least a stated one. f is linear between the
             corners of its lines and the Gaussian's trade-off is convex, so
             that the corners decide.

`concentrated` has what does not depend on sampling, and rho up to an order.
"""

from collections.abc import Callable, Sequence
import csv
import dataclasses
import io
import math
from typing import Any

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import concentrated
from episodic_dp.accounting import foreign as foreign_lib
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report

# The deltas at which a curve is asked for, smallest last.
DELTAS = tuple(
    float(f"{10.0**-x:.6g}") for x in np.concatenate([
        np.linspace(0.05, 1, 12), np.linspace(1.25, 12, 44)
    ])
)
# More points are asked for where they lower mu, so many at most.
_MORE = 12
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
  """Pairs that hold, in both directions.

  Attributes:
    epsilon: float64[n], rising from 0.
    delta: float64[n], falling.
  """

  epsilon: np.ndarray
  delta: np.ndarray

  @classmethod
  def of(
      cls,
      epsilon_at: Callable[[float], float],
      delta_at_zero: float,
      deltas: Sequence[float] = DELTAS,
  ) -> "Points":
    """Ask a guarantee at many deltas.

    Args:
      epsilon_at: delta -> an epsilon that holds, or infinity.
      delta_at_zero: a delta that holds at epsilon = 0.
      deltas: in (0, 1).
    """
    pairs = [(0.0, delta_at_zero)]
    for delta in sorted(deltas, reverse=True):
      if delta >= delta_at_zero:
        continue
      epsilon = epsilon_at(delta)
      if not math.isfinite(epsilon):
        break
      # What holds at a smaller delta holds here: epsilon rises.
      pairs.append((max(epsilon, pairs[-1][0]), delta))
    epsilons, values = zip(*pairs)
    return cls(np.asarray(epsilons), np.asarray(values))

  def with_pair(self, epsilon: float, delta: float) -> "Points":
    """The points and one more that holds."""
    at = int(np.searchsorted(-self.delta, -delta))
    return Points(
        np.maximum.accumulate(np.insert(self.epsilon, at, epsilon)),
        np.insert(self.delta, at, delta),
    )


def trade_off(points: Points, alpha: np.ndarray) -> np.ndarray:
  """f at errors of the first kind, float64[n]: see the module's docstring."""
  a = np.asarray(alpha, float)[:, None]
  # Epsilons whose exponential is no number have lines that say nothing.
  slope = np.exp(np.minimum(points.epsilon, 700.0))
  rest = 1 - points.delta
  first = (rest - slope * a).max(axis=1)
  second = ((rest - a) / slope).max(axis=1)
  return np.maximum(np.maximum(first, second), 0.0)


def gaussian_trade_off(mu: float, alpha: np.ndarray) -> np.ndarray:
  """Phi(Phi^-1(1 - a) - mu), that of N(mu) against N(0)."""
  return special.ndtr(-special.ndtri(np.asarray(alpha, float)) - mu)


def least_mu(points: Points, alpha_from: float) -> float:
  """mu of the module's docstring, where both errors are at least `alpha_from`.

  Raises:
    PlanError: alpha_from is not in (0, 1/2).
  """
  return _least_mu(points, alpha_from)[0]


def _least_mu(points: Points, alpha_from: float) -> tuple[float, float]:
  """`least_mu`, and the error of the first kind that decides it."""
  if not 0 < alpha_from < 0.5:
    raise plan_lib.PlanError(
        f"alpha_from {alpha_from!r} must lie between 0 and 1/2"
    )
  # By symmetry of both, only up to where f(a) = a.
  middle = (1 - float(points.delta[0])) / 2
  if middle <= 0:
    return math.inf, middle
  if middle <= alpha_from:  # Two errors of alpha_from may be attained.
    return -2 * float(special.ndtri(alpha_from)) * (1 + _ROUNDING), middle
  corners = [
      a for a in _corners(points) if alpha_from < a < middle
  ]
  at = np.asarray([alpha_from, *corners, middle])
  gaps = -special.ndtri(at) - special.ndtri(trade_off(points, at))
  worst = int(gaps.argmax())
  return max(0.0, float(gaps[worst])) * (1 + _ROUNDING), float(at[worst])


def _refined(
    points: Points, epsilon_at: Callable[[float], float], alpha_from: float
) -> Points:
  """The points, and some more where the lines leave mu too large."""
  best, at = _least_mu(points, alpha_from)
  for _ in range(_MORE if points.delta.size > 1 else 0):
    lines = 1 - points.delta - np.exp(np.minimum(points.epsilon, 700.0)) * at
    one, other = points.delta[np.argsort(lines)[-2:]].tolist()
    if math.isinf(best) or max(one, other) < 1.02 * min(one, other):
      break
    delta = math.sqrt(one * other)
    points = points.with_pair(epsilon_at(delta), delta)
    best, at = _least_mu(points, alpha_from)
  return points


def _corners(points: Points) -> list[float]:
  """Where the largest of the lines 1 - delta - e^epsilon a bends."""
  lines = [
      (-math.exp(e), 1 - d)
      for e, d in zip(points.epsilon.tolist(), points.delta.tolist())
      if e < 700
  ]
  hull: list[tuple[float, float]] = []
  for line in sorted(set(lines)):  # The steepest first.
    while hull and (
        hull[-1][1] <= line[1]
        or len(hull) > 1
        and _meet(hull[-2], line) <= _meet(hull[-2], hull[-1])
    ):
      hull.pop()
    hull.append(line)
  return [_meet(a, b) for a, b in zip(hull, hull[1:])]


def _meet(one: tuple[float, float], other: tuple[float, float]) -> float:
  if one[0] == other[0]:
    return -math.inf
  return (one[1] - other[1]) / (other[0] - one[0])


# All of it --------------------------------------------------------------------


def export(
    ledger: ledger_lib.Ledger,
    level: str,
    *,
    delta: float,
    group: int = 1,
    deltas: Sequence[float] = DELTAS,
) -> dict[str, Any]:
  """A level's guarantee as curves and as single numbers; plain data for JSON.

  Args:
    ledger: what was released.
    level: the privacy unit.
    delta: of the stated epsilon, and the error from which `mu` holds.
    group: how many units are added or removed together.
    deltas: at which the curve is asked for.

  Returns:
    "epsilon_delta" and "trade_off", lists of pairs; "gaussian" with mu, the
    errors `alpha_from` from which it holds, and `mu_every_error`; "zcdp" with
    rho for every order and up to some ("truncated"); None for what is not
    known; and what the guarantee assumes. The last numbers are of the plan's
    own sampler, from which the one that draws is `sampler_variation` away.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: a value is out of range.
  """
  stated = ledger.guarantee(level, delta=delta, group=group)
  zero = ledger.guarantee(level, epsilon=0.0, group=group).delta

  def epsilon_at(other: float) -> float:
    return ledger.guarantee(level, delta=other, group=group).epsilon

  # A group's bounds take a second each.
  asked = deltas if group == 1 else deltas[::3]
  points = Points.of(epsilon_at, zero, sorted({*asked, delta}))
  alpha_from = min(delta, 0.49)
  if group == 1:
    points = _refined(points, epsilon_at, alpha_from)
  alpha = np.concatenate([
      [0.0], np.geomspace(1e-9, 0.1, 60, endpoint=False),
      np.linspace(0.1, 1.0, 91),
  ])
  every, truncated = _moments(ledger, level, group)
  mu = least_mu(points, alpha_from)
  if every is not None:
    mu = min(mu, every.mu + _moved(ledger.sampler_variation, alpha_from))
  return {
      "level": level,
      "neighbours": stated.neighbours,
      "accountant": stated.accountant,
      "epsilon": _number(stated.epsilon),
      "delta": delta,
      "epsilon_delta": _pairs(points.epsilon, points.delta),
      "trade_off": _pairs(alpha, trade_off(points, alpha)),
      "gaussian": {
          "mu": _number(mu),
          "alpha_from": alpha_from,
          "mu_every_error": None if every is None else every.mu,
      },
      "zcdp": {
          "rho": None if every is None else every.rho,
          "truncated": truncated,
      },
      "sampler_variation": ledger.sampler_variation,
      "caveat": stated.caveat,
      "assumptions": list(stated.assumptions),
  }


def _moments(
    ledger: ledger_lib.Ledger, level: str, group: int
) -> tuple[concentrated.Concentrated | None, list[dict[str, float]] | None]:
  """What holds without sampling, and up to an order; None where unknown."""
  runs = foreign_lib.routes(
      ledger.entries, ledger.foreign, level, ledger.levels
  )
  found = [c for c in map(concentrated.of, runs) if c is not None]
  every = None
  if found:
    # k units one after the other: mu adds up, and rho grows with its square.
    every = concentrated.Concentrated(
        group * min(c.mu for c in found), group**2 * min(c.rho for c in found)
    )
  if group > 1 or not runs:
    return every, None
  rows = []
  for run in runs:
    try:
      rows.append(concentrated.truncated_rho(run))
    except plan_lib.PlanError:  # Its moments may be infinite.
      continue
  if not rows:
    return every, None
  least = np.min(rows, axis=0)
  if every is not None:
    least = np.minimum(least, every.rho)
  return every, [
      {"order": order, "rho": float(rho)}
      for order, rho in zip(concentrated.ORDERS, least)
  ]


def _moved(variation: float, alpha_from: float) -> float:
  """What a sampler that is a variation off adds to mu, errors from alpha_from.

  Each error moves by at most the variation v, and Phi^-1 between a - v and a by
  at most v over the density at a - v; there are two of them.
  """
  if variation == 0:
    return 0.0
  if 2 * variation >= alpha_from:
    return math.inf
  at = float(special.ndtri(alpha_from - variation))
  return 2 * variation * math.sqrt(2 * math.pi) * math.exp(at * at / 2)


def csv_text(header: Sequence[str], pairs: Sequence[Sequence[float]]) -> str:
  """Pairs as CSV, digits enough to be read back the same."""
  out = io.StringIO()
  writer = csv.writer(out, lineterminator="\n")
  writer.writerow(header)
  writer.writerows([repr(value) for value in pair] for pair in pairs)
  return out.getvalue()


def sentence(data: dict[str, Any]) -> str:
  """What `export` found, in a line for people."""
  gaussian, zcdp = data["gaussian"], data["zcdp"]
  parts = []
  if isinstance(gaussian["mu"], float):
    parts.append(
        f"{report.rounded_up(gaussian['mu'])}-GDP for errors of at least"
        f" {gaussian['alpha_from']:g}"
    )
  if gaussian["mu_every_error"] is not None:
    parts.append(
        f"{report.rounded_up(gaussian['mu_every_error'])}-GDP and"
        f" {report.rounded_up(zcdp['rho'])}-zCDP without exception"
    )
  for row in zcdp["truncated"] or ():
    if row["order"] == 16:
      parts.append(f"{report.rounded_up(row['rho'])}-zCDP up to order 16")
  return f"{data['level']}: {', '.join(parts) or 'no finite bound'}"


def _pairs(first: np.ndarray, second: np.ndarray) -> list[list[float]]:
  return [list(pair) for pair in zip(first.tolist(), second.tolist())]


def _number(value: float) -> float | str:
  return value if math.isfinite(value) else "inf"
