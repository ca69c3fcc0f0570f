"""The profile of mixtures of Gaussians whose means are on a line.

Given everything else, the outputs with and without a unit are

  P = U + q p S + q (1 - p) R,   Q = U + q R,   U = sum over j of w_j N(a_j),

where S = sum over k > 0 of chances N(.) is a mixture of the outputs with the
unit, R a mixture of the outputs in its place, and a_j the output if the path to
the unit's parent breaks, with probability w_j. If from one point all means of S
are at most s_k, those of R at most r_i and the a_j at most m_j away, then both
divergences are at most those of outputs on one line,

  remove  S at s_k, R at -r_i, U at -m_j,
  add     the same, but U at m_j.

To see this, write the direction's difference of densities, P - alpha Q or
Q - alpha P, with positive weights A_k at distances s_k (or r_i) on one side of
the point and negative weights K_i on the other side. Every coupling u_ki of
densities at x, sum_i u_ki = A_k phi(x - s_k), sum_k u_ki = K_i phi(x + r_i),
splits it into pairs. Each pair contributes at most the difference of two half
lines. This grows with the pair's distance, and for the longest distance,
s_k + r_i, it is largest at this same x. So the sum over pairs is the divergence
on the line (section 3 of the proof, with several positive weights).

On the line the likelihood ratio increases, alpha is an explicit function of the
threshold x, and with Mills' ratio R(y) = Phi(-y) / phi(y),

  H = sum_k A_k phi(x - s_k) (R(x - s_k) - R(x))
      + sum_i K_i phi(x + r_i) (R(x) - R(x + r_i)),

sums of positive terms, exact far into the tail. They are tabulated over x.
Between neighbouring points the profile, convex in alpha, is replaced by its
chord, which is above it.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import numpy as np
import scipy

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction

# The grid over x ends where Phi(-37) < 1e-299, for high Renyi moments. Chords
# are above the profile by a share of about (step (x - s_k))^2 / 8. Far out,
# where there are only many clip units or tiny probabilities, its step grows.
_REACH = 37.0
_STEP = 1 / 384
_EVEN = 12.0
# Exponents are kept below this; e^690 < 1e300.
_LARGEST_POWER = 690.0
# Larger distances are split off, and count as infinitely large.
_FARTHEST = 200.0
# Revealed distances are rounded up to the first number, or in steps that are a
# share of them, the second number.
_NEAREST, _RATIO = 10.0, 0.01
# Largest array of positions by points.
_BLOCK = 1 << 19


class MixtureCurve(NamedTuple):
  """An upper bound on one convex profile: its chords, and a far part.

  Attributes:
    chords: chords of the profile without its far part.
    far: weight of distances above `_FARTHEST`.
    far_at: the far part's distance.
    chances: float64[n], the probabilities of `distances`. They are revealed
      where alpha is too large for the chords.
    distances: float64[n].
    rates: of the unit's parent, and of the unit.
    direction: "remove" or "add".
  """

  chords: unit_profile.Chords
  far: float
  far_at: float
  chances: np.ndarray
  distances: np.ndarray
  rates: tuple[float, float]
  direction: Direction

  def __call__(self, log_alpha: np.ndarray) -> np.ndarray:
    """Evaluate the bound at ln alpha >= 0, float64[n]."""
    value = self.chords(log_alpha)
    if self.far:
      value += self.far * amplification.hockey_stick(log_alpha, self.far_at)
    large = log_alpha > self.chords.log_alpha[-1]
    if large.any():
      q, p = self.rates
      kind = amplification.Amplification((q,), p, (math.inf,), 1.0)
      log_weight, (against,), _ = kind.terms(log_alpha[large], self.direction)
      known = np.zeros(log_weight.size)
      for chance, d in zip(self.chances, self.distances, strict=True):
        if chance > 0:
          known += chance * amplification.weighted(log_weight, against, d)
      value[large] = np.minimum(value[large], known)
    return value


_NONE, _ZERO, _SURE = np.zeros(0), np.zeros(1), np.ones(1)


class Line(NamedTuple):
  """The positions of the outputs' parts, in noise standard deviations.

  Attributes:
    seen: float64[rows, k], for each curve the probabilities that the sum moves
      by `seen_at`, given that the unit is sampled.
    seen_at: float64[k].
    instead: float64[i], the same for the replacing unit: 1 at 0 if there is
      none.
    instead_at: float64[i].
    outer: float64[j], w_j; their sum with q is 1.
    outer_at: float64[j], m_j.
    parent_rate: q.
    rate: p.
  """

  seen: np.ndarray
  seen_at: np.ndarray
  instead: np.ndarray = _SURE
  instead_at: np.ndarray = _ZERO
  outer: np.ndarray = _NONE
  outer_at: np.ndarray = _NONE
  parent_rate: float = 1.0
  rate: float = 1.0


def curves(line: Line, direction: Direction) -> list[MixtureCurve]:
  """Compute the profile of every row of `line.seen`, for alpha >= 1.

  Let F be the event that the part under the unit, or in its place, moves
  farther than `_FARTHEST`. Both parts can be sampled before it is known whether
  the unit is, so F may be assumed to be revealed. Given F the farthest distance
  holds, with weight q p; otherwise the rest of the laws.
  """
  remove = direction == "remove"
  reach = line.parent_rate * line.rate
  far_at = line.seen_at.max(initial=0.0) + line.instead_at.max(initial=0.0)
  near, others = line.seen_at <= _FARTHEST, line.instead_at <= _FARTHEST
  distances, chances = _revealed(line)
  rates = line.parent_rate, line.rate

  def curve(row: int, chords: unit_profile.Chords, far: float) -> MixtureCurve:
    return MixtureCurve(
        chords, reach * far, far_at, chances[row], distances, rates, direction
    )

  flat = unit_profile.Chords(np.asarray([0.0, 1.0]), np.zeros(2))
  if not near.any() or not others.any():
    return [curve(row, flat, 1.0) for row in range(len(line.seen))]
  beyond = line.seen[:, ~near].sum(axis=1)
  other = line.instead[~others].sum()
  far = beyond + other - beyond * other
  scale = np.where(beyond < 1, 1 - beyond, 1.0)[:, None]
  line = line._replace(
      seen=line.seen[:, near] / scale,
      seen_at=line.seen_at[near],
      instead=line.instead[others] / (1 - other if other < 1 else 1.0),
      instead_at=line.instead_at[others],
  )
  rows = len(line.seen)
  ahead = line.seen_at if remove else line.instead_at
  behind = line.instead_at if remove else line.seen_at
  if not max(ahead.max(initial=0.0), behind.max(initial=0.0)):
    return [curve(row, flat, weight) for row, weight in enumerate(far)]
  x = _grid(
      -0.51 * behind.max() if behind.any() else 0.49 * ahead[ahead > 0].min(),
      ahead.max() + _REACH,
  )
  log_alpha, value = np.empty((rows, x.size)), np.empty((rows, x.size))
  positions = ahead.size + behind.size + line.outer_at.size
  width = max(_BLOCK // positions, 1)
  for start in range(0, x.size, width):
    part = slice(start, start + width)
    log_alpha[:, part], value[:, part] = _points(line, remove, x[part])
  result = []
  for row, weight in enumerate(far):
    at, height = _cleaned(x, log_alpha[row], value[row])
    chords = unit_profile.Chords(at, (1 - weight) * height)
    result.append(curve(row, chords, weight))
  return result


def _revealed(line: Line) -> tuple[np.ndarray, np.ndarray]:
  """Sum the distances of both parts, rounded up to powers.

  Both can be sampled before it is known whether the unit is, so they may be
  assumed to be revealed.

  Returns:
    The distances, float64[n], and their probabilities, float64[rows, n].
  """
  distances = np.add.outer(line.seen_at, line.instead_at).ravel()
  powers = np.log(np.maximum(distances / _NEAREST, 1.0)) / _RATIO
  kept, at = np.unique(np.ceil(powers - 1e-9), return_inverse=True)
  chances = [
      np.bincount(at, np.multiply.outer(seen, line.instead).ravel())
      for seen in line.seen
  ]
  return _NEAREST * np.exp(_RATIO * kept), np.stack(chances)


def _points(
    line: Line, remove: bool, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Compute ln alpha and the divergence, float64[rows, n], at thresholds.

  NaN if a double cannot represent them.
  """
  q, p = line.parent_rate, line.rate
  sign = 1 if remove else -1

  def densities(
      exponential: Callable[[np.ndarray], np.ndarray]
  ) -> list[np.ndarray]:
    """Compute the seen, replacing and outer densities relative to N(0)."""
    return [
        weights @ exponential(at[:, None] * x - (at * at)[:, None] / 2)
        for weights, at in (
            (line.seen, sign * line.seen_at),
            (line.instead, -sign * line.instead_at),
            (line.outer, -line.outer_at),
        )
    ]

  with np.errstate(all="ignore"):
    # Densities relative to that of N(0), less 1.
    s, r, u = densities(np.expm1)
    # alpha = 1 + excess / base
    excess = sign * q * p * (s - r)
    base = 1 + u + q * (r if remove else (1 - p) * r + p * s)
    if (base < 0.5).any():  # Subtracting 1 would cancel.
      s, r, u = densities(np.exp)
      small = u + q * (r if remove else (1 - p) * r + p * s)
      base = np.where(base < 0.5, small, base)
      s, r, u = s - 1, r - 1, u - line.outer.sum()
    more = excess / base
    log_alpha = np.where(
        np.abs(more) < 0.5, np.log1p(more), np.log(base + excess) - np.log(base)
    )
    if remove:
      far = x > _REACH  # A density may be too large for a double.
      dense = line.seen @ np.exp(-((x[far] - line.seen_at[:, None]) ** 2) / 2)
      rest = (base - q * p * (1 + r))[..., far] * np.exp(-x[far] ** 2 / 2)
      log_alpha[:, far] = np.log(q * p * dense + rest) + x[far] ** 2 / 2
      log_alpha[:, far] -= np.log(base[..., far])
    valid = log_alpha < _LARGEST_POWER
    more = np.expm1(np.where(valid, log_alpha, 0.0))
    value = q * p * (1 if remove else 1 + more) * (
        line.seen @ _half_lines(sign * line.seen_at, x)
    ) + more * (line.outer @ _half_lines(-line.outer_at, x))
    kept = p + more if remove else np.maximum(p - more * (1 - p), 0.0)
    beyond = _half_lines(-sign * line.instead_at, x)
    value += q * kept * (line.instead @ beyond)
  valid &= np.isfinite(value)
  return (
      np.where(valid, log_alpha, np.nan),
      np.where(valid, np.minimum(value, 1.0), np.nan),
  )


