"""One pass over the units: each is used in one of T steps, chosen at random.

A pass has T steps. Every unit is assigned to one of them, uniformly and
independently of all other units (balls into bins). A step releases the clipped
sum over its units with Gaussian noise. A whole pass is accounted as one step;
passes have independent assignments, so they compose.

Dominating pair. Let d be the largest distance, in noise standard deviations,
between the sums of one step with and without the unit, and let the first
k <= T steps of the pass be released. With g ~ N(0, I_k) and
X_i = exp(d g_i - d^2 / 2), of mean 1, the pair is

  Q = N(0, I_k),   P = ((T - k) N(0, I_k) + sum_(i <= k) N(d e_i, I_k)) / T,
  dP/dQ = S = (T - k + X_1 + ... + X_k) / T,

and it dominates in both directions, even if every step depends on earlier
releases. *Proof.* Fix the assignment of the other units and all other random
numbers (joint convexity), and write step i, given the releases v before it, as
N(a(v) + b(v) 1[the unit is in step i], I) with |b(v)| <= d. This is
y_i (|b| / d) u + a, u = b / |b|, plus Gaussian noise of covariance
I - (|b| / d)^2 u u^T, for y_i ~ N(d 1[..], 1). So step by step the releases are
a random function of y_1 .. y_k alone, the same with and without the unit, and
(y_1, .., y_k) is P with the unit and Q without it. []

This is Theorem 3.1 of Feldman and Shenfeld, "Privacy amplification by random
allocation" (2025, arXiv:2502.08202), for the dominating randomizer N(d), N(0);
for the Gaussian mechanism also Theorem 1 of Chua et al., "Balls-and-Bins
Sampling for DP-SGD" (2025, arXiv:2412.16802). The numerical evaluation follows
the idea of Feldman and Shenfeld, "Efficient privacy loss accounting for
subsampling and random allocation" (2026, arXiv:2602.17284): the loss of a pass
is the logarithm of a sum of independent exponentiated losses.

Divergences. For alpha >= 1, with Z = X_1 + ... + X_k - k,

  remove  H_alpha(P || Q) = E (S - alpha)_+ = E (Z - T (alpha - 1))_+ / T,
  add     H_alpha(Q || P) = E (1 - alpha S)_+
                          = alpha E (-T (1 - 1/alpha) - Z)_+ / T.

Below, both expectations are computed as convex functions that are linear
between the points of a grid and never too small. In alpha they are linear
between the images of these points (the second because alpha f(1 / alpha) is
linear where f is), so both profiles are convex in alpha, as composition needs.

Far out, where the grid ends and almost nothing remains, other upper bounds are
used at single points: Chernoff's for "add", and the revealed bound
H_alpha(N(d) || N(0)) (the divergence for a known step, which by joint convexity
is no smaller). They are joined by the lower convex hull: each chord joins two
upper bounds of a convex function and so is one. The last chord touches the
revealed bound's curve, which continues it, so the result is convex.

A unit inside a primary unit (`NestedAllocation`).

In a pass of `RandomAllocation` a primary unit u is sampled in one step, and the
units inside it are sampled there, once. For a unit t inside u let A, B and B'
be the outputs of the pass if t's parent is not sampled, if it is sampled
without t, and if it is sampled with t. Let q and p be the rates of t's parent
inside u and of t inside its parent. Coupling everything else,

  P = (1 - q) A + q (1 - p) B + q p B',   Q = (1 - q) A + q B.

A, B and B' are passes with other data in u. Each is close to the pass without u
(`allocation`: R for removing u, and S for adding it), so any two of them, X and
Y, are close by way of it: for every beta = b c with b, c >= 1

  H_beta(X || Y) <= R(b) + b S(c);   D(beta) = the least of these bounds.

D is the profile that belongs to the composed trade-off functions. For events of
probability at most x under Y, the pass without u gives at most G_S(x) and X at
most G_R(G_S(x)), and D(beta) = sup over x of G_R(G_S(x)) - beta x, by minimax.
So D is convex. The proof for `Amplification` with equal distances uses only two
properties of the Gaussian divergence: it bounds the divergence of any two of A,
B, B', and it is convex. With D in its place

  remove  q p D((alpha - 1 + q p) / (q p)),
  add     w D((alpha - 1 + w) / w),   w = q (1 - alpha (1 - p)).

Sums of lognormal variables.

Let X = exp(d g - d^2 / 2) for a standard normal g, so that E X = 1. Let
Y = X - 1, and Z the sum of m independent copies of Y, which is above -m and has
mean 0. For every c, without loss in the tails, this computes

  E (Z - c)_+ = e(c) + (-c)_+   and   E (c - Z)_+ = e(c) + (c)_+,

where the *excess* e(c), the smaller of the two expectations, is positive,
largest at c = 0 and convex on either side of it.

One copy. Both expectations are hockey-stick divergences of two normal
distributions: E (X - alpha)_+ = H_alpha(N(d) || N(0)), and
E (alpha - X)_+ = alpha H_(1/alpha)(N(d) || N(0)).

Sums. For Z = A + B, independent, and for every c,

  e_Z(c) = E e_B(c - A) + e_A(c).

This is evaluated at the points of a grid, and between them e is assumed to be
linear. A chord is above a convex function, so e is never too small. It is the
excess of a variable whose probability is split between neighbouring points such
that the mean is kept. Above the grid's last point e stays constant, which again
is too large, and below -m it is 0. The rule is monotone in e_B. For A it uses
the grid's variable, capped at the last point x. As a function of A, E (B - (c -
A))_+ is convex with slopes from 0 to 1. So it is a mixture of (A - a)_+ with
total weight at most 1, and each of their expectations may be too small by
e_A(x). The interpolated e_A(c) compensates: it is the capped variable's excess
plus e_A(x). For E (c - A - B)_+ a cap is pessimistic by itself.

Only positive numbers are added, so tails as small as 1e-30 keep their leading
digits, which a Fourier transform would lose. A sum of m copies takes at most
2 log2(m) additions.

The grid's points are quantiles of Z at evenly spaced normal quantiles. This is
the resolution that e needs at every level, from m = 1, where Z is skewed over
many orders of magnitude, to large m, where it is nearly normal.
"""

