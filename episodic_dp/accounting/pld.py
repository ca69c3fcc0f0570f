"""Composition of the one-step profile by privacy loss distributions.

One step. The profile is evaluated on a grid of losses, and the distribution
whose profile is linear in alpha between the grid's points is the pessimistic
"Connect the Dots" discretisation (Doroshenko et al., PoPETS 2022): an upper
bound, since the true profile is convex in alpha. dp_accounting takes second
differences of the profile f itself, which is near 1 - alpha, and loses as many
digits as the grid is fine; here (1 - alpha)_+ is taken off first, in closed
form (an atom of probability 1 at loss 0), and what is left is small and exact
to its last digits. Loss below the grid is moved up to its first point, and what
is above its last point counts as an unbounded loss. Negative masses, where the
profile is not convex or rounding, are raised to zero, which only adds.

T steps. dp_accounting composes the distribution with itself in one Fourier
transform, whose rounding error is relative to the largest probability: far out,
where a small delta is decided, it would count too little. So the distribution
is tilted first by exp(lambda L), with lambda such that the losses of interest
become the likely ones, and tilted back afterwards.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from episodic_dp.accounting import amplification
from episodic_dp.accounting import profile

# What lies beyond the grid may add at most this share of delta over all steps.
_TAIL_SHARE = 1e-6
# Probability, after tilting, that the window of the transform may leave out.
_WINDOW_TAIL = 1e-13
# Share of delta that is kept for rounding errors, whose true size is far less.
_ROUNDING = 1e-6
_FIRST_POINTS = 1 << 10
_LAST_POINTS = 1 << 17
# The grid is refined until its error in epsilon is about this, relatively.
_TOLERANCE = 3e-4
# The grid's reach is looked for between these powers of two.
_LOWEST, _HIGHEST = -40, 21

Kinds = profile.Kinds


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

  def delta(self, epsilon: float) -> float:
    """The smallest delta at an epsilon that is at least the first loss."""
    first = int(np.searchsorted(self.losses, epsilon, side="right"))
    above = self.probs[first:] * np.expm1(epsilon - self.losses[first:])
    return float(min(1.0, self.infinity - above.sum()))

  def epsilon(self, delta: float) -> float:
    """The smallest epsilon >= 0 (and >= the first loss) at delta, or inf."""
    if delta <= self.infinity:
      return math.inf
    floor = max(0.0, float(self.losses[0]))
    if self.delta(floor) <= delta:
      return floor
    low = int(np.searchsorted(self.losses, floor, side="right")) - 1
    high = self.losses.size - 1  # There delta is `infinity`, less than asked.
    while high - low > 1:
      middle = (low + high) // 2
      if self.delta(float(self.losses[middle])) > delta:
        low = middle
      else:
        high = middle
    # Up to top = losses[high], where sums run over losses from there on,
    # delta(e) = infinity + sum p - e^(e - top) sum p e^(top - L).
    losses, probs = self.losses[high:], self.probs[high:]
    top = float(losses[0])
    total = self.infinity + float(probs.sum())
    scaled = float((probs * np.exp(top - losses)).sum())
    if total <= delta or scaled <= 0:
      return top
    return max(min(top + math.log((total - delta) / scaled), top), floor)


def _reach(kinds: Kinds, direction, sign: int, tail: float) -> float:
  """The loss beyond which the profile's excess is at most `tail`, or inf."""
  losses = np.exp2(np.arange(_LOWEST, _HIGHEST))
  for _ in range(2):
    small = tail >= profile.excess(kinds, sign * losses, direction)
    if not small[-1]:
      return math.inf
    # The excess falls with the distance from 0: the first point that is small.
    first = int(np.argmax(small))
    high = float(losses[first])
    losses = np.linspace(high / 2, high, 33)
  return high


@functools.lru_cache(maxsize=256)
def reach(kinds: Kinds, direction, tail: float) -> tuple[float, float]:
  """How far down and up the grid has to go."""
  return (
      _reach(kinds, direction, -1, tail),
      _reach(kinds, direction, 1, tail),
  )