def _half_lines(shift: np.ndarray, x: np.ndarray) -> np.ndarray:
  """Compute |Phi(s - x) - e^(s x - s^2 / 2) Phi(-x)| for shifts s.

  That is phi(x - s) |R(x - s) - R(x)|.
  """
  s = shift[:, None]
  if x[0] < -30:  # R(x) may be too large for a double.
    above = np.exp(s * x - s * s / 2) * scipy.special.ndtr(-x)
    value = scipy.special.ndtr(s - x) - above
  else:
    y = np.maximum(x - s, -_REACH)  # Phi(37) is 1.
    phi = np.exp(-y * y / 2) / math.sqrt(2 * math.pi)
    value = phi * (_mills(y) - _mills(x))
  return np.abs(value)


def _mills(y: np.ndarray) -> np.ndarray:
  """Compute Phi(-y) / phi(y)."""
  return math.sqrt(math.pi / 2) * scipy.special.erfcx(y / math.sqrt(2))


def _grid(start: float, stop: float) -> np.ndarray:
  """Space x from start to stop evenly near 0, then by a share of x."""

  def growing(first: float, last: float) -> np.ndarray:
    count = math.ceil(first / _STEP * math.log(last / first))
    return np.geomspace(first, last, count + 1)[1:]

  low, high = max(start, -_EVEN), min(stop, max(_EVEN, start + _EVEN))
  parts = [np.linspace(low, high, math.ceil((high - low) / _STEP) + 1)]
  if start < low:
    parts.insert(0, -growing(-low, -start)[::-1])
  if stop > high:
    parts.append(growing(high, stop))
  return np.concatenate(parts)


