"""Unit profiles: the one-step privacy profile of a unit, and its chords.

A profile is convex in alpha = e^epsilon, so between two points it lies below
its chord. The divergence of an average over forty cases, or the largest over
two dozen kinds of units, is asked for at every point of every grid that a query
tries: computed at a few thousand points, once, it is bounded everywhere.

The points of `chords` are chosen so that no chord is more than about
`TOLERANCE` of the divergence above it, down to a floor (64 times that for the
lowest floor). Log-moments are linear in the excess of the profile
(`accountants.moments`), so that they grow by no more than this share,
however many steps are composed.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple, Protocol

import numpy as np

from episodic_dp.accounting.profiles.amplification import Direction

# How far a chord may be above the divergence, relatively.
TOLERANCE = 2e-5
# Kinds that are computed as they are, if each of them is quick.
_FEW = 2
# Divergences below such a floor are not looked at more closely. The deeper it
# is, the farther a chord may be above, so that points are about as many.
_FLOORS = {1e-40: 1.0, 1e-80: 4.0, 1e-160: 16.0, 0.0: 64.0}
# The end of a profile is searched between these powers of two. They are the
# first points of its chords too, with a number of points between two of them.
_LOWEST, _HIGHEST, _BETWEEN = -40, 41, 4
# A table of more than half of this is no quicker than the profile itself.
MOST_POINTS = 1 << 16
_ROUNDS = 40


class UnitProfile(Protocol):
  """The effect of one step on one kind of privacy unit; hashable.

  Implemented by `Amplification` (a tree of partitions), `RandomCount` (a random
  number of clip units under the unit), `Averaged` (over what its siblings
  draw), `Recurrence` (records that recur across the tasks of a step),
  `Allocation` and `NestedAllocation` (one pass over the units, taken as one
  step).
  """

  @property
  def tail(self) -> tuple[float, float]:
    """Return a bound (weight, d) on the tails.

    For alpha >= 1 and both directions the divergence is at most
    weight H_alpha(N(d) || N(0)).
    """

  @property
  def slow(self) -> bool:
    """Return whether chords are worth computing."""

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Bound H_alpha, float64[n], by a function convex in alpha >= 1."""


UnitProfiles = tuple[UnitProfile, ...]


def excess(
    unit_profiles: UnitProfiles, log_alpha: np.ndarray,
    direction: Direction
) -> np.ndarray:
  """Compute f(alpha) - (1 - alpha)_+, the largest over kinds of units.

  f is the direction's profile for every alpha > 0. Below alpha = 1 it is
  1 - alpha + alpha H_(1/alpha) of the other direction, so that each side is
  computed directly: turning one side into the other by arithmetic cancels.
  A maximum of convex functions is convex, so ragged hierarchies compose too.
  """
  log_alpha = np.asarray(log_alpha, float)
  other: Direction = "add" if direction == "remove" else "remove"
  result = np.zeros_like(log_alpha)
  above = log_alpha >= 0
  for kind in unit_profiles:
    if above.any():
      result[above] = np.maximum(
          result[above], kind.divergence(log_alpha[above], direction)
      )
    if not above.all():
      low = log_alpha[~above]
      value = np.exp(low) * kind.divergence(-low, other)
      result[~above] = np.maximum(result[~above], value)
  return result


class Chords(NamedTuple):
  """Points of a convex function of alpha, whose chords bound it.

  Attributes:
    log_alpha: float64[n], rising.
    value: float64[n].
  """

  log_alpha: np.ndarray
  value: np.ndarray

  def __call__(self, log_alpha: np.ndarray) -> np.ndarray:
    """Evaluate the chords, level beyond the last point, at float64[n]."""
    at, value = self.log_alpha, self.value
    right = np.clip(np.searchsorted(at, log_alpha), 1, at.size - 1)
    share = _share(at[right - 1], at[right], np.minimum(log_alpha, at[-1]))
    return value[right - 1] * (1 - share) + value[right] * share