import dataclasses
import functools
import math

import numpy as np
import scipy

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import unit_profile

# Sums of lognormal variables ----------------------------------------------

# Points closer to -m than this share of m are replaced by -m.
_LEAST = 1e-9
# Smaller expectations are left to the ends of the grid: see `_HIGH`.
_SMALLEST = 1e-140
# Spacing of the points from which the quantiles of a sum are found.
_PROBES = 0.06
_ROWS = 64
# Sums of this many copies use every second point of their first part, in half
# the time. It adds 0.002 to 0.01 % to epsilon.
_MANY = 8
# Points that are closer than this, in normal quantiles, are dense.
_DENSE = 0.03


# Spacing of points near 0 and beyond, in normal quantiles relative to that of
# 0; the end of the first spacing, and of the points. Upwards a sum has a heavy
# tail, for which there is no other bound. Products of two probabilities this
# far out do not underflow yet.
_NEAR, _FAR, _SWITCH, _LOW, _HIGH = 0.008, 0.06, 8.0, 11.5, 25.0


def _offsets(distance: float) -> np.ndarray:
  """Compute the quantiles of points: float64[n], ascending, including 0."""
  switch = _SWITCH + distance / 2
  near = np.arange(1, round(switch / _NEAR)) * _NEAR
  down = np.arange(switch, _LOW + distance + _FAR, _FAR)
  up = np.arange(down[-1], _HIGH - distance / 2, 2 * _FAR)[1:]
  return np.concatenate([-down[::-1], -near[::-1], [0.0], near, down, up])


@dataclasses.dataclass(frozen=True, eq=False)
class Sum:
  """The excess of a sum of `-points[0]` copies of Y.

  Attributes:
    offsets: float64[n], the normal quantile of each point less that of 0.
    points: float64[n], ascending; the first is -m.
    zero: the index of the point 0.
    excess: float64[n], e at the points; convex on either side of 0.
    probs: float64[n] of the variable with this excess up to the last point.
  """

  offsets: np.ndarray
  points: np.ndarray
  zero: int
  excess: np.ndarray
  probs: np.ndarray

  def at(self, c: np.ndarray) -> np.ndarray:
    """Bound e(c), for every c."""
    return np.interp(c, self.points, self.excess)


@functools.lru_cache(maxsize=128)
def copies(distance: float, number: int) -> Sum:
  """Compute the sum of `number` >= 1 copies of Y at distance d > 0."""
  if number == 1:
    return _one(distance)
  # Doubling, so that sums of different lengths share their parts.
  high = 1 << (number.bit_length() - 1)
  half = high // 2
  parts = (half, half) if high == number else (number - high, high)
  first, second = (copies(distance, m) for m in parts)
  return _add(first, second, _offsets(distance))


