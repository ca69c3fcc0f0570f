"""Records that recur across the tasks of a step: the one-step profile.

Notation. A record t may be drawn at several places of one step: in several
tasks that draw their classes independently, or in several of the participants
that hold it. J of the places draw the unit that t lies in (t's class, say), and
K ~ Binomial(J, p) of these draw t itself; each of them moves the clipped sum by
at most `distance`, in standard deviations of the noise. J has the same
distribution without t.

J is taken as revealed: by joint convexity the divergence is at most its average
over J. Using the distribution of K alone would be wrong, for at a place that
does not draw t the rest of the sample tells whether its parent was drawn.

Given J = j, couple all other randomness. Place i then adds a vector v_i of
norm at most d with probability p, so that with S the set of places that do

  P = sum over S of w_S N(sum_(i in S) v_i),   Q = N(0).

Moving all v_i onto one line, at full length and to the same side, only
increases both divergences: the scalar mixture of sensitivities k d with weights
Binomial(j, p) dominates (Choquette-Choo, Ganesh, Steinke and Thakurta, "Privacy
Amplification for Matrix Mechanisms", ICLR 2024). In short: since
[x + y]_+ <= [x]_+ + [y]_+, every way to split alpha = sum a_S gives

  H_alpha(P || Q) <= sum_S [divergence of w_S N(v_S) from a_S N(0)],

each term grows with the length of v_S, and for vectors on one line, where the
likelihood ratio rises along it, the best split is an equality. The reverse
divergence splits 1 - alpha w_0 among the alpha w_S in the same way. The same
argument shows that the profile never falls with j, p or d, so that rounding a
number of places or of occurrences up is pessimistic.

On the line, with R(y) = Phi(-y) / phi(y) (Mills' ratio) and s_k = k d, the set
where P / Q > alpha is a half-line from x, and with x as the parameter

  remove:  alpha = sum_k w_k e^(s_k x - s_k^2 / 2),
           H = sum_k w_k phi(x - s_k) (R(x - s_k) - R(x)),
  add:     1 / alpha = the same sum,
           H = alpha sum_k w_k phi(x - s_k) (R(-x) - R(s_k - x)),

sums of positive terms, exact far into the tail. They are tabulated over x, and
between neighbouring points the profile, convex in alpha, is replaced by its
chord, which lies above it.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts as counts_lib
from episodic_dp.accounting.profiles.amplification import Direction

# Distances below this are replaced by it: larger, so never optimistic.
_MIN_DISTANCE = 1e-6
# Beyond it tables would be long, and say nothing.
_FARTHEST = 1e3
# More values of K than these are rounded up to a coarser lattice.
_MAX_OCCURRENCES = 128
# The grid over x reaches to where Phi(-37) < 1e-299, for high Renyi moments.
# Chords lie above the profile by a share of about (step (x - s_k))^2 / 8. Far
# out, where only many occurrences or tiny probabilities lead, its step grows.
_REACH = 37.0
_STEP = 1 / 768
_EVEN = 12.0
# Exponents are kept below this; e^690 < 1e300.
_LARGEST_POWER = 690.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrence:
  """How often a record can recur in one step, and how far it moves the sum.

  Attributes:
    places: the tasks of a step, or the primary units that hold the record.
    place_rate: the probability that a (drawn) place draws the parent of the
      record, independently of the other places; 1 where it surely does.
    rate: p, the record's own rate given that its parent is drawn.
    distance: how far one occurrence moves the sum, in noise standard
      deviations.
    drawn_of: None where all places are drawn; (n, N) where the step draws n of
      N primary units without replacement, `places` of which hold the record.
  """

  places: int
  place_rate: float
  rate: float
  distance: float
  drawn_of: tuple[int, int] | None = None

  @functools.cached_property
  def parents(self) -> counts_lib.Counts:
    """The distribution of J, the number of places that draw the parent."""
    return _parents(self.places, self.place_rate, self.drawn_of)

  @property
  def most(self) -> int:
    """The largest J that is kept."""
    return self.parents.first + self.parents.probs.size - 1

  @property
  def inclusion_rate(self) -> float:
    """P(K > 0): that a step draws the record at all."""
    first, probs, cut = self.parents
    j = first + np.arange(probs.size)
    some = -np.expm1(j * np.log1p(-self.rate)) if self.rate < 1 else j > 0
    return float(min(probs @ some + cut, 1.0))

  @property
  def tail(self) -> tuple[float, float] | None:
    """(P(K > 0), J_max d), by joint convexity; None where a tail was cut.

    What is cut counts as certainty of a failure, at every alpha.
    """
    if self.parents.cut > 0:
      return None
    return self.inclusion_rate, self.most * self._distance

  @property
  def _distance(self) -> float:
    return max(self.distance, _MIN_DISTANCE)

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""
    return {
        "kind": "recurrence",
        "places": self.places,
        "place_rate": self.place_rate,
        "drawn_of": None if self.drawn_of is None else list(self.drawn_of),
        "own_rate": self.rate,
        "own_distance": self.distance,
    }

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """H_alpha in the direction, for alpha >= 1.

    Args:
      log_alpha: float64[n] of ln alpha >= 0.
      direction: "remove" for M(T) against M(T - t), "add" for the reverse.

    Returns:
      float64[n], an upper bound that convexity makes composable.
    """
    log_alpha = np.asarray(log_alpha, float)
    if self.rate == 0:
      return np.zeros_like(log_alpha)
    if self.distance > _FARTHEST:  # What is drawn is as good as told.
      return np.full_like(log_alpha, self.inclusion_rate)
    value = np.full_like(log_alpha, self.parents.cut)
    if self.rate == 1:
      for j, weight in counts_lib.grouped(self.parents):
        distance = j * self._distance
        value += weight * amplification.hockey_stick(log_alpha, distance)
    else:
      for weight, curve in _curves(self, direction):
        value += weight * curve(log_alpha)
    return np.minimum(value, 1.0)


# Distributions ----------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _parents(
    places: int, place_rate: float, drawn_of: tuple[int, int] | None
) -> counts_lib.Counts:
  if drawn_of is None:
    counts = counts_lib.binomial(places, place_rate)
  else:
    drawn, population = drawn_of
    counts = counts_lib.hypergeometric(
        population, places, min(drawn, population)
    )
    if place_rate < 1:
      counts = counts_lib.thinned(counts, place_rate)
  return counts_lib.trimmed(counts)


# Profiles given J -------------------------------------------------------------


class _Curve(NamedTuple):
  """An upper bound on one convex profile, by its chords.

  Attributes:
    log_alpha: float64[n], rising, of which the first is at most 0.
    value: float64[n], falling. Beyond the last point it stays.
  """

  log_alpha: np.ndarray
  value: np.ndarray

  def __call__(self, log_alpha: np.ndarray) -> np.ndarray:
    at, value = self.log_alpha, self.value
    right = np.clip(np.searchsorted(at, log_alpha), 1, at.size - 1)
    low, high = at[right - 1], at[right]
    x = np.minimum(log_alpha, at[-1])
    # (alpha - alpha_low) / (alpha_high - alpha_low), without overflow.
    share = np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
    return value[right - 1] * (1 - share) + value[right] * share


def _occurrences(j: int, rate: float, lattice: int) -> tuple[np.ndarray, float]:
  """Weights of K = 0, g, ... for K ~ Binomial(j, p), rounded up; the cut."""
  counts = counts_lib.binomial(j, rate)
  places = -(-(counts.first + np.arange(counts.probs.size)) // lattice)
  return np.bincount(places, weights=counts.probs), counts.cut


@functools.lru_cache(maxsize=8)
def _curves(
    kind: Recurrence, direction: Direction
) -> tuple[tuple[float, _Curve], ...]:
  """(P(J = j), the profile given J = j), for the values of J above 0."""
  lattice = -(-kind.most // _MAX_OCCURRENCES)
  distance = kind._distance * lattice  # pylint: disable=protected-access
  groups = counts_lib.grouped(kind.parents)
  if not groups:
    return ()
  remove = direction == "remove"
  s = distance * np.arange(1, -(-groups[-1][0] // lattice) + 1)[:, None]
  # At d / 2, and at half of the largest sensitivity, no alpha is above 1.
  if remove:
    x = _grid(0.49 * distance, s[-1, 0] + _REACH)
  else:
    x = _grid(-_REACH, 0.51 * s[-1, 0])
  power = s * x - s * s / 2
  gains = _removed(s, x) if remove else _added(s, x, power)
  w = np.zeros((len(groups), s.size + 1))
  cuts = []
  for row, (j, _) in zip(w, groups):
    part, cut = _occurrences(j, kind.rate, lattice)
    row[: part.size] = part
    cuts.append(cut)
  log_sums = _log_mixtures(w, s, x, power)
  values = w[:, 1:] @ gains
  result = []
  for i, (j, weight) in enumerate(groups):
    reach = distance * -(-j // lattice)
    end = np.searchsorted(x, reach + _REACH if remove else 0.51 * reach) + 1
    log_alpha, value = log_sums[i, :end], values[i, :end] + 0.0
    if not remove:
      # Where e^power was bounded, 1 is a bound; alpha ends at e^690.
      held = power[w[i, 1:] > 0, :end]
      bounded = (held > _LARGEST_POWER).any(axis=0)
      log_alpha = -log_alpha
      value *= np.exp(np.minimum(log_alpha, _LARGEST_POWER))
      value[bounded] = 1.0
      value[log_alpha > _LARGEST_POWER] = np.nan
      log_alpha, value = log_alpha[::-1], value[::-1]
    curve = _Curve(log_alpha, np.minimum(value, 1.0) + cuts[i])
    result.append((weight, _cleaned(curve)))
  return tuple(result)


def _grid(start: float, stop: float) -> np.ndarray:
  """x from start to stop, evenly spaced near 0."""
  low, high = max(start, -_EVEN), min(stop, max(_EVEN, start + _EVEN))
  parts = [np.linspace(low, high, math.ceil((high - low) / _STEP) + 1)]
  if start < low:
    parts.insert(0, -_growing(-low, -start)[::-1])
  if stop > high:
    parts.append(_growing(high, stop))
  return np.concatenate(parts)


def _growing(start: float, stop: float) -> np.ndarray:
  """x above start up to stop, with a step that is a share of x."""
  count = math.ceil(start / _STEP * math.log(stop / start))
  return np.geomspace(start, stop, count + 1)[1:]


def _cleaned(curve: _Curve) -> _Curve:
  """Points in rising order, from the last at or below alpha = 1.

  Points that rounding puts in the wrong order are left out, and a value is
  raised to those that come later.
  """
  at, value = curve
  before = np.concatenate([[-np.inf], np.maximum.accumulate(at)[:-1]])
  keep = np.isfinite(at) & np.isfinite(value) & (at > before)
  at, value = at[keep], value[keep]
  first = max(int(np.searchsorted(at, 0.0, side="right")) - 1, 0)
  return _Curve(
      at[first:], np.maximum.accumulate(value[first:][::-1])[::-1]
  )


def _log_mixtures(
    w: np.ndarray, s: np.ndarray, x: np.ndarray, power: np.ndarray
) -> np.ndarray:
  """ln sum_k w_jk e^(power_k(x)), where power_0 is 0 (and not given).

  Args:
    w: float64[J, K + 1].
    s: float64[K, 1], sensitivities.
    x: float64[n], rising.
    power: float64[K, n], s x - s^2 / 2.

  Returns:
    float64[J, n].
  """
  # Power is at most x^2 / 2: beyond this x it is scaled by that.
  near = slice(0, int(np.searchsorted(x, math.sqrt(2 * _LARGEST_POWER))))
  far = slice(near.stop, None)
  result = np.empty((len(w), x.size))
  with np.errstate(divide="ignore"):
    # A sum near 1 is kept by what it exceeds 1.
    excess = w[:, 1:] @ np.expm1(power[:, near])
    total = w[:, :1] + w[:, 1:] @ np.exp(power[:, near])
    result[:, near] = np.where(
        np.abs(excess) < 0.5, np.log1p(np.maximum(excess, -0.5)), np.log(total)
    )
    scaled = w[:, 1:] @ np.exp(-((x[far] - s) ** 2) / 2)
    result[:, far] = np.log(scaled) + x[far] ** 2 / 2
    small = scaled < 1e-250  # Where only terms far from x count.
    for row in np.flatnonzero(small.any(axis=1)):
      columns = near.stop + np.flatnonzero(small[row])
      terms = np.concatenate(
          [np.zeros((1, columns.size)), power[:, columns]]
      ) + np.log(w[row])[:, None]
      result[row, columns] = np.logaddexp.reduce(terms, axis=0)
  return result


def _mills(y: np.ndarray) -> np.ndarray:
  """Phi(-y) / phi(y)."""
  return math.sqrt(math.pi / 2) * special.erfcx(y / math.sqrt(2))


def _normal(y: np.ndarray) -> np.ndarray:
  return np.exp(-y * y / 2) / math.sqrt(2 * math.pi)


def _removed(s: np.ndarray, x: np.ndarray) -> np.ndarray:
  """Phi(s - x) - e^(s x - s^2 / 2) Phi(-x), for x > 0."""
  y = x - s
  density = _normal(y)
  with np.errstate(over="ignore", invalid="ignore"):
    tail = density * (_mills(y) - _mills(x))
  near = special.ndtr(-y) - density * _mills(x)
  return np.maximum(np.where(y > 0, tail, near), 0.0)


def _added(s: np.ndarray, x: np.ndarray, power: np.ndarray) -> np.ndarray:
  """e^(s x - s^2 / 2) Phi(x) - Phi(x - s)."""
  y = x - s
  with np.errstate(over="ignore", invalid="ignore"):
    tail = _normal(y) * (_mills(-x) - _mills(-y))
  ratio = np.exp(np.minimum(power, _LARGEST_POWER))
  near = ratio * special.ndtr(x) - special.ndtr(y)
  return np.maximum(np.where(x <= 0, tail, near), 0.0)
