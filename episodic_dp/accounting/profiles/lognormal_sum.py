"""Convex functions of sums of lognormal variables, never underestimated.

Let X = exp(d g - d^2 / 2) for a standard normal g, so that E X = 1, let
Y = X - 1, and Z the sum of m independent copies of Y, which lies above -m and
has mean 0. What is wanted, for every c and without loss in the tails, is

  E (Z - c)_+ = e(c) + (-c)_+   and   E (c - Z)_+ = e(c) + (c)_+,

where the *excess* e(c), the smaller of the two expectations, is positive,
largest at c = 0 and convex on either side of it.

One copy. Both expectations are hockey-stick divergences of two normal
distributions: E (X - alpha)_+ = H_alpha(N(d) || N(0)), and
E (alpha - X)_+ = alpha H_(1/alpha)(N(d) || N(0)).

Sums. For Z = A + B, independent, and for every c,

  e_Z(c) = E e_B(c - A) + e_A(c).

This is evaluated at the points of a grid, and between them e is taken to be
linear. A chord lies above a convex function, so e is never too small; it is the
excess of a variable whose probability is split between neighbouring points such
that the mean is kept. Above the grid's last point e stays what it is there,
which again is too large, and below -m it is 0. The rule is monotone in e_B. For
A it takes the grid's variable, capped at the last point x. E (B - (c - A))_+
is, as a function of A, convex with slopes from 0 to 1, so a mixture of
(A - a)_+ of total weight 1 at most, each of whose expectations may then be
short by e_A(x); the interpolated e_A(c) makes up for it, being what the capped
variable has and e_A(x). For E (c - A - B)_+ a cap is pessimistic by itself.

Only positive numbers are added, so tails as small as 1e-30 keep their leading
digits, which a Fourier transform would lose. A sum of m copies takes at most
2 log2(m) additions.

The grid's points are quantiles of Z at evenly spaced normal quantiles, which is
the resolution that e needs at every level, from m = 1, where Z is
skewed over many orders of magnitude, to large m, where it is nearly normal.
"""

import dataclasses
import functools

import numpy as np
from scipy import special

from episodic_dp.accounting.profiles import amplification

# Points closer to -m than this share of m are not told apart from it.
_LEAST = 1e-9
# Smaller expectations are left to the ends of the grid: see `_HIGH`.
_SMALLEST = 1e-140
# The quantiles of a sum are found from points that are so far apart.
_PROBES = 0.06
_ROWS = 64
# Sums of so many copies take their first part on every second point, in half
# the time. It adds 0.002 to 0.01 % to epsilon.
_MANY = 8
# Points that are closer than this, in normal quantiles, are dense.
_DENSE = 0.03


# Spacing of points near 0 and beyond, in normal quantiles counted from that of
# 0, and where the first spacing and the points end. Upwards a sum has a heavy
# tail, for which there is no other bound; products of two probabilities that
# far out do not underflow yet.
_NEAR, _FAR, _SWITCH, _LOW, _HIGH = 0.008, 0.06, 8.0, 11.5, 25.0


def _offsets(distance: float) -> np.ndarray:
  """Compute the quantiles of points: float64[n], rising, with 0 among them."""
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
    points: float64[n], rising; the first is -m.
    zero: the index of the point 0.
    excess: float64[n], e at the points; convex on either side of 0.
    probs: float64[n] of the variable that has this excess up to the last point.
  """

  offsets: np.ndarray
  points: np.ndarray
  zero: int
  excess: np.ndarray
  probs: np.ndarray

  def at(self, c: np.ndarray) -> np.ndarray:
    """e(c), an upper bound for every c."""
    return np.interp(c, self.points, self.excess)


@functools.lru_cache(maxsize=128)
def copies(distance: float, number: int) -> Sum:
  """The sum of `number` >= 1 copies of Y at distance d > 0."""
  if number == 1:
    return _one(distance)
  # Doubling, so that sums of different length share their parts.
  high = 1 << (number.bit_length() - 1)
  half = high // 2
  parts = (half, half) if high == number else (number - high, high)
  first, second = (copies(distance, m) for m in parts)
  return _add(first, second, _offsets(distance))


def log_below(
    distance: float, number: int, log_share: np.ndarray
) -> np.ndarray:
  """The logarithm of an upper bound on E (c - Z)_+ / m far below the mean.

  Chernoff's bound: (x)_+ <= e^(t x - 1) / t for every t > 0, so that
  E (c - Z)_+ <= e^(t c - 1) E[e^(-t Y)]^m / t, whose middle is not smaller for
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
  log_moment = special.logsumexp(log_probs - t[:, None] * points, axis=1)
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
  """The sum of two independent sums."""
  number = -round(a.points[0] + b.points[0])
  if number >= _MANY:
    a = _thinned(a)
  points = _quantiles(a, b, number, offsets)
  kept = _kept(offsets, points, number)
  offsets, points = offsets[kept], points[kept]
  return _sum(number, offsets, points, _excess(a, b, points))


