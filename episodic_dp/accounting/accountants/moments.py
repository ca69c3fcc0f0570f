"""Accountants that add up moments: Renyi divergences, and [S]'s moments.

Moments of a step's profile add up over adaptive steps, separately for each
direction, so composition is a weighted sum. The accountants differ in the
conversion to epsilon. Both are looser than `pld`, need no grid of losses for
the whole run, and are the accountants that papers report:

  RDP      Mironov, "Renyi Differential Privacy" (CSF 2017), with the conversion
           of Canonne, Kamath and Steinke (NeurIPS 2020, proposition 12);
  Moments  Abadi et al., "Deep Learning with Differential Privacy" (CCS 2016),
           as in [S], Sharma, "Differential Privacy & Approximate Bayesian
           Inference" (2019), equations 2.6-2.16.

Renyi moments of a one-step privacy profile are computed as upper bounds.

Let g(alpha) = f(alpha) - (1 - alpha)_+ be the excess of a direction's profile
(`profile.excess`), P and Q the outputs that the direction compares, and
psi(alpha) = alpha^l - 1 - l (alpha - 1). Then

  E_Q[(P/Q)^l] - 1  =  l (l - 1) * integral over alpha > 0 of alpha^(l-2) g
                    =  sum over points of  (change of slope of g) psi(alpha),

the last for a g that is linear between points. The profile of P and Q is convex
in alpha, so it lies below the broken line through any of its upper bounds, and
the sum over that line bounds the moment from above. The atom at alpha = 1 has
psi = 0 and drops out. Every other term is positive, and all of it is computed
in logarithms (by the tail's bound where the profile underflows). So nothing
cancels, however small a rate or large an order.

Below its first point the line ends at g(0) = 0. Above its last point U, the
`tail` (w, d) of the types of units gives
g <= w H_alpha(N(d) || N(0)) <= w Phi(d/2 - ln(alpha)/d), and by parts

  l (l-1) * integral from U of alpha^(l-2) w Phi(d/2 - ln(alpha)/d)
    <= l w exp(l (l-1) d^2 / 2) Phi((l - 1/2) d - ln(U)/d).

The points are chosen so that the error is a small share of the log-moment at
every useful order: where they matter, segments are halved until the line is
relatively near to the profile. A line over fewer points gives a larger bound,
never a smaller one.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
import scipy

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.amplification import UnitProfile

# Relative error of the log-moment that determines the points.
_TOLERANCE = 1e-3
# The first points are U 2^(-j/4) for j / 4 up to this.
_OCTAVES = 72
# An order whose divergence exceeds that of order 2 by this is useful only for a
# delta below e^-100, however often the step is repeated.
_OF_USE = 105.0
# A share that covers rounding errors, which are far smaller.
_ROUNDING = 1e-9
# Number of losses to sum at a time.
_CHUNK = 1 << 7

# Below this number a double may have lost digits.
_SMALL = 1e-280

_LARGEST_ORDER = 512
# Number of orders that are added near the best one at a time.
_BETWEEN = 20

_LogExcess = Callable[[np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=64)
def log_moments(
    unit_profiles: unit_profile.UnitProfiles,
    direction: amplification.Direction,
    orders: tuple[float, ...],
) -> np.ndarray:
  """Bound ln E_Q[(P/Q)^order] = (order - 1) D_order(P || Q) of one step.

  Args:
    unit_profiles: the types of units of the level. All need a `tail`, except
      a single one that knows its moments.
    direction: "remove" for P = M(T), Q = M(T - t); "add" for the reverse.
    orders: ascending, all above 1.

  Returns:
    float64[orders], an upper bound; read-only.

  Raises:
    PlanError: a type has no tail bound, so its moments may be infinite.
  """
  weight, distance = _tail(unit_profiles)
  order = np.asarray(orders, float)
  if weight == 0:
    return np.zeros_like(order)
  bound = _convexity_bound(order, weight, distance)
  if math.isfinite(distance):
    def log_excess(u: np.ndarray) -> np.ndarray:
      return np.max(
          [_log_excess(kind, u, direction) for kind in unit_profiles], axis=0
      )

    losses, heights, log_least = _points(log_excess, order, distance)
    used = slice(log_least.size)
    log_sum = np.logaddexp(
        _log_sum(losses, heights, order[used], log_least),
        _log_tail(losses[-1], order[used], weight, distance),
    )
    bound[used] = np.minimum(bound[used], np.logaddexp(0.0, log_sum))
  bound = bound * (1 + _ROUNDING)
  bound.flags.writeable = False
  return bound


def _tail(unit_profiles: unit_profile.UnitProfiles) -> tuple[float, float]:
  """Return (w, d) of all types; the Gaussian's divergence increases with d."""
  tails = [kind.tail for kind in unit_profiles if kind.tail[0] > 0]
  none = (0.0, amplification.MIN_DISTANCE)
  weight, distance = np.max([none, *tails], axis=0).tolist()
  return weight, distance


