"""The accountant of privacy loss distributions: one step, and many composed.

One step. The profile is evaluated on a grid of losses, and the distribution
whose profile is linear in alpha between the grid's points is the pessimistic
"Connect the Dots" discretisation (Doroshenko et al., PoPETS 2022): an upper
bound, since the true profile is convex in alpha. Taking second differences of
the profile f itself, which is near 1 - alpha, loses as many digits as the grid
is fine; here (1 - alpha)_+ is taken off first, in closed form (an atom of
probability 1 at loss 0), and what is left is small and exact to its last
digits. Loss below the grid is moved up to its first point, and what is above
its last point counts as an unbounded loss. Negative masses, where the profile
is not convex or rounding, are raised to zero, which only adds.

T steps. The distribution is composed by powers of its Fourier transform, whose
rounding error is relative to the largest probability: far out, where a small
delta is decided, it would count too little. So every distribution is tilted
first by exp(lambda L), with lambda such that the losses of interest become the
likely ones, and tilted back afterwards. The transform is of a window that holds
all but a tiny tilted probability of the sum; what lies outside is folded into
it, which only adds, and beyond its end also counts as an unbounded loss.
Transforms are kept, so that a later query of the same plan costs a power and
one inverse transform.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import fft

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.unit_profile import UnitProfiles

# What lies beyond the grid may add at most this share of delta over all steps.
_TAIL_SHARE = 1e-6
# Tilted probability that the window of the transform may leave out, at an end.
_WINDOW_TAIL = 1e-13
# Share of delta that is kept for rounding errors, whose true size is far less.
_ROUNDING = 1e-6
_FIRST_POINTS = 1 << 10
_LARGEST_WINDOW = 1 << 20


@dataclasses.dataclass(frozen=True)
class Grid:
  """Losses lower * step, ..., upper * step, with lower < 0 < upper."""

  step: float
  lower: int
  upper: int

  def losses(self) -> np.ndarray:
    """float64[points]."""
    return np.arange(self.lower, self.upper + 1) * self.step


@dataclasses.dataclass(frozen=True, eq=False)
class Loss:
  """A distribution of the privacy loss, of one step or of a run.

  Attributes:
    step: the grid's step.
    lower: the first loss is lower * step.
    probs: float64[n] of the losses on the grid, none negative. They may add up
      to a little more than 1.
    infinity: the probability of an unbounded loss.
  """

  step: float
  lower: int
  probs: np.ndarray
  infinity: float

  @functools.cached_property
  def losses(self) -> np.ndarray:
    """float64[n]."""
    return (self.lower + np.arange(self.probs.size)) * self.step

  @functools.cached_property
  def _sums(self) -> np.ndarray:
    """S_i = sum over j >= i of p_j e^(L_i - L_j), float64[n + 1].

    Sums of 1, 2, 4, ... neighbouring losses, while a factor counts: positive
    terms, nothing underflows that matters.
    """
    result = np.append(self.probs, 0.0)
    reach, factor = 1, math.exp(-self.step)
    while reach < result.size and factor > 0:
      result[:-reach] += factor * result[reach:]
      reach, factor = 2 * reach, factor * factor
    return result

  @functools.cached_property
  def _deltas(self) -> np.ndarray:
    """delta at every loss, falling; sums of positive terms, nothing cancels.

    delta(L_i) - delta(L_(i+1)) = (1 - e^(-step)) S_(i+1).
    """
    tails = np.cumsum(self._sums[:0:-1])[::-1]
    return self.infinity - math.expm1(-self.step) * tails

  def delta(self, epsilon: float) -> float:
    """The smallest delta at an epsilon >= 0; 1 below the first loss."""
    if epsilon < self.losses[0]:  # What lies there is not kept.
      return 1.0
    first = int(np.searchsorted(self.losses, epsilon, side="right"))
    if first == self.losses.size:
      return min(1.0, self.infinity)
    share = -math.expm1(epsilon - float(self.losses[first]))
    return min(
        1.0, float(self._deltas[first]) + share * float(self._sums[first])
    )

  def epsilon(self, delta: float) -> float:
    """The smallest epsilon >= 0 (and >= the first loss) at delta, or inf."""
    if delta <= self.infinity:
      return math.inf
    floor = max(0.0, float(self.losses[0]))
    if self.delta(floor) <= delta:
      return floor
    # The first loss at which delta is not more than asked; at the last it is
    # `infinity`.
    high = int(np.searchsorted(-self._deltas, -delta, side="left"))
    # Up to there, from the loss before, delta(e) = delta(top) +
    # (1 - e^(e - top)) S.
    top, scaled = float(self.losses[high]), float(self._sums[high])
    left = delta - float(self._deltas[high])
    if not 0 < left < scaled:
      return top
    found = math.nextafter(top + math.log1p(-left / scaled), math.inf)
    return max(min(found, top), floor)


@functools.lru_cache(maxsize=256)
def reach(
    unit_profiles: UnitProfiles, direction: Direction, tail: float
) -> tuple[float, float]:
  """Find how far down and up the grid has to reach."""
  return (
      unit_profile.reach(unit_profiles, direction, -1, tail),
      unit_profile.reach(unit_profiles, direction, 1, tail),
  )


def make_grid(low: float, high: float, step: float) -> Grid:
  """The grid of a step that covers -low to high."""
  return Grid(step, -math.ceil(low / step), math.ceil(high / step))


@functools.lru_cache(maxsize=32)
def one_step(
    unit_profiles: UnitProfiles, direction: Direction, grid: Grid
) -> Loss:
  """The discretised privacy loss of one step (see the module's docstring)."""
  losses = grid.losses()
  # Next to nothing is left beyond the ends: nothing smaller matters.
  ends = unit_profile.excess(unit_profiles, losses[[0, -1]], direction)
  excess = unit_profile.bounded_excess(
      unit_profiles, losses, direction, float(ends.max())
  )
  change = np.diff(excess)
  probs = np.zeros(excess.size)
  # The slope in alpha changes at a point by probability / alpha.
  probs[:-1] += change / math.expm1(grid.step)
  probs[1:] += change / math.expm1(-grid.step)
  probs[0] -= excess[0]  # the line from (alpha = 0, excess = 0)
  probs[-grid.lower] += 1.0
  return Loss(
      grid.step, grid.lower, np.maximum(probs, 0.0), float(excess[-1])
  )


def any_loss(
    phases: Phases, direction: Direction, grids: tuple[Grid, ...]
) -> bool:
  """Return whether every phase has losses on its grid.

  Of one that moves the sum by hundreds of standard deviations a bound by chords
  (`tabulated`) may tell no more than that all may be lost.
  """
  return all(
      one_step(phase.unit_profiles, direction, grid).probs.any()
      for phase, grid in zip(phases, grids)
  )


class _Tilted(NamedTuple):
  """A one-step distribution times exp(tilt L), normalised.

  Attributes:
    probs: float64[n], which add up to 1.
    log_moment: ln E exp(tilt L), what they were divided by.
  """

  probs: np.ndarray
  log_moment: float


@functools.lru_cache(maxsize=32)
def _tilted(
    unit_profiles: UnitProfiles, direction: Direction, grid: Grid, tilt: float
) -> _Tilted:
  single = one_step(unit_profiles, direction, grid)
  with np.errstate(divide="ignore"):
    log_probs = np.log(single.probs) + tilt * single.losses
  largest = float(log_probs.max())
  weights = np.exp(log_probs - largest)
  total = float(weights.sum())
  return _Tilted(weights / total, largest + math.log(total))


@functools.lru_cache(maxsize=32)
def _spectrum(
    unit_profiles: UnitProfiles,
    direction: Direction,
    grid: Grid,
    tilt: float,
    size: int,
) -> np.ndarray:
  """The logarithm of the transform of `_tilted`, folded into `size` places."""
  probs = _tilted(unit_profiles, direction, grid, tilt).probs
  places = (grid.lower + np.arange(probs.size)) % size
  folded = np.bincount(places, weights=probs, minlength=size)
  transform = fft.rfft(folded)
  result = np.empty_like(transform)
  # NumPy's logarithm of complex numbers takes twice as long.
  with np.errstate(divide="ignore"):
    result.real = np.log(np.abs(transform))
  result.imag = np.angle(transform)
  return result


@functools.lru_cache(maxsize=64)
def _spread(
    unit_profiles: UnitProfiles, direction: Direction, grid: Grid, tilt: float
) -> tuple[float, float]:
  """Mean and variance of the tilted loss."""
  probs = _tilted(unit_profiles, direction, grid, tilt).probs
  losses = grid.losses()
  mean = float(probs @ losses)
  return mean, float(probs @ (losses - mean) ** 2)


@functools.lru_cache(maxsize=1024)
def _cumulant(
    unit_profiles: UnitProfiles,
    direction: Direction,
    grid: Grid,
    tilt: float,
    shift: float,
) -> float:
  """ln E exp(shift (L - mean)) of the tilted loss."""
  probs = _tilted(unit_profiles, direction, grid, tilt).probs
  mean, _ = _spread(unit_profiles, direction, grid, tilt)
  some = probs > 0
  terms = np.log(probs[some]) + shift * (grid.losses()[some] - mean)
  largest = float(terms.max())
  return largest + math.log(float(np.exp(terms - largest).sum()))


def grids_of(
    reaches: tuple[tuple[float, float], ...], step: float
) -> tuple[Grid, ...]:
  """One grid for each reach (below 0, above 0), all of the same step."""
  return tuple(make_grid(low, high, step) for low, high in reaches)


def compose(
    phases: Phases,
    direction: Direction,
    grids: tuple[Grid, ...],
    tilt: float,
    delta: float,
) -> Loss | None:
  """The privacy loss of a run, precise where `tilt` makes losses likely.

  Args:
    phases: what is composed.
    direction: "remove" or "add".
    grids: one per phase, all of one step.
    tilt: lambda > 0.
    delta: what the bounds on tails and rounding are measured by.

  Returns:
    The distribution, or None where it needs too large a transform.
  """
  parts = [(p.unit_profiles, direction, g) for p, g in zip(phases, grids)]
  times = [p.times for p in phases]
  step = grids[0].step
  unbounded = -math.expm1(sum(
      t * math.log1p(-min(one_step(*part).infinity, 1 - 1e-9))
      for t, part in zip(times, parts)
  ))
  if times == [1]:
    single = one_step(*parts[0])
    return dataclasses.replace(
        single, infinity=single.infinity + _ROUNDING * delta
    )
  log_factor = sum(
      t * _tilted(*part, tilt).log_moment for t, part in zip(times, parts)
  )
  spreads = [_spread(*part, tilt) for part in parts]
  mean = sum(t * m for t, (m, _) in zip(times, spreads))
  deviation = math.sqrt(sum(t * v for t, (_, v) in zip(times, spreads)))
  # Chernoff's bound, at the best of a few exponents, a ladder that queries of
  # nearby numbers of steps share.
  ends = []
  for sign in (-1, 1):
    reach = math.inf
    for k in range(-3, 3):
      shift = 2.0 ** (k + round(math.log2(8 / max(deviation, 1e-300))))
      cumulant = sum(
          t * _cumulant(*part, tilt, sign * shift)
          for t, part in zip(times, parts)
      )
      reach = min(reach, (cumulant - math.log(_WINDOW_TAIL)) / shift)
    ends.append(mean + sign * reach)
  lowest = max(
      math.floor(ends[0] / step),
      sum(t * g.lower for t, g in zip(times, grids)),
  )
  most = sum(t * g.upper for t, g in zip(times, grids))
  highest = min(math.ceil(ends[1] / step), most)
  if highest - lowest >= _LARGEST_WINDOW:
    return None
  size = 1 << max(highest - lowest, 1).bit_length()
  with np.errstate(invalid="ignore"):
    power = sum(
        t * _spectrum(*part, tilt, size) for t, part in zip(times, parts)
    )
    spectrum = np.where(np.isneginf(power.real), 0.0, np.exp(power))
  circle = fft.irfft(spectrum, size)
  # Losses below 0 are read by no epsilon.
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
  run = Loss(
      step, first, probs, min(1.0, unbounded + lost + _ROUNDING * delta)
  )
  return _trimmed(run, _TAIL_SHARE * delta)


def _trimmed(run: Loss, tail: float) -> Loss:
  """Without a tail of its losses, which becomes unbounded."""
  beyond = np.cumsum(run.probs[::-1])[::-1]
  last = max(int(np.searchsorted(-beyond, -tail)), 1)
  cut = float(beyond[last]) if last < beyond.size else 0.0
  return Loss(run.step, run.lower, run.probs[:last], run.infinity + cut)


def best_tilt(
    phases: Phases,
    direction: Direction,
    grids: tuple[Grid, ...],
    delta: float | None,
    epsilon: float | None,
) -> float:
  """lambda where a moment bound on epsilon (or on delta) is least.

  E exp(lambda L)^T c(lambda) e^(-lambda epsilon) >= delta(epsilon), with c the
  largest value of e^(-lambda x) (1 - e^(-x)). It is one of a ladder of values,
  so that queries that differ little share their transforms.
  """
  singles = []
  for phase, grid in zip(phases, grids):
    single = one_step(phase.unit_profiles, direction, grid)
    some = single.probs > 0
    singles.append(
        (phase.times, single.losses[some], np.log(single.probs[some]))
    )

  @functools.cache
  def bound(rung: int) -> float:
    tilt = math.exp(rung / 8)
    total = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
    for times, losses, log_probs in singles:
      value = log_probs + tilt * losses
      largest = float(value.max())
      total += times * (
          largest + math.log(float(np.exp(value - largest).sum()))
      )
    if epsilon is not None:
      return total - tilt * epsilon
    assert delta is not None
    return (total - math.log(delta)) / tilt

  widest = max(float(np.abs(losses[[0, -1]]).max()) for _, losses, _ in singles)
  # No steeper than what leaves a few points of the coarse grid to compare.
  last = int(8 * math.log(16 * _FIRST_POINTS / widest))
  best = min(range(-96, max(last, -88), 4), key=bound)
  for width in (2, 1):
    best = min((best - width, best, best + width), key=bound)
  return math.exp(best / 8)


_LAST_POINTS = 1 << 17
# The loss of more steps than this has a long window: it starts on fewer points.
_MANY_STEPS = 10**5
# exp(step) must be a number; losses so large are of no use as an epsilon.
_LARGEST_STEP = 500.0
# The grid is refined until its error, relative in epsilon or delta, is this.
_TOLERANCE = 3e-4
# Where no finer grid will do and its error is above this, others are asked too.
_NEARLY = 2e-3
# A delta is looked for down to here, and after so many guesses that failed.
_LEAST_DELTA, _MISSES = 1e-300, 2
# Where one step may lose more than this, moments tell of an epsilon in the
# thousands at best, and one Gaussian will do.
_WIDE = 1e4
# The largest orders of moments that are tried, one after the other.
_MOST_ORDERS = (8, 64, 512)
# The distribution of which nothing is known: any loss is possible.
_UNKNOWN = Loss(1.0, 0, np.ones(1), 1.0)


@dataclasses.dataclass(frozen=True)
class PLD(base.Accountant):
  """Privacy loss distributions: the tightest accountant, and the default."""

  tolerance: float = _TOLERANCE

  name = "pld"

  def curve(
      self,
      phases: Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> base.Curve:
    """See `base.Accountant`."""
    if delta is not None:
      return _refined(
          phases, direction, delta, None, enough, self.tolerance
      )
    assert epsilon is not None
    # The tails are cut by a share of delta, which is not known yet. A curve for
    # any guess of it holds, if not tightly: the least of them is the bound.
    found: list[base.Curve] = []
    least, guess, misses = 1.0, 1e-6, 0
    while misses <= _MISSES:
      curve = _refined(
          phases, direction, guess, epsilon, enough, self.tolerance
      )
      value = curve.delta(epsilon)
      if guess * 1e6 < value < least:
        # Rounding errors are covered by a share of the guess, here too small.
        curve = _refined(
            phases, direction, value, epsilon, enough, self.tolerance
        )
        value = curve.delta(epsilon)
      found.append(curve)
      if value <= enough or 0.1 * guess <= value <= 1.01 * least:
        break
      # Above the least, the transform for this guess does not reach epsilon.
      misses += value > least
      least = min(least, value)
      if guess <= _LEAST_DELTA:
        break
      # What is a small share of the guess is little else than the tails.
      near = 1e-5 * guess <= value < guess
      guess = max(value if near else guess**2, _LEAST_DELTA)
    return base.Least(tuple(found))


@functools.lru_cache(maxsize=256)
def _refined(
    phases: Phases,
    direction: Direction,
    delta: float,
    epsilon: float | None,
    enough: float,
    tolerance: float,
) -> base.Curve:
  """The curve on a grid that is fine enough for delta, or for epsilon."""
  simple = _without_grid(phases, direction, delta if epsilon is None else 0.0)
  if simple is not None:
    return simple
  revealed = _revealed(phases)
  if revealed is not None and (
      revealed.delta(enough) <= delta if epsilon is None
      else revealed.delta(epsilon) <= enough
  ):
    return revealed
  reaches = tuple(
      reach(
          p.unit_profiles,
          direction,
          _TAIL_SHARE * delta / (_rounded_up(p.times) * len(phases)),
      )
      for p in phases
  )
  widest = max(low + high for low, high in reaches)
  if widest > _FIRST_POINTS * _LARGEST_STEP:
    return _with_fallback_bounds(
        _UNKNOWN, phases, direction, delta, epsilon, widest
    )
  coarse = grids_of(reaches, widest / _FIRST_POINTS)
  if not any_loss(phases, direction, coarse):
    return _with_fallback_bounds(
        _UNKNOWN, phases, direction, delta, epsilon, widest
    )
  tilt = best_tilt(phases, direction, coarse, delta, epsilon)

  def at(points: float) -> Loss | None:
    if widest / points > _LARGEST_STEP:
      return None
    grids = grids_of(reaches, widest / points)
    if not any_loss(phases, direction, grids):
      return None
    return compose(phases, direction, grids, tilt, delta)

  def figure(found: Loss) -> float:
    if epsilon is not None:
      return found.delta(epsilon)
    return found.epsilon(delta)

  many = sum(p.times for p in phases) > _MANY_STEPS
  first = _FIRST_POINTS // 4 if many else _FIRST_POINTS
  best, precise = _searched(at, figure, first, enough, tolerance)
  if best is None:
    best = _UNKNOWN
  if precise:
    return best
  return _with_fallback_bounds(
      best, phases, direction, delta, epsilon, widest
  )


def _searched(
    at: Callable[[float], Loss | None],
    figure: Callable[[Loss], float],
    points: float,
    enough: float,
    tolerance: float,
) -> tuple[Loss | None, bool]:
  """The best of finer and finer grids.

  Args:
    at: the distribution on a grid of so many points, or None.
    figure: what is asked of it.
    points: of the first grid.
    enough: of the figure, which need not be told from less.
    tolerance: relative error of the figure.

  Returns:
    The distribution, None where no grid will do, and whether it is precise.
  """
  best = at(points)
  while best is None:  # Many steps of a large loss each.
    points /= 2
    if points < 16:
      return None, False
    best = at(points)
  value = last = figure(best)
  refined, left = 2, math.inf
  while value > enough and points * refined <= _LAST_POINTS:
    finer = at(points * refined)
    while finer is None and refined > 2:
      refined //= 2
      finer = at(points * refined)
    if finer is None:
      break
    points *= refined
    coarser, last = last, figure(finer)
    if math.isinf(last) and math.isfinite(value):
      break  # Its window does not reach so far.
    if last <= value:  # Each of them is a bound.
      best, value = finer, last
    if math.isfinite(coarser) and value > 0:
      # The error falls with the square of the step: what is left of it is
      left = abs(coarser - last) / (refined**2 - 1) / value
      if left <= tolerance:
        return best, True
      share = min(math.sqrt(left / tolerance), 16.0)
      refined = 1 << max(1, math.ceil(math.log2(share)))
    while refined > 2 and points * refined > _LAST_POINTS:
      refined //= 2
  return best, value <= enough or left <= _NEARLY


def _without_grid(
    phases: Phases, direction: Direction, delta: float
) -> base.Curve | None:
  """Return the curve of a run that is next to nothing or one Gaussian."""
  # delta(0) is a total variation, which at most adds up over steps.
  variation = sum(
      p.times
      * float(unit_profile.excess(p.unit_profiles, np.zeros(1), direction)[0])
      for p in phases
  )
  if variation <= delta:
    return base.Negligible(variation)
  squares = 0.0
  for phase in phases:
    longest = 0.0
    for unit in phase.unit_profiles:
      if not isinstance(unit, amplification.Amplification):
        return None
      if unit.parent_rate * unit.rate < 1:
        return None
      longest = max(longest, unit.tail[1])
    squares += phase.times * longest**2
  # Steps that draw their unit for certain are one Gaussian, exactly.
  return base.GaussianCurve(max(math.sqrt(squares), 1e-150))


def _with_fallback_bounds(
    found: Loss,
    phases: Phases,
    direction: Direction,
    delta: float,
    epsilon: float | None,
    widest: float,
) -> base.Curve:
  """The bound of a grid that could not be made fine enough, or a smaller one.

  Losses of 1e-9 beside losses of -20 are too much for one even grid. Moments
  choose their points where they need them; and where a step's largest loss is
  bounded (up to what doubles can hold), the run's is their sum.
  """
  ends = [
      reach(p.unit_profiles, direction, 0.0)[1]
      for p in phases
  ]
  bounds: list[base.Curve] = [
      found,
      base.BoundedLoss(
          sum(p.times * end for p, end in zip(phases, ends)),
          1e-300 * sum(p.times for p in phases),
      ),
  ]
  revealed = _revealed(phases)
  if revealed is not None:
    bounds.append(revealed)
  best = math.inf
  if epsilon is None:
    best = min(bound.epsilon(delta) for bound in bounds)
  if best > moments.least_epsilon(delta) and (
      revealed is None or widest < _WIDE
  ):
    bounds.append(_by_moments(phases, direction, delta, epsilon))
  return base.Least(tuple(bounds))


def _revealed(phases: Phases) -> base.GaussianCurve | None:
  """The run if every step drew the unit: one Gaussian at the whole distance.

  It dominates where every profile has a Gaussian tail of weight 1 at most,
  H_alpha <= H_alpha(N(d) || N(0)) in both directions (section 9 of the proof).
  """
  squares = 0.0
  for phase in phases:
    if any(unit.tail[0] > 1 for unit in phase.unit_profiles):
      return None
    longest = max(unit.tail[1] for unit in phase.unit_profiles)
    squares += phase.times * longest**2
  if not 0 < squares < math.inf:
    return None
  return base.GaussianCurve(math.sqrt(squares))


def _by_moments(
    phases: Phases, direction: Direction, delta: float, epsilon: float | None
) -> moments.RenyiCurve:
  """The bound of moments, of no larger orders than it needs.

  Large orders ask for the profile far out. Divergences do not fall with the
  order, so that larger ones are of no use where that of the largest order that
  was tried is more than the epsilon already.
  """
  for most in _MOST_ORDERS:
    curve = moments.RDP(most).curve(phases, direction)
    known = curve.epsilon(delta) if epsilon is None else epsilon
    if curve.rdp[-1] >= known:
      break
  return curve


def _rounded_up(steps: int) -> int:
  """A power of 16 of at least `steps`, so that runs of a plan share a grid."""
  power = 16
  while power < steps:
    power *= 16
  return power
