"""A unit inside a primary unit under random allocation.

In a pass of `RandomAllocation` a primary unit u is drawn in one step, and what
is drawn inside it is drawn there, once. For a unit t inside u let A, B and B'
be the outputs of the pass when t's parent is not drawn, when it is drawn
without t, and when it is drawn with t; with q and p the rates of t's parent
inside u and of t inside its parent, coupling everything else,

  P = (1 - q) A + q (1 - p) B + q p B',   Q = (1 - q) A + q B.

A, B and B' are passes with other data in u. Each is close to the pass without u
(`allocation`: R, to take u out, and S, to put it in), so that any two of them,
X and Y, are close by way of it: for every beta = b c with b, c >= 1

  H_beta(X || Y) <= R(b) + b S(c);   D(beta) = the least of these bounds.

D is the profile that belongs to the composed trade-off functions: for sets of
which Y holds at most x, the pass without u at most G_S(x) and X at most
G_R(G_S(x)), D(beta) = sup over x of G_R(G_S(x)) - beta x, by minimax. So D is
convex. The proof for `Amplification` of equal distances uses no more of the
Gaussian divergence than that it bounds the divergence of any two of A, B, B'
and is convex; with D in its place

  remove  q p D((alpha - 1 + q p) / (q p)),
  add     w D((alpha - 1 + w) / w),   w = q (1 - alpha (1 - p)).
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification

# D is tabulated at these values of ln beta; chords of a convex function lie
# above it.
_POINTS = np.concatenate([np.linspace(0, 4, 401), np.geomspace(4.01, 1e4, 200)])
_HALVINGS = 48


@dataclasses.dataclass(frozen=True, kw_only=True)
class NestedAllocation:
  """A unit inside the primary units of a pass, which is taken as one step.

  Attributes:
    whole: what the pass does to the primary unit.
    parent_rate: q, that the unit's parent is drawn, given its primary unit.
    rate: p, that the unit is drawn, given its parent.
  """

  whole: allocation.Allocation
  parent_rate: float
  rate: float

  @property
  def tail(self) -> tuple[float, float]:
    """(weight, d): if the step were known, the sum would move by 2 d."""
    return self.parent_rate * self.rate, 2 * self.whole.distance

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""
    return {
        **self.whole.as_dict(),
        "kind": "exchange",
        "parent_rate": self.parent_rate,
        "own_rate": self.rate,
    }

  def divergence(
      self, log_alpha: np.ndarray, direction: amplification.Direction
  ) -> np.ndarray:
    """H_alpha of the pass in the direction, for alpha >= 1.

    Args:
      log_alpha: float64[n] of ln alpha >= 0.
      direction: "remove" or "add", of the unit.

    Returns:
      float64[n], an upper bound, convex in alpha.
    """
    log_alpha = np.asarray(log_alpha, float)
    q, p = self.parent_rate, self.rate
    if direction == "remove":
      weight = np.full_like(log_alpha, q * p)
    else:
      excess = np.expm1(np.minimum(log_alpha, 700.0))
      weight = q * np.maximum(p - excess * (1 - p), 0.0)
    result = np.zeros_like(log_alpha)
    some = weight > 0
    log_beta = np.logaddexp(
        0.0,
        amplification.log_expm1(log_alpha[some]) - np.log(weight[some]),
    )
    result[some] = weight[some] * _changed(self.whole, log_beta)
    return result


def _changed(
    whole: allocation.Allocation, log_beta: np.ndarray
) -> np.ndarray:
  """D at ln beta >= 0."""
  points, values = _table(whole)
  right = np.clip(np.searchsorted(points, log_beta), 1, points.size - 1)
  low, high = points[right - 1], points[right]
  at = np.minimum(log_beta, high)
  share = np.exp(at - high) * np.expm1(low - at) / np.expm1(low - high)
  return values[right - 1] * (1 - share) + values[right] * share


@functools.lru_cache(maxsize=32)
def _table(
    whole: allocation.Allocation,
) -> tuple[np.ndarray, np.ndarray]:
  """D at `_POINTS`, the least over b by halving: any b is an upper bound."""

  def bound(log_b: np.ndarray) -> np.ndarray:
    rest = np.maximum(_POINTS - log_b, 0.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
      back = np.exp(log_b + np.log(whole.divergence(rest, "add")))
    return whole.divergence(log_b, "remove") + np.nan_to_num(back, nan=np.inf)

  low, high = np.zeros_like(_POINTS), _POINTS.copy()
  best = np.minimum(bound(low), bound(high))
  golden = (math.sqrt(5) - 1) / 2
  for _ in range(_HALVINGS):
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = bound(left), bound(right)
    best = np.minimum(best, np.minimum(at_left, at_right))
    smaller = at_left < at_right
    low, high = np.where(smaller, low, left), np.where(smaller, right, high)
  # D falls with beta, and is at most 1.
  return _POINTS, np.minimum.accumulate(np.minimum(best, 1.0))