def make_grid(low: float, high: float, points: int) -> Grid:
  """The grid of about so many points that covers -low to high."""
  step = (low + high) / points
  return Grid(step, -math.ceil(low / step), math.ceil(high / step))


@functools.lru_cache(maxsize=32)
def one_step(
    kinds: Kinds, direction: amplification.Direction, grid: Grid
) -> Loss:
  """The discretised privacy loss of one step (see the module's docstring)."""
  excess = profile.excess(kinds, grid.losses(), direction)
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


@functools.lru_cache(maxsize=8)
def compose(
    kinds: Kinds,
    direction: amplification.Direction,
    grid: Grid,
    steps: int,
    delta: float,
) -> Loss:
  """The privacy loss of `steps` steps, precise around epsilon(delta)."""
  single = one_step(kinds, direction, grid)
  if steps == 1:
    return single
  from dp_accounting.pld import pld_pmf  # slow to import: on first use

  tilt, log_moment = _tilt(single, steps, delta)
  log_factor = steps * log_moment
  losses = single.losses
  with np.errstate(divide="ignore"):
    tilted = np.exp(np.log(single.probs) + tilt * losses - log_moment)
  with np.errstate(over="ignore"):  # of the library's moment bounds
    run = pld_pmf.DensePLDPmf(
        grid.step, grid.lower, tilted, 0.0, True
    ).self_compose(steps, _WINDOW_TAIL)
  # pylint: disable=protected-access
  lower, probs = run._lower_loss, np.maximum(run._probs, 0.0)
  # pylint: enable=protected-access
  losses = (lower + np.arange(probs.size)) * grid.step
  with np.errstate(divide="ignore", over="ignore"):
    # Where this overflows, far below the epsilon of interest, 1 is a bound.
    probs = np.exp(
        np.minimum(np.log(probs) + log_factor - tilt * losses, 1.0)
    )
  lost = _WINDOW_TAIL * math.exp(
      min(log_factor - tilt * float(losses[-1]), 100.0)
  )
  infinity = -math.expm1(steps * math.log1p(-min(single.infinity, 0.5)))
  run = Loss(grid.step, lower, probs, min(1.0, infinity + lost))
  return _trimmed(run, _TAIL_SHARE * delta)


def _trimmed(run: Loss, tail: float) -> Loss:
  """Without losses below 0, which no epsilon reads, and a tail of them."""
  beyond = np.cumsum(run.probs[::-1])[::-1]
  last = max(int(np.searchsorted(-beyond, -tail)), 1)
  cut = float(beyond[last]) if last < beyond.size else 0.0
  first = min(max(-run.lower, 0), last - 1)
  return Loss(
      run.step, run.lower + first, run.probs[first:last], run.infinity + cut
  )


def _tilt(single: Loss, steps: int, delta: float) -> tuple[float, float]:
  """lambda, and ln E exp(lambda L), where a moment bound on epsilon is least.

  E exp(lambda L)^T c(lambda) e^(-lambda epsilon) >= delta(epsilon), with c the
  largest value of e^(-lambda x) (1 - e^(-x)), is solved for epsilon.
  """
  losses, probs = single.losses, single.probs
  some = probs > 0
  losses, log_probs = losses[some], np.log(probs[some])

  def log_moment(tilt: float) -> float:
    value = log_probs + tilt * losses
    largest = float(value.max())
    return largest + math.log(float(np.exp(value - largest).sum()))

  def bound(log_tilt: float) -> float:
    tilt = math.exp(log_tilt)
    log_c = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
    return (steps * log_moment(tilt) + log_c - math.log(delta)) / tilt

  widest = max(abs(float(losses[0])), abs(float(losses[-1])))
  candidates = np.arange(-12.0, math.log(600 / widest) + 8.0, 0.5)
  best = float(candidates[np.argmin([bound(c) for c in candidates])])
  for width in (0.25, 0.125, 0.0625):
    best = min((best - width, best, best + width), key=bound)
  tilt = math.exp(best)
  return tilt, log_moment(tilt)