def log_below(
    distance: float, number: int, log_share: np.ndarray
) -> np.ndarray:
  """Compute ln of an upper bound on E (c - Z)_+ / m far below the mean.

  Chernoff's bound: (x)_+ <= e^(t x - 1) / t for every t > 0, so that
  E (c - Z)_+ <= e^(t c - 1) E[e^(-t Y)]^m / t, whose middle factor is not
  the variable of the grid.

  Args:
    distance: d.
    number: m.
    log_share: float64[n], ln(1 + c / m) < 0.
  """
  one = copies(distance, 1)
  some = one.probs > 0
  log_probs, points = np.log(one.probs[some]), one.points[some]
  t = np.exp(np.arange(-4.0, 40.0, 0.1)) / distance
  log_moment = scipy.special.logsumexp(log_probs - t[:, None] * points, axis=1)
  # m copies of c / m = e^share - 1.
  exponent = t[:, None] * np.expm1(log_share) + log_moment[:, None]
  bounds = number * exponent - 1 - np.log(t[:, None] * number)
  return bounds.min(axis=0)


def _one(distance: float) -> Sum:
  offsets = _offsets(distance)
  log_x = distance * offsets  # X = 1, the mean, is the quantile d / 2.
  excess = np.exp(np.minimum(log_x, 0.0)) * amplification.hockey_stick(
      np.abs(log_x), distance
  )
  points = np.expm1(log_x)
  kept = _kept(offsets, points, 1) & (excess > _SMALLEST)
  return _sum(1, offsets[kept], points[kept], excess[kept])


def _add(a: Sum, b: Sum, offsets: np.ndarray) -> Sum:
  """Compute the sum of two independent sums."""
  number = -round(a.points[0] + b.points[0])
  if number >= _MANY:
    a = _thinned(a)
  points = _quantiles(a, b, number, offsets)
  kept = _kept(offsets, points, number)
  offsets, points = offsets[kept], points[kept]
  return _sum(number, offsets, points, _excess(a, b, points))


def _thinned(a: Sum) -> Sum:
  """Keep every second point where they are dense, and all points far out.

  The chords of the result are higher, and never lower.
  """
  kept = np.diff(a.offsets, prepend=-np.inf) > _DENSE
  kept[a.zero :: 2] = kept[a.zero :: -2] = kept[[1, -1]] = True
  kept[0] = False  # `_sum` adds it again.
  return _sum(
      -round(a.points[0]), a.offsets[kept], a.points[kept], a.excess[kept]
  )


def _excess(a: Sum, b: Sum, c: np.ndarray) -> np.ndarray:
  """Compute e of the sum at c, float64[n]."""
  result = a.at(c)
  for i in range(0, a.points.size, _ROWS):
    rest = c - a.points[i : i + _ROWS, None]
    result += a.probs[i : i + _ROWS] @ b.at(rest)
  return result


def _quantiles(
    a: Sum, b: Sum, number: int, offsets: np.ndarray
) -> np.ndarray:
  """Estimate the points of the sum at the given normal quantiles.

  They determine how tight the bound is, not whether it is one.
  """
  # Adding equal quantiles reaches as far as the sum itself, or further, and
  # leaves no gaps. From one such point to the next the slope of e is a
  # probability.
  probes = np.arange(offsets[0], offsets[-1] + _PROBES, _PROBES)
  points = np.interp(probes, a.offsets, a.points)
  points += np.interp(probes, b.offsets, b.points)
  points = np.unique(np.concatenate([[-number, 0.0], points]))
  slope = np.diff(_excess(a, b, points)) / np.diff(points)
  middle = (points[1:] + points[:-1]) / 2
  with np.errstate(divide="ignore", invalid="ignore"):
    quantile = scipy.special.ndtri_exp(np.log(np.abs(slope)))
  quantile = np.where(middle > 0, -quantile, quantile)
  finite = np.isfinite(quantile)
  middle, quantile = middle[finite], np.maximum.accumulate(quantile[finite])
  at_zero = np.interp(0.0, middle, quantile)
  return np.where(
      offsets == 0, 0.0, np.interp(offsets + at_zero, quantile, middle)
  )


def _kept(offsets: np.ndarray, points: np.ndarray, number: int) -> np.ndarray:
  """Find points that ascend, differ from -m and are on their side of 0."""
  right_side = np.sign(points) == np.sign(offsets)
  inside = points > number * (_LEAST - 1)
  kept = right_side & inside
  before = np.maximum.accumulate(np.where(kept, points, -np.inf))
  kept[1:] &= points[1:] > before[:-1]
  return kept