def _convexity_bound(
    order: np.ndarray, weight: float, distance: float
) -> np.ndarray:
  """Compute ln(1 - w + w exp(l (l-1) d^2 / 2)), a bound from the tail alone."""
  with np.errstate(over="ignore", divide="ignore"):
    log_gaussian = order * (order - 1) * np.square(distance) / 2
    return np.where(
        log_gaussian < 30,
        np.log1p(weight * np.expm1(np.minimum(log_gaussian, 30.0))),
        np.logaddexp(
            np.log1p(-min(weight, 1.0)), math.log(weight) + log_gaussian
        ),
    )


def _log_tail(
    end: float, order: np.ndarray, weight: float, distance: float
) -> np.ndarray:
  """Bound ln of the moment above the last point (see the module's text)."""
  return (
      np.log(order * weight)
      + order * (order - 1) * distance**2 / 2
      + scipy.special.log_ndtr((order - 0.5) * distance - end / distance)
  )


def _points(
    log_excess: _LogExcess, order: np.ndarray, distance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Choose the points between which the profile is approximated linearly.

  Returns:
    Losses, ascending and including 0; ln of the excess there; and, for the
    first orders, which are the useful ones, approximately ln of the moment less
    1.
  """
  losses = _first_losses(order[-1], distance)
  heights = log_excess(losses)
  log_least = _least(losses, heights, order)
  divergence = np.logaddexp(0.0, log_least) / (order - 1)
  enough = divergence[min(np.searchsorted(order, 2.0), order.size - 1)]
  # Divergences of 10^18 are all equal: then all orders are useful.
  last = max(1, int(np.searchsorted(divergence, enough + _OF_USE, "right")))
  order, log_least = order[:last], log_least[:last]
  near = losses <= _upper(order[-1], distance)
  losses, heights = losses[near], heights[near]
  allowed = _allowed(losses, heights, order, log_least, distance)
  losses, heights = unit_profile.refined(log_excess, losses, heights, allowed)
  return losses, heights, log_least


def _upper(order: float, distance: float) -> float:
  """Find the loss beyond which a Gaussian's moment is negligible.

  x standard deviations above its mean the integrand is about
  exp(l^2 d^2 / 2 - x^2 / 2), which must be small against moments near 1.
  """
  reach = order * distance
  return distance * (reach + math.sqrt(reach**2 + 210.0))


def _first_losses(order: float, distance: float) -> np.ndarray:
  """List losses on both sides of 0, evenly spaced in logarithm."""
  scales = np.exp2(-np.arange(4.0 * _OCTAVES, -1.0, -1.0) / 4)
  lower = -distance * (distance / 2 + 15.0)
  return np.concatenate(
      [lower * scales[::-1], [0.0], _upper(order, distance) * scales]
  )


def _least(
    losses: np.ndarray, heights: np.ndarray, order: np.ndarray
) -> np.ndarray:
  """Estimate ln of the moment less 1; the excess falls up to each point."""
  above = losses > 0
  step = (order - 1)[:, None]
  with np.errstate(divide="ignore"):
    terms = (
        heights[above]
        + step * losses[above]
        + np.log(-np.expm1(-step * losses[above]))
    )
  return np.log(order) + terms.max(axis=1)


def _allowed(
    losses: np.ndarray,
    heights: np.ndarray,
    order: np.ndarray,
    log_least: np.ndarray,
    distance: float,
) -> np.ndarray:
  """Choose the allowed distance of chords above the profile: float64[segments].

  An error of e in M - 1 is e (M - 1) / M in ln M. So every segment may be off
  by tolerance * M ln M / (M - 1), and by more if it adds little to M - 1.
  """
  # Orders whose integrands overlap the next one's.
  tested = [0]
  while tested[-1] < order.size - 1:
    step = order[tested[-1]] - 1
    wanted = order[tested[-1]] + min(0.1 * step, 1 / distance)
    found = int(np.searchsorted(order, wanted))
    tested.append(min(max(found, tested[-1] + 1), order.size - 1))
  log_least = log_least[tested][:, None]
  step = order[tested][:, None] - 1
  with np.errstate(divide="ignore"):
    log_size = (
        np.log(step + 1)
        + np.maximum(heights[:-1], heights[1:])
        + step * losses[1:]
        + np.log(-np.expm1(-step * np.diff(losses)))
    )
  log_size = np.maximum(log_size, -1e300)  # Not inf - inf.
  log_moment = np.maximum(np.logaddexp(0.0, log_least), 1e-300)  # Not 0 / 0.
  share = np.exp(np.clip(log_least - math.log(64) - log_size, 0.0, 500.0))
  # M ln M / (M - 1)
  return (
      _TOLERANCE * log_moment / -np.expm1(-log_moment) * share
  ).min(axis=0)


def _log_sum(
    losses: np.ndarray,
    heights: np.ndarray,
    order: np.ndarray,
    log_least: np.ndarray,
) -> np.ndarray:
  """Compute ln of the sum of changes of slope times psi, float64[orders]."""
  # Each point and its neighbours, relative to the largest of the three. The
  # line from alpha = 0 ends at the first point, and is constant after the last.
  before = np.append(-np.inf, heights[:-1])
  after = np.append(heights[1:], -np.inf)
  scale = np.maximum(np.maximum(before, heights), after)
  scale = np.where(np.isneginf(scale), 0.0, scale)
  g = np.exp(heights - scale)
  step = np.diff(losses)
  # (change of slope) * alpha
  mass = np.zeros(losses.size)
  with np.errstate(over="ignore"):
    mass[:-1] += (np.exp(after - scale) - g)[:-1] / np.expm1(step)
  mass[1:] += (g - np.exp(before - scale))[1:] / np.expm1(-step)
  mass[0] -= g[0]
  kept = (mass > 0) & (losses != 0)
  with np.errstate(divide="ignore"):
    # At alpha = 0 psi is l - 1, and the constant line has slope 0 and height g.
    total = np.logaddexp(
        heights[0] - losses[0] + np.log(order - 1),
        heights[-1] + np.log(order) + (order - 1) * losses[-1],
    )
  u, log_mass = losses[kept], np.log(mass[kept]) + scale[kept]
  small = np.abs(u) * order[-1] < 0.1
  total = np.logaddexp(total, _log_series(u[small], log_mass[small], order))
  u, log_mass = u[~small], log_mass[~small]
  log_mass = log_mass - u
  for start in range(0, u.size, _CHUNK):
    part = slice(start, start + _CHUNK)
    # psi is at most l or alpha^l: if it is too small, this is the bound.
    most = math.log(_CHUNK) + log_mass[part].max() + np.maximum(
        np.log(order), order * u[part][-1]
    )
    matters = most > log_least - 30
    if matters.any():
      most[matters] = _log_chunk(u[part], log_mass[part], order[matters])
    total = np.logaddexp(total, most)
  return total


def _log_series(
    u: np.ndarray, log_mass: np.ndarray, order: np.ndarray
) -> np.ndarray:
  """Sum psi = sum of (order^n - order) u^n / n!, where order * |u| < 0.1."""
  if not u.size:
    return np.full(order.size, -np.inf)
  # Scaled, because u^2 may underflow.
  log_terms = log_mass - u + 2 * np.log(np.abs(u))
  largest = log_terms.max()
  weights = np.exp(log_terms - largest)
  series = np.zeros(order.size)
  for n in range(2, 12):
    series += (
        (order**n - order) / math.factorial(n) * (weights @ u ** (n - 2))
    )
  return largest + np.log(series)


def _log_chunk(
    u: np.ndarray, log_mass: np.ndarray, order: np.ndarray
) -> np.ndarray:
  """Compute ln of the sum of mass * psi / alpha for ascending u, none tiny."""
  some = order[:, None]
  x = some * u
  near = np.minimum(x, 1.0)
  with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
    log_psi = np.where(
        x <= 1,
        np.log(np.expm1(near) - some * np.expm1(np.minimum(u, 1.0))),
        x + np.log1p(
            some * np.exp(u - x) * np.expm1(-np.maximum(u, 0.0))
            - np.exp(-np.maximum(x, 0.0))
        ),
    )
  log_psi += log_mass
  largest = log_psi.max(axis=1, keepdims=True)
  largest = np.where(np.isfinite(largest), largest, 0.0)
  with np.errstate(divide="ignore"):
    return largest[:, 0] + np.log(np.exp(log_psi - largest).sum(axis=1))


# The excess ------------------------------------------------------------------


def _log_excess(
    kind: UnitProfile,
    log_alpha: np.ndarray,
    direction: amplification.Direction,
) -> np.ndarray:
  """Bound ln of `unit_profile.excess` of one type, -inf where it is zero.

  Where a double would underflow, bounds of its logarithm are used.
  """
  small = kind.least_exact
  value = unit_profile.bounded_excess((kind,), log_alpha, direction, small)
  result = np.log(np.maximum(value, _SMALL))
  other = amplification.OPPOSITE[direction]
  for side, which in ((log_alpha >= 0, direction), (log_alpha < 0, other)):
    low = np.flatnonzero((value < small) & side)
    if low.size:
      # alpha H_(1/alpha) below alpha = 1
      bound = kind.log_divergence(abs(log_alpha[low]), which)
      bound += np.minimum(log_alpha[low], 0.0)
      result[low] = np.minimum(result[low], bound)
  return result


# The conversion uses no order of 1.01 or less, where it loses digits.
_LEAST_CONVERTED, _LEAST_STEP = 1.01, 0.0105


@functools.lru_cache(maxsize=8)
def orders(max_order: int) -> tuple[float, ...]:
  """List whole orders from 2, and orders from 1 to 11 evenly in logarithm.

  In the order l epsilon is near a (l - 1) + b / (l - 1). If l - 1 is off by
  half of a ratio r from the best order, this adds (ln r)^2 / 8 of epsilon: 0.1
  % here, and less from 11 on, where whole orders are at least as dense.
  """
  small = 1 + np.geomspace(_LEAST_STEP, 10.0, 73)
  found = {*small[:-1].tolist(), *map(float, range(2, max_order + 1))}
  return tuple(sorted(order for order in found if order <= max_order))


def without_loss(at: base.Question) -> float:
  """Answer by the moments of a run without any loss."""
  order = np.asarray(orders(_LARGEST_ORDER))
  return RenyiCurve(order, np.zeros(order.size)).converted(at)


def total_log_moments(
    phases: base.Phases, direction: Direction, at: tuple[float, ...]
) -> np.ndarray:
  """Compute ln of the moments of a run, float64[orders]."""
  return sum(
      (
          phase.times
          * log_moments(phase.unit_profiles, direction, at)
          for phase in phases
      ),
      start=np.zeros(len(at)),
  )


@dataclasses.dataclass(frozen=True, eq=False)
class RenyiCurve:
  """The privacy profile implied by moments, or Renyi divergences.

  Attributes:
    orders: float64[n], each above 1.
    rdp: float64[n], the Renyi divergences of the run in one direction.
    plain: whether to use only the tail bound of [S] (2.9, 2.10), which has
      lambda = order - 1 and alpha = lambda * rdp. [S] (2.14) takes the larger
      direction at every lambda. Taking the larger epsilon, after the best
      lambda for each direction, is never larger.
  """

  orders: np.ndarray
  rdp: np.ndarray
  plain: bool = False

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    if delta <= 0:
      return math.inf
    if self._variation() < delta:
      return 0.0
    return self.converted(base.Delta(delta))

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return min(self.converted(base.Epsilon(epsilon)), self._variation())

  def converted(self, at: base.Question) -> float:
    """Find the least answer over orders, at most the unknown one."""
    _, found = self._bounds(at)
    least = float(np.min(found, initial=at.unknown))
    return at.from_moments(least)

  def near_best(self, at: base.Question) -> np.ndarray:
    """List orders between the neighbours of the best one, float64[n]."""
    powers, found = self._bounds(at)
    ranks = np.argsort(powers)
    best = int(np.argmin(found[ranks]))
    low, high = ranks[max(best - 1, 0)], ranks[min(best + 1, ranks.size - 1)]
    return 1 + np.geomspace(powers[low], powers[high], _BETWEEN + 2)[1:-1]

  def _bounds(self, at: base.Question) -> tuple[np.ndarray, np.ndarray]:
    """Return order - 1, and what each order says of the question."""
    some = self.orders > _LEAST_CONVERTED
    order, rdp = self.orders[some], self.rdp[some]
    powers = order - 1
    if not self.plain:  # The divergence less the gain of proposition 12.
      rdp = rdp + np.log1p(-1 / order) - np.log(order) / powers
    return powers, at.of_moments(powers, powers * rdp)

  def _variation(self) -> float:
    """Bound the total variation: sqrt(1 - e^-D) (Bretagnolle and Huber)."""
    if self.plain:
      return 1.0
    return float(np.sqrt(-np.expm1(-self.rdp)).min()) * (1 + 1e-12)


@dataclasses.dataclass(frozen=True)
class RDP(base.Accountant):
  """Renyi differential privacy with a dense list of orders.

  Attributes:
    max_order: the largest order.
    refinements: how often orders are added near the best one.
  """

  max_order: int = _LARGEST_ORDER
  refinements: int = 2

  name = "rdp"
  plain = False

  def curve(
      self, phases: base.Phases, direction: Direction, at: base.Question
  ) -> RenyiCurve:
    """See `base.Accountant`; orders are denser near the best one.

    Raises:
      PlanError: a type of unit may have infinite moments.
    """
    first = orders(self.max_order)
    if self.plain:  # E_P exp(lambda * loss) is Q's moment of order lambda + 1.
      first = tuple(float(power + 1) for power in range(1, self.max_order + 1))
    curve = self._at(phases, direction, first)
    for _ in range(self.refinements):
      near = curve.near_best(at)
      more = self._at(phases, direction, tuple(near.tolist()))
      curve = RenyiCurve(
          np.append(curve.orders, more.orders),
          np.append(curve.rdp, more.rdp),
          self.plain,
      )
    return curve

  def _at(
      self, phases: base.Phases, direction: Direction, at: tuple[float, ...]
  ) -> RenyiCurve:
    """Compute the curve of given orders, ascending."""
    order = np.asarray(at)
    rdp = total_log_moments(phases, direction, at) / (order - 1)
    return RenyiCurve(order, rdp, self.plain)


@dataclasses.dataclass(frozen=True)
class Moments(RDP):
  """The moments accountant of [S], by the moments of the tight profiles.

  Attributes:
    max_order: the largest lambda.
    refinements: how often lambdas are added near the best one; without, they
      are whole, as published.
  """

  max_order: int = 256
  refinements: int = 0

  name = "moments"
  plain = True