def epsilon(
    kinds: Kinds,
    direction: amplification.Direction,
    steps: int,
    delta: float,
    sampling_error: float = 0.0,
) -> float:
  """Epsilon of `steps` steps in one direction, never too small.

  Args:
    kinds: the rates and distances; the profile is their pointwise maximum.
    direction: "remove" or "add".
    steps: T >= 1.
    delta: in (0, 1).
    sampling_error: total variation between one step's sampler and the plan. A
      run whose steps are off by e in all, on both neighbours, satisfies
      delta + (1 + exp(epsilon)) e.
  """
  return _refined(kinds, direction, steps, delta, sampling_error)[0]


def curve(
    kinds: Kinds,
    direction: amplification.Direction,
    steps: Sequence[int],
    delta: float,
    sampling_error: float = 0.0,
) -> list[float]:
  """`epsilon` for several numbers of steps, on the grid of the largest one."""
  last = max(steps)
  value, grid = _refined(kinds, direction, last, delta, sampling_error)

  def at(t: int) -> float:
    if t == last or value == 0:
      return value
    if grid is None:  # Fewer steps may have a guarantee where all have none.
      return epsilon(kinds, direction, t, delta, sampling_error)
    return _on_grid(kinds, direction, grid, t, delta, sampling_error)

  return [at(t) for t in steps]


def _on_grid(
    kinds: Kinds, direction, grid: Grid, steps: int, delta: float, error: float
) -> float:
  """Epsilon on one grid, for `error` of each step's sampler."""
  run = compose(kinds, direction, grid, steps, delta)
  return _charged(run, delta * (1 - _ROUNDING), steps * error)


@functools.lru_cache(maxsize=64)
def _refined(
    kinds: Kinds, direction, steps: int, delta: float, error: float
) -> tuple[float, Grid | None]:
  """Epsilon, and the grid that is fine enough for it (None: none was needed).

  Without a grid the value also bounds epsilon of fewer steps.
  """
  wanted = delta * (1 - _ROUNDING)
  if 2 * steps * error >= wanted:
    return math.inf, None
  # delta(0) is a total variation, which at most adds up over steps.
  variation = profile.excess(kinds, np.zeros(1), direction)[0]
  if steps * (float(variation) + 2 * error) <= wanted:
    return 0.0, None
  low, high = reach(kinds, direction, _TAIL_SHARE * delta / _rounded_up(steps))
  if math.isinf(low) or math.isinf(high):
    return math.inf, None
  best = coarser = math.inf
  points, refined = _FIRST_POINTS, 1
  while True:
    grid = make_grid(low, high, points)
    value = _on_grid(kinds, direction, grid, steps, delta, error)
    best = min(best, value)
    if best == 0 or points >= _LAST_POINTS:
      return best, grid
    doublings = 1
    if math.isfinite(coarser):
      # The error falls with the square of the step: what is left of it is
      left = max(coarser - value, 0.0) / (refined**2 - 1)
      if left <= _TOLERANCE * best:
        return best, grid
      share = math.sqrt(left / (_TOLERANCE * best))
      doublings = min(max(1, math.ceil(math.log2(share))), 4)
    coarser, refined = value, 1 << doublings
    points = min(points * refined, _LAST_POINTS)


def _charged(run: Loss, delta: float, error: float) -> float:
  """The smallest epsilon: delta(epsilon) + (1 + e^epsilon) error <= delta."""
  if 2 * error >= delta:
    return math.inf
  value = run.epsilon(delta - 2 * error)
  if error == 0:
    return value
  for _ in range(100):
    if math.isinf(value) or math.log(error) + value >= math.log(delta):
      return math.inf
    raised = value * (1 + 1e-9)
    charged = run.epsilon(delta - (1 + math.exp(raised)) * error)
    if charged <= raised:
      return raised
    value = charged
  return math.inf


def _rounded_up(steps: int) -> int:
  """A power of 16 of at least `steps`, so that runs of a plan share a grid."""
  power = 16
  while power < steps:
    power *= 16
  return power
