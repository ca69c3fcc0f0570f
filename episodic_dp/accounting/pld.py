"""Composition of the one-step profile by privacy loss distributions.

The profile on a grid of losses goes to dp_accounting, whose pessimistic
"Connect the Dots" discretisation (Doroshenko et al., PoPETS 2022) is an upper
bound, and is composed with itself T times in one transform. The grid's ends are
pessimistic: loss below it is moved up to its first point, and what is above its
last point counts as an unbounded loss.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from episodic_dp.accounting import amplification

# What lies beyond the grid may add at most this share of delta over all steps.
_TAIL_SHARE = 1e-5
_FIRST_POINTS = 1 << 13
_LAST_POINTS = 1 << 17
# The grid is refined until epsilon changes by less than this, relatively.
_TOLERANCE = 1e-3
_MAX_LOSS = 1e5

Kinds = tuple[amplification.Amplification, ...]


@dataclasses.dataclass(frozen=True)
class Grid:
  """Losses lower * step, ..., upper * step."""

  step: float
  lower: int
  upper: int


def _reach(kinds: Kinds, direction, sign: int, tail: float) -> float:
  """The loss beyond which the profile's excess is at most `tail`."""

  def small(loss: float) -> bool:
    value = amplification.excess(kinds, np.asarray([sign * loss]), direction)
    return bool(value[0] <= tail)

  high = 1e-6
  while not small(high):
    high *= 2
    if high > _MAX_LOSS:
      return math.inf
  low = 0.0 if high == 1e-6 else high / 2
  for _ in range(12):
    middle = (low + high) / 2
    low, high = (low, middle) if small(middle) else (middle, high)
  return high


@functools.lru_cache(maxsize=256)
def _range(kinds: Kinds, direction, tail: float) -> tuple[float, float]:
  return (
      _reach(kinds, direction, -1, tail),
      _reach(kinds, direction, 1, tail),
  )


def _grid(low: float, high: float, points: int) -> Grid:
  step = (low + high) / points
  return Grid(step, -math.ceil(low / step), math.ceil(high / step))


@functools.lru_cache(maxsize=32)
def step_pmf(kinds: Kinds, direction, grid: Grid) -> Any:
  """The privacy loss distribution of one step, as dp_accounting's dense pmf."""
  from dp_accounting.pld import pld_pmf  # slow to import: on first use

  rounded = np.arange(grid.lower, grid.upper + 1)
  deltas = amplification.profile(kinds, rounded * grid.step, direction)
  deltas = np.minimum.accumulate(deltas)
  return pld_pmf.create_pmf_pessimistic_connect_dots(
      grid.step, rounded, deltas
  ).to_dense_pmf()


@dataclasses.dataclass(frozen=True, eq=False)
class Composed:
  """The privacy loss distribution of a whole run.

  Attributes:
    losses: float64[n], rising.
    probs: float64[n], their probabilities, none negative.
    infinity: the probability of an unbounded loss.
  """

  losses: np.ndarray
  probs: np.ndarray
  infinity: float

  def delta(self, epsilon: float) -> float:
    """The smallest delta at epsilon."""
    first = int(np.searchsorted(self.losses, epsilon, side="right"))
    above = self.probs[first:] @ -np.expm1(epsilon - self.losses[first:])
    return float(min(1.0, self.infinity + above))

  def epsilon(self, delta: float) -> float:
    """The smallest epsilon >= 0 at delta; infinity where there is none."""
    if delta <= self.infinity:
      return math.inf
    if self.delta(0.0) <= delta:
      return 0.0
    # delta(losses[low]) > delta >= delta(losses[high]) = infinity mass
    low = int(np.searchsorted(self.losses, 0.0, side="right")) - 1
    high = self.losses.size - 1
    while high - low > 1:
      middle = (low + high) // 2
      if self.delta(float(self.losses[middle])) > delta:
        low = middle
      else:
        high = middle
    # Between two points delta(e) = infinity + sum p - e^(e - L) (sum p e^(L-l))
    losses, probs = self.losses[high:], self.probs[high:]
    top = float(losses[0])
    total = self.infinity + float(probs.sum())
    scaled = float(probs @ np.exp(top - losses))
    if total <= delta or scaled <= 0:
      return top
    inside = top + math.log((total - delta) / scaled)
    return max(min(inside, top), 0.0)


@functools.lru_cache(maxsize=16)
def compose(kinds: Kinds, direction, grid: Grid, steps: int, tail: float):
  """The step's distribution composed with itself; `tail` may be cut off."""
  pmf = step_pmf(kinds, direction, grid)
  if steps > 1:
    pmf = pmf.self_compose(steps, tail)
  probs = np.maximum(pmf._probs, 0.0)  # pylint: disable=protected-access
  lower = pmf._lower_loss  # pylint: disable=protected-access
  losses = (lower + np.arange(probs.size)) * grid.step
  return Composed(losses, probs, float(pmf._infinity_mass))


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
  error = steps * sampling_error
  if 2 * error >= delta:
    return math.inf
  tail = _TAIL_SHARE * delta / _rounded_up(steps)
  low, high = _range(kinds, direction, tail)
  if math.isinf(low) or math.isinf(high):
    return math.inf
  best, points = math.inf, _FIRST_POINTS
  while points <= _LAST_POINTS:
    grid = _grid(low, high, points)
    run = compose(kinds, direction, grid, steps, _TAIL_SHARE * delta)
    value = _charged(run, delta, error)
    if best - value <= _TOLERANCE * best and math.isfinite(best):
      return min(best, value)
    best = min(best, value)
    if best == 0.0:
      return best
    points *= 2
  return best


def _charged(run: Composed, delta: float, error: float) -> float:
  """The smallest epsilon: delta(epsilon) + (1 + e^epsilon) error <= delta."""
  value = run.epsilon(delta - 2 * error)
  if error == 0:
    return value
  for _ in range(100):
    if math.isinf(value) or math.log(error) + value > math.log(delta):
      return math.inf
    charged = run.epsilon(delta - (1 + math.exp(value + 1e-9)) * error)
    if charged <= value + 1e-9:
      return value if charged <= value else value + 1e-9
    value = charged
  return math.inf


def _rounded_up(steps: int) -> int:
  """A power of 16 of at least `steps`, so that runs of a plan share a grid."""
  power = 16
  while power < steps:
    power *= 16
  return power