def _cleaned(
    x: np.ndarray, log_alpha: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Keep points in ascending order, from the last at or below alpha = 1.

  Far to the left, where only the outer part is left, alpha may rise to 1 again.
  Those points are of another curve, and are omitted. So are points that
  rounding puts in the wrong order. A value is raised to the later ones.

  Args:
    x: the thresholds; alpha - 1 is exact up to `_REACH`.
    log_alpha: ln alpha at the thresholds.
    value: the divergence there.
  """
  below = np.flatnonzero((x <= _REACH) & (log_alpha <= 0))[-1:]
  if below.size:
    log_alpha, value = log_alpha[below[0] :], value[below[0] :]
  before = np.append(-np.inf, np.fmax.accumulate(log_alpha)[:-1])
  keep = np.isfinite(log_alpha) & ~(log_alpha <= before)
  at, value = log_alpha[keep], value[keep]
  first = max(int(np.searchsorted(at, 0.0, side="right")) - 1, 0)
  at, value = at[first:], value[first:]
  if not at.size or at[0] > 0:  # At alpha = 1 no better bound is known.
    at, value = np.append(0.0, at), np.append(1.0, value)
  if at.size == 1:  # Only a constant.
    at, value = np.append(at, at + 1), np.append(value, value)
  return at, np.maximum.accumulate(value[::-1])[::-1]


# Logarithms far below the smallest double ------------------------------------

# Number of terms into which a mixture's weights are split.
MOST_GROUPS = 128


def log_divergence(
    distances: np.ndarray,
    probs: np.ndarray,
    log_alpha: np.ndarray,
    direction: Direction,
) -> np.ndarray:
  """Bound ln of P = sum over k of w_k N(s_k) against Q = N(0).

  Of the splits of alpha, or of Q's weight, into terms with s_k > 0,

    remove  sum of [w_k N(s_k) - a_k N(0)]_+,  a_k adding up to alpha - w_0,
    add     sum of [u_k N(0) - alpha w_k N(s_k)]_+,  u_k to 1 - alpha w_0;

  every such split is a bound, and the best one is `amplification.split`.
  """
  some = (distances > 0) & (probs > 0)
  if not some.any():
    return np.full_like(log_alpha, -np.inf)
  none = min(float(probs[distances == 0].sum()), 1.0)
  s = distances[some][:, None]
  log_w = np.log(probs[some])[:, None] + np.zeros_like(log_alpha)
  with np.errstate(divide="ignore", over="ignore"):
    if direction == "remove":
      weights = log_w
      total = log_alpha + np.log1p(-none * np.exp(-log_alpha))
    else:
      weights = log_w + log_alpha
      left = 1 - none * np.exp(np.minimum(log_alpha, 700.0))
      total = np.log(np.maximum(left, 0.0))
  # If the total is zero, there is nothing to split.
  parts = np.full_like(weights, -np.inf)
  rest = np.isfinite(total)
  if rest.any():
    parts[:, rest] = amplification.split(total[rest], weights[:, rest], s)
  pair = (weights, parts) if direction == "remove" else (parts, weights)
  return np.logaddexp.reduce(amplification.log_weighted(*pair, s), axis=0)