def _sum(
    number: int, offsets: np.ndarray, points: np.ndarray, excess: np.ndarray
) -> Sum:
  """Build a sum with the end -m and probabilities, convex around 0."""
  offsets = np.append(2 * offsets[0] - 1, offsets)
  points = np.append(-float(number), points)
  excess = np.append(0.0, excess)
  zero = int(np.searchsorted(points, 0.0))
  gaps = np.diff(points)
  slopes = np.diff(excess) / gaps
  # Rounding can break convexity in the last digits. Each slope is made as steep
  # as those further out, and e is summed from its small end, so it only grows.
  down = np.minimum(slopes[zero:], 0.0)[::-1]
  down = np.minimum.accumulate(down)[::-1]
  up = np.maximum.accumulate(np.maximum(slopes[:zero], 0.0))
  right = excess[-1] - counts.from_above(down * gaps[zero:])
  left = np.cumsum(up * gaps[:zero])
  excess = np.concatenate([[0.0], left, right[1:], excess[-1:]])
  excess[zero] = max(left[-1], right[0])
  probs = np.concatenate([
      np.diff(up, prepend=0.0),
      [1.0 + down[0] - up[-1]],
      np.diff(down, append=0.0),
  ])
  return Sum(offsets, points, zero, excess, probs)


# The profile of a pass ------------------------------------------------------

# Relative; rounding errors are orders of magnitude smaller.
_ROUNDING = 1e-6
# A shorter distance is replaced by the first. Above the second the numbers
# overflow, and the revealed bound is used: never optimistic.
_MIN_DISTANCE, _MAX_DISTANCE = 1e-4, 12.0
# Number of points beyond the grid, and the underflow limit there.
_BEYOND, _LOG_SMALLEST = 200, -650.0


class _Pass(amplification.UnitProfile):
  """The answers of every unit of a pass."""

  in_passes = True
  counting = False
  families = 1

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: amplification.Direction
  ) -> float:
    """Return infinity: no better bound than the tail's is known."""
    return math.inf