def _thinned(a: Sum) -> Sum:
  """On every second point where they are dense; on all far out.

  Its chords are farther above, and never below.
  """
  kept = np.diff(a.offsets, prepend=-np.inf) > _DENSE
  kept[a.zero :: 2] = kept[a.zero :: -2] = kept[[1, -1]] = True
  kept[0] = False  # `_sum` puts it back.
  return _sum(
      -round(a.points[0]), a.offsets[kept], a.points[kept], a.excess[kept]
  )


def _excess(a: Sum, b: Sum, c: np.ndarray) -> np.ndarray:
  """e of the sum at c, float64[n]."""
  result = a.at(c)
  for i in range(0, a.points.size, _ROWS):
    rest = c - a.points[i : i + _ROWS, None]
    result += a.probs[i : i + _ROWS] @ b.at(rest)
  return result


def _quantiles(
    a: Sum, b: Sum, number: int, offsets: np.ndarray
) -> np.ndarray:
  """About the points of the sum that lie at the given normal quantiles.

  They decide how tight the bound is, never whether it is one.
  """
  # Adding equal quantiles goes as far as the sum itself, or further, and
  # leaves no gaps. From one such point to the next the slope of e is a
  # probability.
  probes = np.arange(offsets[0], offsets[-1] + _PROBES, _PROBES)
  points = np.interp(probes, a.offsets, a.points)
  points += np.interp(probes, b.offsets, b.points)
  points = np.unique(np.concatenate([[-number, 0.0], points]))
  slope = np.diff(_excess(a, b, points)) / np.diff(points)
  middle = (points[1:] + points[:-1]) / 2
  with np.errstate(divide="ignore", invalid="ignore"):
    quantile = special.ndtri_exp(np.log(np.abs(slope)))
  quantile = np.where(middle > 0, -quantile, quantile)
  finite = np.isfinite(quantile)
  middle, quantile = middle[finite], np.maximum.accumulate(quantile[finite])
  at_zero = np.interp(0.0, middle, quantile)
  return np.where(
      offsets == 0, 0.0, np.interp(offsets + at_zero, quantile, middle)
  )


def _kept(offsets: np.ndarray, points: np.ndarray, number: int) -> np.ndarray:
  """bool[n]: rising, told apart from -m, and on the offset's side of 0."""
  right_side = np.sign(points) == np.sign(offsets)
  inside = points > number * (_LEAST - 1)
  kept = right_side & inside
  before = np.maximum.accumulate(np.where(kept, points, -np.inf))
  kept[1:] &= points[1:] > before[:-1]
  return kept


def _sum(
    number: int, offsets: np.ndarray, points: np.ndarray, excess: np.ndarray
) -> Sum:
  """With the end -m, convex on either side of 0, and with probabilities."""
  offsets = np.concatenate([[2 * offsets[0] - 1], offsets])
  points = np.concatenate([[-float(number)], points])
  excess = np.concatenate([[0.0], excess])
  zero = int(np.searchsorted(points, 0.0))
  gaps = np.diff(points)
  slopes = np.diff(excess) / gaps
  # Rounding can break convexity in the last digits: each slope is made as steep
  # as those further out, and e summed up from its small end, so it only grows.
  down = np.minimum(slopes[zero:], 0.0)[::-1]
  down = np.minimum.accumulate(down)[::-1]
  up = np.maximum.accumulate(np.maximum(slopes[:zero], 0.0))
  right = excess[-1] - np.cumsum((down * gaps[zero:])[::-1])[::-1]
  left = np.cumsum(up * gaps[:zero])
  excess = np.concatenate([[0.0], left, right[1:], excess[-1:]])
  excess[zero] = max(left[-1], right[0])
  probs = np.concatenate([
      np.diff(up, prepend=0.0),
      [1.0 + down[0] - up[-1]],
      np.diff(down, append=0.0),
  ])
  return Sum(offsets, points, zero, excess, probs)