def bounded_excess(
    unit_profiles: UnitProfiles,
    log_alpha: np.ndarray,
    direction: Direction,
    least: float,
) -> np.ndarray:
  """Compute `excess`, by chords where that is slow.

  Args:
    unit_profiles: the kinds of units.
    log_alpha: float64[n].
    direction: "remove" or "add".
    least: smaller values than this do not matter.

  Returns:
    float64[n].
  """
  quick = len(unit_profiles) <= _FEW and not any(k.slow for k in unit_profiles)
  if quick:
    return excess(unit_profiles, log_alpha, direction)
  floor = next(floor for floor in _FLOORS if floor <= (least or 1.0))
  other: Direction = "add" if direction == "remove" else "remove"
  first = chords(unit_profiles, direction, floor)
  second = chords(unit_profiles, other, floor)
  if first is None or second is None:
    return excess(unit_profiles, log_alpha, direction)
  low = np.minimum(log_alpha, 0.0)
  return np.where(
      log_alpha >= 0,
      first(np.maximum(log_alpha, 0.0)),
      np.exp(low) * second(-low),
  )


@functools.lru_cache(maxsize=512)
def reach(
    unit_profiles: UnitProfiles,
    direction: Direction,
    sign: int,
    tail: float,
) -> float:
  """Find the loss beyond which the excess is at most `tail`, or infinity."""
  losses = np.exp2(np.arange(_LOWEST, _HIGHEST))
  for _ in range(2):
    if len(unit_profiles) <= _FEW:  # So few points are not worth any chords.
      value = excess(unit_profiles, sign * losses, direction)
    else:
      value = bounded_excess(unit_profiles, sign * losses, direction, tail)
    small = tail >= value
    if not small[-1]:
      return math.inf
    # The excess falls with the distance from 0: the first point that is small.
    first = int(np.argmax(small))
    high = float(losses[first])
    losses = np.linspace(high / 2, high, 33)
  return high


@functools.lru_cache(maxsize=64)
def chords(
    unit_profiles: UnitProfiles, direction: Direction, floor: float
) -> Chords | None:
  """Bound the largest divergence over kinds of units, for alpha >= 1.

  None where that would need too many chords, as with distances so long that
  every number of clip units shows.
  """
  octaves = np.arange(_LOWEST * _BETWEEN, _HIGHEST * _BETWEEN) / _BETWEEN
  start = np.append(0.0, np.exp2(octaves))

  def log_divergence(points: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
      return np.log(excess(unit_profiles, points, direction))

  allowed = np.full(start.size - 1, TOLERANCE * _FLOORS[floor])
  least = math.log(floor) if floor else -math.inf
  points, heights = refined(
      log_divergence, start, log_divergence(start), allowed, least
  )
  if points.size > MOST_POINTS // 2:
    return None
  # It falls with alpha: where rounding says otherwise, the larger value holds.
  value = np.maximum.accumulate(np.exp(heights)[::-1])[::-1]
  return Chords(points, value)


def refined(
    log_function: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    heights: np.ndarray,
    allowed: np.ndarray,
    floor: float = -math.inf,
) -> tuple[np.ndarray, np.ndarray]:
  """Halve segments until chords are near a convex function of alpha.

  Args:
    log_function: ln alpha -> ln of the function, float64[n] each.
    points: the first ones, rising, float64[n].
    heights: ln of the function there.
    allowed: float64[n - 1], how far the chord of a segment, or of a part of
      it, may be above the function, relatively.
    floor: segments that lie at this height or below are left as they are.

  Returns:
    The points and their heights; `MOST_POINTS` of them at most.
  """
  gaps = np.full(allowed.size, np.inf)
  for _ in range(_ROUNDS):
    above = np.maximum(heights[:-1], heights[1:]) > floor
    coarse = (gaps > allowed) & above
    if not coarse.any() or points.size + coarse.sum() > MOST_POINTS:
      break
    at = np.flatnonzero(coarse) + 1
    low, high = points[at - 1], points[at]
    middle = (low + high) / 2
    found = log_function(middle)
    share = _share(low, high, middle)
    with np.errstate(divide="ignore", invalid="ignore"):
      chord = np.logaddexp(
          heights[at - 1] + np.log1p(-share), heights[at] + np.log(share)
      )
      gap = np.where(np.isneginf(chord), 0.0, np.maximum(chord - found, 0.0))
    # It falls with the square of the length once it is small.
    gaps[at - 1] = np.where(gap < 1, gap / 4, gap / 2)
    points = np.insert(points, at, middle)
    heights = np.insert(heights, at, found)
    gaps = np.insert(gaps, at, gaps[at - 1])
    allowed = np.insert(allowed, at, allowed[at - 1])
  return points, heights


def _share(low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
  """Compute (alpha - alpha_low) / (alpha_high - alpha_low), no overflow."""
  return np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
