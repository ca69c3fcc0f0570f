"""Privacy amplification by multistage sampling: the tight one-step profile.

Notation. A privacy unit t has own rate p (given that its parent is sampled) and
a parent that is sampled with probability q = r_1 ... r_(l-1). One step releases
a clipped sum with Gaussian noise. In units of the noise's standard deviation
the outputs with and without t (parent sampled) are within `unit_sensitivity`.
If the path to the parent breaks at stage j, with probability w_j = r_1 ...
r_(j-1) (1 - r_j), they are within `outer_distances[j]` of both.

With P = M(T), Q = M(T - t), and for alpha >= 1, coupling all other randomness
gives the hockey-stick divergences (Balle, Barthe and Gaboardi, NeurIPS 2018,
for the term)

  remove  H_alpha(P || Q):  weight A = q p  against
          (alpha - 1) w_j  at outer_distances[j]  and
          q (alpha - 1 + p)  at unit_sensitivity,
  add     H_alpha(Q || P):  weight A = q (1 - alpha (1 - p))  against
          (alpha - 1) w_j  at outer_distances[j]  and
          alpha q p  at unit_sensitivity.

Since [x + y]_+ <= [x]_+ + [y]_+, A may be split among the negative weights k_i
in any way: sum_i V(u_i, k_i, d_i) with sum_i u_i = A is an upper bound, where
V(u, k, d) = u H_(k/u)(N(d) || N(0)). V is convex in u with slope
Phi(d/2 - ln(k/u)/d), so the best split makes all slopes equal:

  u_i = k_i exp(d_i x - d_i^2 / 2)  with the one x for which they sum to A,

for any number of distances. The sum is then
max over x of  A Phi(x) - sum_i k_i Phi(x - d_i), the divergence of outputs on
one line on the same side. The bound is attained if such outputs are possible.
From this form, and because it is affine in every rate and zero where a rate is
zero, the profile never decreases with a rate or a distance.

Replace-one. T and T'' have equal sizes, and t has other data in T''. With equal
random numbers elsewhere, the outputs are N(b') with t, N(b'') with its other
data, and N(b) or N(a_j) without t, in both. These are the outputs for a unit
one level below t that is replaced for certain: t's own stage is one more outer
stage, with weight q (1 - p) at N(b), and the own rate is 1. Both directions are
then equal.

When all distances are equal this is W(A, alpha) = A H_((alpha-1+A)/A), the
result that replaces Theorem 3 of Tombs, Kotevska and Young, "Privacy
Amplification for Episodic Training Methods" (2022).
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Literal

import numpy as np
import scipy

from episodic_dp.errors import UnsoundPlanError

Direction = Literal["remove", "add"]
DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")
OPPOSITE: dict[Direction, Direction] = {"remove": "add", "add": "remove"}

# A distance of zero is replaced by this one: larger, so never optimistic.
MIN_DISTANCE = 1e-9
# A share that covers rounding errors of a logarithm near the smallest doubles,
# which have few digits.
_LOG_ROUNDING = 1e-5
_NEWTON_STEPS = 60


def hockey_stick(
    log_alpha: np.ndarray, distance: float | np.ndarray
) -> np.ndarray:
  """Compute H_alpha(N(d, 1) || N(0, 1)) for alpha >= 1, exact in the tail.

  Phi(x) - alpha Phi(y) for x = d/2 - ln(alpha)/d and y = x - d, by scaled Mills
  ratios: alpha phi(y) = phi(x).

  Args:
    log_alpha: float64 array, >= 0 (infinity allowed).
    distance: d > 0.

  Returns:
    float64 array of the shape of log_alpha.
  """
  log_alpha = np.asarray(log_alpha, float)
  with np.errstate(over="ignore", invalid="ignore", under="ignore"):
    x = distance / 2 - log_alpha / distance
    y = x - distance
    first, second = scipy.special.erfcx(np.stack([-x, -y]) / math.sqrt(2))
    mills = first - second
    value = np.asarray(0.5 * np.exp(-x * x / 2) * mills)
    near = x > 0
    if near.any():
      log_beta = np.broadcast_to(log_alpha, x.shape)[near]
      right, left = x[near], y[near]
      value[near] = scipy.special.ndtr(right) - np.where(
          log_beta < 1e4,
          np.exp(log_beta + scipy.special.log_ndtr(left)),
          # The same, if the terms of that sum are too large to be exact.
          0.5 * np.exp(-right * right / 2)
          * scipy.special.erfcx(-left / math.sqrt(2)),
      )
  return np.where(np.isneginf(x), 0.0, np.clip(value, 0.0, 1.0))


def weighted(
    log_weight: np.ndarray,
    log_against: np.ndarray,
    distance: float | np.ndarray,
) -> np.ndarray:
  """Compute V(w, k, d) = w H_(k/w)(N(d) || N(0)); w at k = 0, 0 at w = 0.

  Computed as (w - k)_+ + min(w, k) H_exp(|ln k/w|), which loses no digits.
  """
  log_w, log_k = np.broadcast_arrays(log_weight, log_against)
  none = np.isneginf(log_w)
  with np.errstate(invalid="ignore"):
    ratio = np.where(none, 0.0, np.abs(log_k - log_w))
  low = np.minimum(log_w, log_k)
  with np.errstate(invalid="ignore"):
    gap = np.where(log_k < log_w, log_k - log_w, 0.0)
  surplus = np.exp(log_w) * -np.expm1(gap)
  return np.where(
      none, 0.0, surplus + np.exp(low) * hockey_stick(ratio, distance)
  )


def log_hockey_stick(
    log_alpha: np.ndarray, distance: float | np.ndarray
) -> np.ndarray:
  """Bound ln H_alpha(N(d, 1) || N(0, 1)) for alpha >= 1."""
  with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
    x = distance / 2 - log_alpha / distance
    first = scipy.special.erfcx(-x / math.sqrt(2))
    # alpha Phi(x - d) = phi(x) times this; rounding must not make it too large.
    second = scipy.special.erfcx((distance - x) / math.sqrt(2)) * (1 - 1e-14)
    tail = np.asarray(-x * x / 2 + np.log((first - second) / 2))
    near = x > 0  # Large enough for a double.
    tail[near] = np.log(
        hockey_stick(
            np.broadcast_to(log_alpha, x.shape)[near],
            np.broadcast_to(distance, x.shape)[near],
        )
    )
  return np.where(np.isneginf(x), -np.inf, tail)


def log_weighted(
    log_weight: np.ndarray,
    log_against: np.ndarray,
    distance: float | np.ndarray,
) -> np.ndarray:
  """Bound ln of w H_(k/w)(N(d) || N(0)); it is w if k is smaller than w."""
  with np.errstate(invalid="ignore"):
    ratio = log_against - log_weight
    value = log_weight + log_hockey_stick(np.maximum(ratio, 0.0), distance)
  value = np.where(ratio < 0, log_weight, value)
  return np.where(np.isneginf(log_weight), -np.inf, value)


def split(
    log_total: np.ndarray, log_k: np.ndarray, distances: np.ndarray
) -> np.ndarray:
  """Compute ln of k_i exp(d_i x - d_i^2 / 2), for x that gives the total.

  Args:
    log_total: float64[n], finite.
    log_k: float64[terms, n], at least one finite at every entry.
    distances: float64[terms, 1], above 0.

  Returns:
    float64[terms, n]; scaled, so that the sum is the total exactly.
  """
  d = distances
  # ln sum_i k_i exp(d_i x - d_i^2 / 2) is convex and increases with x. Each
  # term alone reaches the total right of the root: Newton's steps only descend.
  x = np.min((log_total - log_k) / d + d / 2, axis=0)
  for _ in range(_NEWTON_STEPS):
    parts = log_k + d * (x - d / 2)
    largest = parts.max(axis=0)
    shares = np.exp(parts - largest)
    sum_of_shares = shares.sum(axis=0)
    total = largest + np.log(sum_of_shares)
    slope = (shares * d).sum(axis=0) / sum_of_shares
    change = (total - log_total) / slope
    x = x - change
    if np.max(np.abs(change) / (1 + np.abs(x))) < 1e-14:
      break
  parts = log_k + d * (x - d / 2)
  return parts + (log_total - np.logaddexp.reduce(parts, axis=0))


def best_split(
    log_weight: np.ndarray, log_k: np.ndarray, distances: np.ndarray
) -> np.ndarray:
  """Minimise the sum of V(u_i, k_i, d_i) over the splits of one weight.

  Any split is an upper bound, so an inexact minimum is still one.

  Args:
    log_weight: float64[n], the logarithm of A (-inf for none).
    log_k: float64[terms, n], the logarithms of k_i; at least one finite at
      every entry.
    distances: float64[terms, 1], d_i > 0.

  Returns:
    float64[n].
  """
  if len(log_k) == 1:
    return weighted(log_weight, log_k[0], distances[0])
  value, some = np.zeros_like(log_weight), ~np.isneginf(log_weight)
  if some.any():
    log_k = log_k[:, some]
    parts = split(log_weight[some], log_k, distances)
    value[some] = weighted(parts, log_k, distances).sum(axis=0)
  return value


class UnitProfile:
  """The effect of one step on one type of privacy unit; frozen and hashable.

  Whatever a type of unit does not answer raises `NotImplementedError` (or
  `UnsoundPlanError` for a step that is assumed to be known): it is never
  composed as if it were of another type.

  Attributes:
    slow: whether chords are worth computing.
    certain: whether every step is one Gaussian at the distance of `tail`.
    in_passes: whether one "step" is a pass.
    least_exact: divergences below this may have lost digits. By default it is
      far above the constant in which chords end.
    counting: whether it counts clip units below the unit, or the places that
      hold it. If not, the unit is on one path of each step, for which the
      unmatched probability of the sampler's error is known (section 7 of the
      proof).
    families: number of families of a step in which neighbours may differ by one
      child.
  """

  slow = False
  in_passes = False
  least_exact = 1e-30

  @property
  def certain(self) -> bool:
    """See the attributes."""
    return False

  @property
  def counting(self) -> bool:
    """See the attributes."""
    raise NotImplementedError

  @property
  def families(self) -> int:
    """See the attributes."""
    raise NotImplementedError

  @property
  def tail(self) -> tuple[float, float]:
    """Return a bound (weight, d) on the tails.

    For alpha >= 1 and both directions the divergence is at most
    weight H_alpha(N(d) || N(0)).
    """
    raise NotImplementedError

  @property
  def inclusion_rate(self) -> float:
    """Bound the probability that a step samples the unit with content."""
    raise NotImplementedError

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Bound H_alpha in the direction by a function convex in alpha.

    Args:
      log_alpha: float64[n] of ln alpha >= 0.
      direction: "remove" for M(T) against M(T - t), "add" for the reverse.

    Returns:
      float64[n], an upper bound that convexity makes composable.
    """
    raise NotImplementedError

  def log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Bound ln of `divergence` far below the smallest double: float64[n]."""
    weight, distance = self.tail
    if weight == 0:
      return np.full_like(log_alpha, -np.inf)
    bound = math.log(weight) + log_hockey_stick(
        log_alpha, max(distance, MIN_DISTANCE)
    )
    return np.minimum(bound, self._log_divergence(log_alpha, direction))

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray | float:
    """Bound ln of `divergence` better than the tail, if the weight is not 0."""
    raise NotImplementedError

  def below_tail(
      self, log_alpha: np.ndarray, value: Callable[[np.ndarray], np.ndarray]
  ) -> np.ndarray:
    """Return a bound on the divergence, or that of the tail where it is less.

    Args:
      log_alpha: float64[n].
      value: the bound at float64[n], unless the weight is 0.
    """
    log_alpha = np.asarray(log_alpha, float)
    weight, distance = self.tail
    if weight == 0:
      return np.zeros_like(log_alpha)
    bound = weight * hockey_stick(log_alpha, distance)
    return np.minimum(bound, value(log_alpha))

  def raised(self, chance: float) -> "UnitProfile":
    """Return the unit with the numbers that it counts raised by a chance."""
    if self.counting:
      raise NotImplementedError
    return self

  def in_known_step(self) -> "Amplification":
    """Return the unit in a step that surely samples its primary unit.

    Raises:
      UnsoundPlanError: it is not proved for such units.
    """
    raise UnsoundPlanError(
        f"no guarantee for {type(self).__name__} in a pass over the units: use"
        " Poisson or FixedSize for the first level"
    )


@dataclasses.dataclass(frozen=True)
class Amplification(UnitProfile):
  """The rates and distances of one type of privacy unit.

  Attributes:
    outer_rates: r_1 .. r_(l-1), the rates of the stages above the unit's own.
    rate: p, the rate of the unit's own stage.
    outer_distances: one per outer rate, in noise standard deviations; infinity
      assumes that the stage is revealed.
    unit_sensitivity: d_b, between with and without the unit, parent sampled.
  """

  outer_rates: tuple[float, ...]
  rate: float
  outer_distances: tuple[float, ...]
  unit_sensitivity: float

  least_exact = 1e-280
  counting = False
  families = 1

  @property
  def parent_rate(self) -> float:
    """Return q, the probability that the unit's parent is sampled."""
    return math.prod(self.outer_rates)

  @property
  def inclusion_rate(self) -> float:
    """Return q p, the probability that a step samples the unit."""
    return self.parent_rate * self.rate

  @property
  def certain(self) -> bool:
    """Return whether every step samples the unit."""
    return self.inclusion_rate >= 1

  @property
  def outer_weights(self) -> tuple[float, ...]:
    """Return w_j, the probability that the path first breaks at stage j."""
    return tuple(
        math.prod(self.outer_rates[:j]) * (1 - r)
        for j, r in enumerate(self.outer_rates)
    )

  @property
  def tail(self) -> tuple[float, float]:
    """Return (weight, d): divergences are at most weight H_alpha(N(d) || N(0)).

    All of the weight A <= q p may be put against the own term, which is at
    least alpha A in both directions.
    """
    return self.inclusion_rate, self.unit_sensitivity

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    log_alpha = np.asarray(log_alpha, float)
    if self.inclusion_rate > 0:
      return best_split(*self.terms(log_alpha, direction))
    return np.zeros_like(log_alpha)

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    log_weight, log_k, d = self.terms(log_alpha, direction)
    found = np.full_like(log_alpha, -np.inf)
    some = np.isfinite(log_weight)
    if some.any():
      log_k = log_k[:, some]
      parts = split(log_weight[some], log_k, d)
      found[some] = _LOG_ROUNDING + np.logaddexp.reduce(
          log_weighted(parts, log_k, d), axis=0
      )
    return found

  def in_known_step(self) -> "Amplification":
    """See `UnitProfile`."""
    if not self.outer_rates:
      return dataclasses.replace(self, rate=1.0)
    return dataclasses.replace(self, outer_rates=(1.0, *self.outer_rates[1:]))

  def terms(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ln A, and ln k_i and d_i of the negative weights; no rate is 0."""
    q, p = self.parent_rate, self.rate
    log_excess = log_expm1(log_alpha)  # ln(alpha - 1)
    if direction == "remove":
      log_weight = np.full_like(log_alpha, math.log(q * p))
      own = math.log(q) + np.logaddexp(log_excess, math.log(p))
    else:
      left = p - np.expm1(np.minimum(log_alpha, 700.0)) * (1 - p)
      with np.errstate(divide="ignore"):
        log_weight = math.log(q) + np.log(np.maximum(left, 0.0))
      own = log_alpha + math.log(q * p)
    merged = {max(self.unit_sensitivity, MIN_DISTANCE): own}
    for w, d in zip(
        self.outer_weights, self.outer_distances, strict=True
    ):
      if w > 0 and math.isfinite(d):  # A term may be omitted from the split.
        d = max(d, MIN_DISTANCE)
        log_k = log_excess + math.log(w)
        merged[d] = np.logaddexp(merged[d], log_k) if d in merged else log_k
    return log_weight, np.stack([*merged.values()]), np.c_[[*merged]]


def log_expm1(x: np.ndarray) -> np.ndarray:
  """Compute ln(e^x - 1) for x >= 0."""
  with np.errstate(divide="ignore"):
    return np.where(
        x > 30, x, np.log(np.expm1(np.minimum(x, 30.0)))
    ) + np.where(x > 30, np.log1p(-np.exp(-np.maximum(x, 30.0))), 0.0)
