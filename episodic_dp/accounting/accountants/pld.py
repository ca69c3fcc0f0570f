"""The accountant of privacy loss distributions: how fine a grid must be."""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import loss_distribution
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction

# What lies beyond the grid may add at most this share of delta over all steps.
_TAIL_SHARE = 1e-6
_FIRST_POINTS = 1 << 10
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
_UNKNOWN = loss_distribution.Loss(1.0, 0, np.ones(1), 1.0)


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
      loss_distribution.reach(
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
  coarse = loss_distribution.grids_of(reaches, widest / _FIRST_POINTS)
  if not loss_distribution.any_loss(phases, direction, coarse):
    return _with_fallback_bounds(
        _UNKNOWN, phases, direction, delta, epsilon, widest
    )
  tilt = loss_distribution.best_tilt(phases, direction, coarse, delta, epsilon)

  def at(points: float) -> loss_distribution.Loss | None:
    if widest / points > _LARGEST_STEP:
      return None
    grids = loss_distribution.grids_of(reaches, widest / points)
    if not loss_distribution.any_loss(phases, direction, grids):
      return None
    return loss_distribution.compose(phases, direction, grids, tilt, delta)

  def figure(found: loss_distribution.Loss) -> float:
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
    at: Callable[[float], loss_distribution.Loss | None],
    figure: Callable[[loss_distribution.Loss], float],
    points: float,
    enough: float,
    tolerance: float,
) -> tuple[loss_distribution.Loss | None, bool]:
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
    found: loss_distribution.Loss,
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
      loss_distribution.reach(p.unit_profiles, direction, 0.0)[1]
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
