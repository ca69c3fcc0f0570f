"""Unit profiles: the one-step privacy profile of a unit, and its chords.

A profile is convex in alpha = e^epsilon, so between two points it is below its
chord. The divergence of an average over forty cases, or the largest over two
dozen types of units, is needed at every point of every grid that a query tries.
Chords bound it everywhere after a few thousand evaluations.

The points of `chords` are chosen so that no chord exceeds the divergence by
more than about `TOLERANCE`, relatively, down to a floor (64 times that for the
lowest floor). Log-moments are linear in the excess of the profile
(`accountants.moments`), so they grow by no more than this share, however many
steps are composed.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.amplification import UnitProfile

# Largest relative distance of a chord above the divergence.
TOLERANCE = 2e-5
# Number of types that are computed directly, if each of them is fast.
_FEW = 2
# Divergences below such a floor need no closer approximation. A lower floor
# permits a larger distance of chords, so that the number of points is similar.
_FLOORS = {1e-40: 1.0, 1e-80: 4.0, 1e-160: 16.0, 0.0: 64.0}
# The end of a profile is searched between these powers of two. They are also
# the first points of its chords, with a number of points between two of them.
_LOWEST, _HIGHEST, _BETWEEN = -40, 41, 4
# A table of more than half of this is no faster than the profile itself.
MOST_POINTS = 1 << 16
_ROUNDS = 40


UnitProfiles = tuple[UnitProfile, ...]
"""The types of units of a level."""


def excess(
    unit_profiles: UnitProfiles, log_alpha: np.ndarray,
    direction: Direction
) -> np.ndarray:
  """Compute f(alpha) - (1 - alpha)_+, the largest over types of units.

  f is the direction's profile for every alpha > 0. Below alpha = 1 it is
  1 - alpha + alpha H_(1/alpha) of the other direction. Each side is computed
  directly, because converting one side into the other would cancel digits. A
  maximum of convex functions is convex, so ragged hierarchies compose too.
  """
  return _both_sides(
      log_alpha,
      direction,
      lambda at, which: np.max(
          [kind.divergence(at, which) for kind in unit_profiles], axis=0
      ),
  )


def _both_sides(
    log_alpha: np.ndarray,
    direction: Direction,
    divergence: Callable[[np.ndarray, Direction], np.ndarray],
) -> np.ndarray:
  """Compute an excess from the divergences of both directions."""
  log_alpha = np.asarray(log_alpha, float)
  result = np.zeros_like(log_alpha)
  other = amplification.OPPOSITE[direction]
  for some, which in ((log_alpha >= 0, direction), (log_alpha < 0, other)):
    if some.any():
      at = log_alpha[some]
      result[some] = np.exp(np.minimum(at, 0.0)) * divergence(abs(at), which)
  return result


class Chords(NamedTuple):
  """Points of a convex function of alpha, whose chords bound it.

  Attributes:
    log_alpha: float64[n], ascending.
    value: float64[n].
  """

  log_alpha: np.ndarray
  value: np.ndarray

  def __call__(self, log_alpha: np.ndarray) -> np.ndarray:
    """Evaluate the chords at float64[n], constant beyond the last point."""
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
  """Compute `excess`, by chords if it is slow.

  Args:
    unit_profiles: the types of units.
    log_alpha: float64[n].
    direction: "remove" or "add".
    least: values smaller than this do not matter.

  Returns:
    float64[n].
  """
  quick = len(unit_profiles) <= _FEW and not any(k.slow for k in unit_profiles)
  if quick:
    return excess(unit_profiles, log_alpha, direction)
  floor = next(floor for floor in _FLOORS if floor <= (least or 1.0))
  tables: dict[Direction, Chords] = {}
  for way in amplification.DIRECTIONS:
    found = chords(unit_profiles, way, floor)
    if found is None:
      return excess(unit_profiles, log_alpha, direction)
    tables[way] = found
  return _both_sides(log_alpha, direction, lambda at, way: tables[way](at))


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
    if len(unit_profiles) <= _FEW:  # Chords are not worth it for few points.
      value = excess(unit_profiles, sign * losses, direction)
    else:
      value = bounded_excess(unit_profiles, sign * losses, direction, tail)
    small = tail >= value
    if not small[-1]:
      return math.inf
    # The excess falls with the distance from 0: find the first small value.
    first = int(np.argmax(small))
    high = float(losses[first])
    losses = np.linspace(high / 2, high, 33)
  return high


@functools.lru_cache(maxsize=64)
def chords(
    unit_profiles: UnitProfiles, direction: Direction, floor: float
) -> Chords | None:
  """Bound the largest divergence over types of units, for alpha >= 1.

  The result is None if it would need too many chords, for example for distances
  so long that every number of clip units is visible.
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
  # It falls with alpha: if rounding contradicts this, the larger value holds.
  return Chords(points, np.maximum.accumulate(np.exp(heights)[::-1])[::-1])


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
    points: the first points, ascending, float64[n].
    heights: ln of the function at the points.
    allowed: float64[n - 1], allowed relative distance of the chord of a
      segment, or of a part of it, above the function.
    floor: segments at this height or below are not halved.

  Returns:
    The points and their heights; at most `MOST_POINTS` of them.
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
    # The distance falls with the square of the length once it is small.
    gaps[at - 1] = np.where(gap < 1, gap / 4, gap / 2)
    points = np.insert(points, at, middle)
    heights = np.insert(heights, at, found)
    gaps = np.insert(gaps, at, gaps[at - 1])
    allowed = np.insert(allowed, at, allowed[at - 1])
  return points, heights


def _share(low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
  """Compute (alpha - alpha_low) / (alpha_high - alpha_low), no overflow."""
  return np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