@dataclasses.dataclass(frozen=True)
class Allocation(_Pass):
  """A pass over the units, or its beginning, as one step.

  Attributes:
    steps: T, the steps of a whole pass.
    released: k, the number of released steps, from 1 to T.
    distance: d, between the sums with and without a unit in one step, in
      standard deviations of the noise.
  """

  steps: int
  released: int
  distance: float

  @property
  def inclusion_rate(self) -> float:
    """Return k / T, the probability that a released step uses the unit."""
    return self.released / self.steps

  @property
  def tail(self) -> tuple[float, float]:
    """Return (weight, d): divergences are at most weight H_alpha(N(d) || N(0)).

    With weight 1 this is the revealed bound; the grid may add a little to it.
    """
    return 2.0, max(self.distance, _MIN_DISTANCE)

  def divergence(
      self, log_alpha: np.ndarray, direction: amplification.Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    log_alpha = np.asarray(log_alpha, float)
    distance = max(self.distance, _MIN_DISTANCE)
    if self.released == 1:
      # One step alone is Poisson sampling at rate 1 / T, in closed form.
      return amplification.Amplification(
          (), 1 / self.steps, (), distance
      ).divergence(log_alpha, direction)
    if distance > _MAX_DISTANCE:
      return amplification.hockey_stick(log_alpha, distance)
    return (1 + _ROUNDING) * _curve(
        self.steps, self.released, distance, direction
    ).at(log_alpha)


@dataclasses.dataclass(frozen=True, eq=False)
class _Curve:
  """Linear in alpha between points, and the revealed bound beyond them.

  Attributes:
    log_alpha: float64[n], ascending from 0.
    values: float64[n]; if the last is 0, so is everything beyond it.
    distance: distance of the revealed bound.
  """

  log_alpha: np.ndarray
  values: np.ndarray
  distance: float

  def at(self, log_alpha: np.ndarray) -> np.ndarray:
    near = unit_profile.Chords(self.log_alpha, self.values)(log_alpha)
    if self.values[-1] == 0:
      return near
    beyond = amplification.hockey_stick(log_alpha, self.distance)
    return np.where(log_alpha <= self.log_alpha[-1], near, beyond)


@functools.lru_cache(maxsize=128)
def _curve(
    steps: int,
    released: int,
    distance: float,
    direction: amplification.Direction,
) -> _Curve:
  """Compute the divergence of a direction, for 0 < d <= 12 and k >= 2."""
  total = copies(distance, released)
  if direction == "remove":
    log_alpha = np.log1p(total.points[total.zero :] / steps)
    values = total.excess[total.zero :] / steps
  else:
    # At Z = -T, which a whole pass may approach, alpha is infinite.
    first = 1 if released == steps else 0
    points = total.points[first : total.zero + 1][::-1]
    log_alpha = -np.log1p(points / steps)
    values = total.excess[first : total.zero + 1][::-1] / steps
    values = values * np.exp(log_alpha)
  hull = list(zip(log_alpha.tolist(), values.tolist(), strict=True))
  if direction == "add" and released == steps:
    _extend(hull, steps, distance)
  while hull[-1][1] > 0 and len(hull) > 1:
    end = _touching(*hull[-1], distance)
    touched = (end, _revealed(end, distance))
    if _slope(*hull[-2:]) <= _slope(hull[-1], touched):
      hull.append(touched)
      break
    hull.pop()
  log_alpha, values = np.asarray(hull).T
  return _Curve(log_alpha, values, distance)


_Point = tuple[float, float]


def _extend(hull: list[_Point], steps: int, distance: float) -> None:
  """Add Chernoff's bounds for a whole pass to points (ln alpha, value)."""
  start = hull[-1][0]
  end = _touching(*hull[-1], distance)
  far = np.linspace(start, end, _BEYOND + 2)[1:-1]
  log_far = far + log_below(distance, steps, -far)
  for x, log_y in zip(far.tolist(), log_far.tolist(), strict=True):
    point = (x, math.exp(min(max(log_y, _LOG_SMALLEST), 0.0)))
    if point[1] >= hull[-1][1]:
      continue
    while len(hull) > 1 and _slope(hull[-1], point) <= _slope(*hull[-2:]):
      hull.pop()
    hull.append(point)


def _slope(one: _Point, other: _Point) -> float:
  """Compute the slope in alpha, from a point to one further right."""
  return (other[1] - one[1]) / (math.exp(other[0]) - math.exp(one[0]))


def _revealed(log_alpha: float, distance: float) -> float:
  return float(
      amplification.hockey_stick(np.asarray(log_alpha), distance)
  )


def _touching(log_alpha: float, value: float, distance: float) -> float:
  """Find the point at which a line touches H_alpha(N(d) || N(0)).

  The tangent at beta meets the given alpha < beta at the height
  Phi(d/2 - ln(beta)/d) - alpha Phi(-d/2 - ln(beta)/d), which falls with beta.
  If a point is too high for any tangent, a point just below the curve is used.
  """

  def height(log_beta: float) -> float:
    log_x = scipy.special.log_ndtr(distance / 2 - log_beta / distance)
    log_y = scipy.special.log_ndtr(-distance / 2 - log_beta / distance)
    return math.exp(log_x) * -math.expm1(min(log_alpha + log_y - log_x, 0.0))

  value = min(value, 0.999 * _revealed(log_alpha, distance))
  low, high = log_alpha, log_alpha + distance
  while height(high) > value:
    high += high - log_alpha
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if height(middle) > value else (low, middle)
  return high


# D is tabulated at these values of ln beta; chords of a convex function are
# above it.
_POINTS = np.concatenate([np.linspace(0, 4, 401), np.geomspace(4.01, 1e4, 200)])
_HALVINGS = 48


@dataclasses.dataclass(frozen=True, kw_only=True)
class NestedAllocation(_Pass):
  """A unit inside the primary units of a pass, as one step.

  Attributes:
    whole: the pass of the primary unit.
    parent_rate: q, the probability that the unit's parent is sampled, given its
      primary unit.
    rate: p, the probability that the unit is sampled, given its parent.
  """

  whole: Allocation
  parent_rate: float
  rate: float

  @property
  def inclusion_rate(self) -> float:
    """Return the probability that a released step samples the unit."""
    return self.whole.inclusion_rate * self.parent_rate * self.rate

  @property
  def tail(self) -> tuple[float, float]:
    """Return (weight, d): for a known step, the sum would move by 2 d."""
    return self.parent_rate * self.rate, 2 * self.whole.distance

  def divergence(
      self, log_alpha: np.ndarray, direction: amplification.Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
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
    result[some] = weight[some] * _table(self.whole)(log_beta)
    return result


@functools.lru_cache(maxsize=32)
def _table(whole: Allocation) -> unit_profile.Chords:
  """Compute D at `_POINTS`, the least over b: any b is an upper bound."""

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
  return unit_profile.Chords(
      _POINTS, np.minimum.accumulate(np.minimum(best, 1.0))
  )
