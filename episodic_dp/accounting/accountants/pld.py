"""The accountant of privacy loss distributions: one step, and compositions.

One step. The profile is evaluated on a grid of losses. The distribution whose
profile is linear in alpha between the grid's points is the pessimistic "Connect
the Dots" discretisation (Doroshenko et al., PoPETS 2022). It is an upper bound,
since the true profile is convex in alpha. Second differences of the profile f
itself, which is near 1 - alpha, would lose digits on a fine grid. Here
(1 - alpha)_+ is first subtracted in closed form (an atom of probability 1 at
loss 0), and the rest is small and exact to its last digits. Loss below the grid
is moved up to its first point, and loss above its last point counts as
unbounded. Negative masses, from rounding or where the profile is not convex,
are raised to zero, which only adds.

T steps. The distribution is composed by powers of its Fourier transform, whose
rounding error is relative to the largest probability. Far out, where a small
delta is determined, this error would be too large. So every distribution is
first tilted by exp(lambda L), with lambda such that the losses of interest
become likely, and tilted back afterwards. The transform covers a window that
holds all but a tiny tilted probability of the sum. The rest is folded into the
window, which only adds, and beyond its end also counts as an unbounded loss.
Transforms are cached, so that a later query of the same plan needs a power and
one inverse transform.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
import scipy

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.unit_profile import UnitProfiles

# Largest share of delta that losses beyond the grid may add over all steps.
_TAIL_SHARE = 1e-6
# Tilted probability outside the transform's window, at each end.
_WINDOW_TAIL = 1e-13
# Share of delta reserved for rounding errors, which are far smaller.
_ROUNDING = 1e-6
_FIRST_POINTS = 1 << 10
_LARGEST_WINDOW = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Loss:
  """A distribution of the privacy loss, of one step or of a run.

  Attributes:
    step: the spacing of the grid.
    lower: the first loss is lower * step.
    probs: float64[n] of the losses on the grid, none negative. Their sum may be
      slightly above 1.
    infinity: the probability of an unbounded loss.
  """

  step: float
  lower: int
  probs: np.ndarray
  infinity: float

  @property
  def upper(self) -> int:
    """Return the number of the last loss, upper * step."""
    return self.lower + self.probs.size - 1

  @functools.cached_property
  def losses(self) -> np.ndarray:
    """Return the losses, float64[n]."""
    return np.arange(self.lower, self.upper + 1) * self.step

  @functools.cached_property
  def _sums(self) -> np.ndarray:
    """Compute S_i = sum over j >= i of p_j e^(L_i - L_j), float64[n + 1].

    Sums over 1, 2, 4, ... neighbouring losses while a factor matters: positive
    terms, and nothing significant underflows.
    """
    result = np.append(self.probs, 0.0)
    reach, factor = 1, math.exp(-self.step)
    while reach < result.size and factor > 0:
      result[:-reach] += factor * result[reach:]
      reach, factor = 2 * reach, factor * factor
    return result

  @functools.cached_property
  def _deltas(self) -> np.ndarray:
    """Compute delta at every loss, descending, by sums of positive terms.

    delta(L_i) - delta(L_(i+1)) = (1 - e^(-step)) S_(i+1).
    """
    tails = counts.from_above(self._sums[1:])
    return self.infinity - math.expm1(-self.step) * tails

  def delta(self, epsilon: float) -> float:
    """Return the smallest delta at an epsilon >= 0; 1 below the first loss."""
    if epsilon < self.losses[0]:  # Smaller losses are not stored.
      return 1.0
    first = int(np.searchsorted(self.losses, epsilon, side="right"))
    if first == self.losses.size:
      return min(1.0, self.infinity)
    share = -math.expm1(epsilon - float(self.losses[first]))
    return min(
        1.0, float(self._deltas[first]) + share * float(self._sums[first])
    )

  def epsilon(self, delta: float) -> float:
    """Return the smallest epsilon >= 0 (and the first loss), or infinity."""
    if delta <= self.infinity:
      return math.inf
    floor = max(0.0, float(self.losses[0]))
    if self.delta(floor) <= delta:
      return floor
    # The first loss at which delta is at most the given one; at the last loss
    # it is `infinity`.
    high = int(np.searchsorted(-self._deltas, -delta, side="left"))
    # Up to that loss, from the loss before, delta(e) = delta(top) +
    # (1 - e^(e - top)) S.
    top, scaled = float(self.losses[high]), float(self._sums[high])
    left = delta - float(self._deltas[high])
    if not 0 < left < scaled:
      return top
    found = math.nextafter(top + math.log1p(-left / scaled), math.inf)
    return max(min(found, top), floor)


@functools.lru_cache(maxsize=32)
def one_step(
    unit_profiles: UnitProfiles,
    direction: Direction,
    reaches: tuple[float, float],
    step: float,
) -> Loss:
  """Discretise the privacy loss of one step (see the module's text).

  Args:
    unit_profiles: the types of units.
    direction: "remove" or "add".
    reaches: least extent of the grid, below 0 and above.
    step: spacing of the grid.
  """
  lower, upper = (math.ceil(end / step) for end in reaches)
  losses = np.arange(-lower, upper + 1) * step
  # Almost nothing remains beyond the ends: smaller values do not matter.
  ends = unit_profile.excess(unit_profiles, losses[[0, -1]], direction)
  excess = unit_profile.bounded_excess(
      unit_profiles, losses, direction, float(ends.max())
  )
  change = np.diff(excess)
  probs = np.zeros(excess.size)
  # The slope in alpha changes at a point by probability / alpha.
  probs[:-1] += change / math.expm1(step)
  probs[1:] += change / math.expm1(-step)
  probs[0] -= excess[0]  # the line from (alpha = 0, excess = 0)
  probs[lower] += 1.0
  return Loss(step, -lower, np.maximum(probs, 0.0), float(excess[-1]))


# Distributions are hashed by identity: one step's come from a cache.


@functools.lru_cache(maxsize=1024)
def _log_moment(single: Loss, tilt: float) -> float:
  """Compute ln E exp(tilt L) of the bounded losses."""
  with np.errstate(divide="ignore"):
    terms = np.log(single.probs) + tilt * single.losses
  largest = float(terms.max())
  return largest + math.log(float(np.exp(terms - largest).sum()))


@functools.lru_cache(maxsize=32)
def _tilted(single: Loss, tilt: float) -> tuple[np.ndarray, float, float]:
  """Tilt one step's losses by exp(tilt L).

  Returns:
    Probabilities, float64[n], which add up to 1; mean and variance.
  """
  with np.errstate(divide="ignore"):
    log_probs = np.log(single.probs) + tilt * single.losses
  weights = np.exp(log_probs - log_probs.max())
  probs = weights / weights.sum()
  mean = float(probs @ single.losses)
  return probs, mean, float(probs @ (single.losses - mean) ** 2)


@functools.lru_cache(maxsize=32)
def _spectrum(single: Loss, tilt: float, size: int) -> np.ndarray:
  """Compute the log of the transform of `_tilted`, folded to length `size`."""
  probs, _, _ = _tilted(single, tilt)
  places = (single.lower + np.arange(probs.size)) % size
  transform = scipy.fft.rfft(np.bincount(places, weights=probs, minlength=size))
  result = np.empty_like(transform)
  # NumPy's logarithm of complex numbers takes twice as long.
  with np.errstate(divide="ignore"):
    result.real = np.log(np.abs(transform))
  result.imag = np.angle(transform)
  return result


def compose(
    singles: list[Loss], times: list[int], tilt: float, delta: float
) -> Loss | None:
  """Compute the privacy loss of a run, precise where `tilt` makes it likely.

  Args:
    singles: one step's losses of each phase, all on grids of one spacing.
    times: number of compositions of each.
    tilt: lambda > 0.
    delta: reference value for the bounds on tails and rounding.

  Returns:
    The distribution, or None if it needs too large a transform.
  """

  def total(values: list[float]) -> float:
    return sum(t * value for t, value in zip(times, values, strict=True))

  step = singles[0].step
  unbounded = -math.expm1(
      total([math.log1p(-min(s.infinity, 1 - 1e-9)) for s in singles])
  )
  if times == [1]:
    infinity = singles[0].infinity + _ROUNDING * delta
    return dataclasses.replace(singles[0], infinity=infinity)
  log_factor = total([_log_moment(s, tilt) for s in singles])
  mean = total([_tilted(s, tilt)[1] for s in singles])
  deviation = math.sqrt(total([_tilted(s, tilt)[2] for s in singles]))
  # Chernoff's bound, at the best of a few exponents, a ladder that queries with
  # nearby numbers of steps share.
  rung = round(math.log2(8 / max(deviation, 1e-300)))
  shifts = [2.0 ** (k + rung) for k in range(-3, 3)]
  down, up = (
      min(
          (
              total([_cumulant(s, tilt, sign * shift) for s in singles])
              - math.log(_WINDOW_TAIL)
          ) / shift
          for shift in shifts
      )
      for sign in (-1, 1)
  )
  most = int(total([s.upper for s in singles]))
  start = max((mean - down) / step, total([s.lower for s in singles]))
  end = min((mean + up) / step, most)
  if not end - start < _LARGEST_WINDOW:  # Nor if a moment is no number.
    return None
  lowest, highest = math.floor(start), math.ceil(end)
  size = 1 << max(highest - lowest, 1).bit_length()
  with np.errstate(invalid="ignore"):
    power = sum(
        t * _spectrum(s, tilt, size)
        for t, s in zip(times, singles, strict=True)
    )
    spectrum = np.where(np.isneginf(power.real), 0.0, np.exp(power))
  circle = scipy.fft.irfft(spectrum, size)
  # No epsilon depends on losses below 0.
  first = min(max(lowest, 0), highest)
  places = np.arange(first, highest + 1)
  probs = np.maximum(circle[places % size], 0.0)
  with np.errstate(divide="ignore", over="ignore"):
    # Where this overflows, far below the epsilon of interest, 1 is a bound.
    probs = np.exp(
        np.minimum(np.log(probs) + log_factor - tilt * step * places, 1.0)
    )
  lost = 0.0
  if highest < most:
    lost = _WINDOW_TAIL * math.exp(
        min(log_factor - tilt * step * highest, 100.0)
    )
  # A tail that adds a small share of delta also counts as unbounded.
  beyond = counts.from_above(probs)
  last = max(int(np.searchsorted(-beyond, -_TAIL_SHARE * delta)), 1)
  lost += float(beyond[last:].max(initial=0.0))
  infinity = min(1.0, unbounded + lost + _ROUNDING * delta)
  return Loss(step, first, probs[:last], infinity)


def _cumulant(single: Loss, tilt: float, shift: float) -> float:
  """Compute ln E exp(shift (L - mean)) of the tilted loss."""
  _, mean, _ = _tilted(single, tilt)
  moved = _log_moment(single, tilt + shift) - _log_moment(single, tilt)
  return moved - shift * mean


def best_tilt(
    singles: list[Loss], times: list[int], at: base.Question
) -> float:
  """Find lambda for which a moment bound on the answer is least.

  E exp(lambda L)^T c(lambda) e^(-lambda epsilon) >= delta(epsilon), where c is
  the largest value of e^(-lambda x) (1 - e^(-x)). Lambda is on a ladder of
  values, so that similar queries share their transforms.
  """

  def bound(rung: int) -> float:
    tilt = math.exp(rung / 8)
    total = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
    total += sum(
        t * _log_moment(s, tilt) for t, s in zip(times, singles, strict=True)
    )
    return at.of_moments(tilt, total)

  widest = max(float(np.abs(s.losses[s.probs > 0]).max()) for s in singles)
  # Not so steep that only a few points of the coarse grid remain.
  last = int(8 * math.log(16 * _FIRST_POINTS / widest))
  best = min(range(-96, max(last, -88), 4), key=bound)
  for width in (2, 1):
    best = min((best - width, best, best + width), key=bound)
  return math.exp(best / 8)


_LAST_POINTS = 1 << 17
# With more steps than this the loss has a wide window: start with fewer points.
_MANY_STEPS = 10**5
# exp(step) must be a number; losses this large give no useful epsilon.
_LARGEST_STEP = 500.0
# The grid is refined until its relative error, in epsilon or delta, is this.
_TOLERANCE = 3e-4
# If no finer grid is possible and its error is above this, try other bounds.
_NEARLY = 2e-3
# A delta is searched down to the first, with the second number of failures.
_LEAST_DELTA, _MISSES = 1e-300, 2
# If one step may lose more than this, moments give an epsilon in the thousands
# at best, and one Gaussian suffices.
_WIDE = 1e4
# The largest orders of moments, tried in turn.
_MOST_ORDERS = (8, 64, 512)
# A distribution that bounds any other: every loss is possible.
_UNKNOWN = Loss(1.0, 0, np.ones(1), 1.0)


@dataclasses.dataclass(frozen=True)
class PLD(base.Accountant):
  """Privacy loss distributions: the tightest accountant, and the default."""

  tolerance: float = _TOLERANCE

  name = "pld"

  def curve(
      self, phases: Phases, direction: Direction, at: base.Question
  ) -> base.Curve:
    """See `base.Accountant`."""

    def refined(guess: float) -> base.Curve:
      return _refined(phases, direction, at, guess, self.tolerance)

    if isinstance(at, base.Delta):
      return refined(at.value)
    # The tails are cut by a share of delta, which is not known yet. A curve for
    # any guess of it holds, if not tightly: the minimum over guesses is a
    # bound.
    found: list[base.Curve] = []
    least, guess, misses = 1.0, 1e-6, 0
    while misses <= _MISSES:
      curve = refined(guess)
      value = at.of(curve)
      if guess * 1e6 < value < least:
        # A share of the guess covers rounding errors, but is too small here.
        curve = refined(value)
        value = at.of(curve)
      found.append(curve)
      if value <= at.least or 0.1 * guess <= value <= 1.01 * least:
        break
      # Above the minimum, the transform for this guess does not reach epsilon.
      misses += value > least
      least = min(least, value)
      if guess <= _LEAST_DELTA:
        break
      # A small share of the guess is barely more than the tails.
      near = 1e-5 * guess <= value < guess
      guess = max(value if near else guess**2, _LEAST_DELTA)
    return base.Least(tuple(found))


@functools.lru_cache(maxsize=256)
def _refined(
    phases: Phases,
    direction: Direction,
    at: base.Question,
    delta: float,
    tolerance: float,
) -> base.Curve:
  """Compute the curve on a grid that is fine enough for the question.

  Args:
    phases: the phases to compose.
    direction: "remove" or "add".
    at: the question.
    delta: its delta, or a guess of the answer.
    tolerance: relative error of the answer.
  """
  simple = _without_grid(phases, direction, at)
  if simple is not None:
    return simple
  revealed = _revealed(phases)
  if revealed is not None and at.is_below(revealed):
    return revealed
  times = [p.times for p in phases]
  # Numbers of steps are rounded up, so that runs of a plan share a grid.
  tails = [
      _TAIL_SHARE * delta / (_rounded_up(t) * len(phases)) for t in times
  ]
  reaches = [
      (
          unit_profile.reach(p.unit_profiles, direction, -1, tail),
          unit_profile.reach(p.unit_profiles, direction, 1, tail),
      )
      for p, tail in zip(phases, tails, strict=True)
  ]
  widest = max(low + high for low, high in reaches)

  def singles_at(points: float) -> list[Loss] | None:
    step = widest / points
    if step > _LARGEST_STEP:
      return None
    singles = [
        one_step(p.unit_profiles, direction, ends, step)
        for p, ends in zip(phases, reaches, strict=True)
    ]
    # On a coarse grid, chords may only say that everything may be lost.
    return singles if all(s.probs.any() for s in singles) else None

  best, precise = _UNKNOWN, False
  coarse = singles_at(_FIRST_POINTS)
  if coarse is not None:
    tilt = best_tilt(coarse, times, at)

    def composed(points: float) -> Loss | None:
      singles = singles_at(points)
      return None if singles is None else compose(singles, times, tilt, delta)

    first = _FIRST_POINTS
    if sum(times) > _MANY_STEPS:
      first //= 4
    best, precise = _searched(composed, at, first, tolerance)
  if precise:
    return best
  # Losses of 1e-9 next to losses of -20 are too much for one even grid. Moments
  # choose points adaptively. And if a step's largest loss is bounded (within
  # the range of doubles), the run's loss is bounded by their sum.
  longest = sum(
      p.times * unit_profile.reach(p.unit_profiles, direction, 1, 0.0)
      for p in phases
  )
  bounds: list[base.Curve] = [
      best, base.BoundedLoss(longest, 1e-300 * sum(times))
  ]
  if revealed is not None:
    bounds.append(revealed)
  known = min(map(at.of, bounds))
  if known > moments.without_loss(at) and (revealed is None or widest < _WIDE):
    bounds.append(_by_moments(phases, direction, at))
  return base.Least(tuple(bounds))


def _searched(
    composed: Callable[[float], Loss | None],
    at: base.Question,
    points: float,
    tolerance: float,
) -> tuple[Loss, bool]:
  """Refine the grid until the answer is precise.

  Args:
    composed: the distribution on a grid with this number of points, or None.
    at: the question.
    points: number of points of the first grid.
    tolerance: relative error of the answer.

  Returns:
    The distribution, `_UNKNOWN` if no grid is possible, and whether it is
    precise.
  """
  best = composed(points)
  while best is None:  # Many steps with a large loss each.
    points /= 2
    if points < 16:
      return _UNKNOWN, False
    best = composed(points)
  value = last = at.of(best)
  refined, left = 2, math.inf
  while value > at.least and points * refined <= _LAST_POINTS:
    finer = composed(points * refined)
    while finer is None and refined > 2:
      refined //= 2
      finer = composed(points * refined)
    if finer is None:
      break
    points *= refined
    coarser, last = last, at.of(finer)
    if math.isinf(last) and math.isfinite(value):
      break  # Its window is too short.
    if last <= value:  # Both are bounds.
      best, value = finer, last
    if math.isfinite(coarser) and value > 0:
      # The error falls with the square of the spacing; the remainder is
      left = abs(coarser - last) / (refined**2 - 1) / value
      if left <= tolerance:
        return best, True
      share = min(math.sqrt(left / tolerance), 16.0)
      refined = 1 << max(1, math.ceil(math.log2(share)))
    while refined > 2 and points * refined > _LAST_POINTS:
      refined //= 2
  return best, value <= at.least or left <= _NEARLY


def _without_grid(
    phases: Phases, direction: Direction, at: base.Question
) -> base.Curve | None:
  """Return the curve of a run that is negligible or one Gaussian."""
  # delta(0) is a total variation, which at most adds up over steps.
  variation = sum(
      p.times
      * float(unit_profile.excess(p.unit_profiles, np.zeros(1), direction)[0])
      for p in phases
  )
  negligible = base.BoundedLoss(0.0, variation)
  if at.is_below(negligible):
    return negligible
  # Steps that surely sample their unit are one Gaussian, exactly.
  certain = all(unit.certain for p in phases for unit in p.unit_profiles)
  return base.GaussianCurve(_distance(phases)) if certain else None


def _revealed(phases: Phases) -> base.GaussianCurve | None:
  """Bound the run by one Gaussian, as if every step sampled the unit.

  It dominates if every profile has a Gaussian tail of weight at most 1,
  H_alpha <= H_alpha(N(d) || N(0)) in both directions (section 10 of the proof).
  """
  if any(u.tail[0] > 1 for phase in phases for u in phase.unit_profiles):
    return None
  distance = _distance(phases)
  return base.GaussianCurve(distance) if distance < math.inf else None


def _distance(phases: Phases) -> float:
  """Return the root of the sum of squared largest distances; above 0."""
  squares = sum(
      phase.times * max(unit.tail[1] for unit in phase.unit_profiles) ** 2
      for phase in phases
  )
  return max(math.sqrt(squares), 1e-150)


def _by_moments(
    phases: Phases, direction: Direction, at: base.Question
) -> moments.RenyiCurve:
  """Bound the run by moments, of no larger orders than necessary.

  Large orders need the profile far out. Divergences do not fall with the order,
  so larger orders are useless if that of the largest tried order already
  exceeds the epsilon.
  """
  for most in _MOST_ORDERS:
    curve = moments.RDP(most, refinements=0).curve(phases, direction, at)
    if curve.rdp[-1] >= at.epsilon(curve):
      break
  return curve


def _rounded_up(steps: int) -> int:
  """Round up to a power of 16, at least 16."""
  return int(16 ** max(1, -(-(steps - 1).bit_length() // 4)))
