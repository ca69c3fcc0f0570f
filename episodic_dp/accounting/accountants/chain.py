"""Group privacy: what k links of a chain of neighbours compose to.

Let T_0, T_1, ..., T_k be data sets of which each two in a row are neighbours,
all in one direction, and let delta(a) bound the divergence of each such pair at
alpha = e^a. For any three distributions and b, c > 0

  H_(bc)(X || Z)  <=  H_b(X || Y) + b H_c(Y || Z),

since [x - bc z]_+ <= [x - b y]_+ + b [y - c z]_+. So for every way to write
epsilon = a_1 + ... + a_k

  H_(e^epsilon)(M(T_0) || M(T_k))
      <=  sum over i of  e^(a_1 + ... + a_(i-1)) delta(a_i),

and the least of these sums is taken, over the splits of a grid: F_1 = delta and
F_(i+j)(x) = min over a of F_i(a) + e^a F_j(x - a). Every split is a bound, so a
coarse grid is never optimistic. Between points of the grid the true divergence,
convex in alpha, lies below its chord.

The links are those of a composed run, not of one step: a bound on the whole run
for one unit is what is chained.
"""

import dataclasses
import functools
import math

import numpy as np

from episodic_dp.accounting.accountants import curves

# A link's profile is asked at the first number of points, and its chords are
# read at the second.
_ASKED, _POINTS = 129, 1025
_HALVINGS = 60
# No epsilon above this is looked for: exp(epsilon) must be a number.
_LARGEST = 700.0
# Sums of exponentials are rounded up by this.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Chained:
  """The profile of a chain of equal links.

  Attributes:
    link: of one pair of neighbours.
    size: k, the number of links, at least 1.
  """

  link: curves.Curve
  size: int

  def epsilon(self, delta: float) -> float:
    """See `curves.Curve`."""
    if delta <= 0:
      return math.inf
    top = self._even(math.log(delta))
    if math.isinf(top):
      return math.inf
    if top == 0:
      return 0.0
    at, logs = self._table(top)
    low = logs <= math.log(delta)
    if not low.any():  # Rounding: the even split is on the grid.
      return top
    first = int(np.argmax(low))
    if first == 0:
      return 0.0
    return _crossing(
        float(at[first - 1]), float(at[first]),
        float(logs[first - 1]), float(logs[first]), math.log(delta),
    )

  def delta(self, epsilon: float) -> float:
    """See `curves.Curve`."""
    if self.size == 1 or epsilon == 0:
      return min(1.0, self.size * self.link.delta(epsilon))
    return min(1.0, math.exp(min(float(self._table(epsilon)[1][-1]), 0.0)))

  def _even(self, target: float) -> float:
    """About the least k a where k links of a have e^target between them."""

    def reached(a: float) -> bool:
      value = self.link.delta(a)
      # 1 + e^a + ... + e^((k-1) a)
      ways = float(np.logaddexp.reduce(a * np.arange(self.size)))
      return value <= 0 or math.log(value) + ways <= target

    low, high = 0.0, 1 / 64 / self.size
    if reached(0.0):
      return 0.0
    while not reached(high):
      low, high = high, 2 * high
      if high * self.size > _LARGEST:
        return math.inf
    for _ in range(_HALVINGS):
      middle = (low + high) / 2
      if high - low < 1e-6 * high:
        break
      if reached(middle):
        high = middle
      else:
        low = middle
    return high * self.size

  def _table(self, top: float) -> tuple[np.ndarray, np.ndarray]:
    """ln F_k at even points from 0 to `top`."""
    at = np.linspace(0.0, top, _POINTS)
    asked = at[:: (_POINTS - 1) // (_ASKED - 1)]
    values = np.asarray([self.link.delta(float(a)) for a in asked])
    # delta falls with epsilon, whatever the discretisation says.
    values = np.minimum.accumulate(values)
    logs = _chords(asked, values, at)

    @functools.cache
    def power(count: int) -> np.ndarray:
      if count == 1:
        return logs
      half = count // 2
      return _combined(at, power(half), power(count - half))

    return at, power(self.size) + _ROUNDING * self.size


def _chords(
    asked: np.ndarray, values: np.ndarray, at: np.ndarray
) -> np.ndarray:
  """ln of the broken line, linear in alpha = e^epsilon, at more points."""
  right = np.clip(np.searchsorted(asked, at), 1, asked.size - 1)
  low, high = asked[right - 1], asked[right]
  share = np.exp(at - high) * np.expm1(low - at) / np.expm1(low - high)
  line = values[right - 1] * (1 - share) + values[right] * share
  with np.errstate(divide="ignore"):
    return np.log(np.maximum(line, values[right]))


def _combined(
    at: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
  """ln of the least F_i(a) + e^a F_j(x - a), at every x of the grid."""
  result = np.empty_like(at)
  for n in range(at.size):
    result[n] = np.logaddexp(
        first[: n + 1], at[: n + 1] + second[n::-1]
    ).min()
  return np.minimum.accumulate(result)


def _crossing(
    low: float, high: float, at_low: float, at_high: float, target: float
) -> float:
  """Where the chord in alpha from one point to the next reaches e^target."""
  # Relative to the value at low: 1 - share (1 - e^drop) = e^wanted.
  drop, wanted = at_high - at_low, target - at_low
  if not wanted < 0 or not drop < 0 or math.isinf(at_low):
    return high
  share = math.expm1(wanted) / math.expm1(drop)
  found = low + math.log1p(share * math.expm1(high - low))
  return min(max(found * (1 + 1e-12), low), high)
