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
from typing import Any, NamedTuple, Protocol

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
_MOST_POINTS = 1 << 16


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
    """A bound (weight, d) on the tails.

    For alpha >= 1 and both directions the divergence is at most
    weight H_alpha(N(d) || N(0)).
    """

  @property
  def slow(self) -> bool:
    """True where chords are worth computing."""

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Bound H_alpha, float64[n], by a function convex in alpha >= 1."""

  def as_dict(self) -> dict[str, Any]:
    """Return plain data for statements."""


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


def profile(
    unit_profiles: UnitProfiles, log_alpha: np.ndarray,
    direction: Direction
) -> np.ndarray:
  """Compute the one-step privacy profile delta(ln alpha), for alpha > 0."""
  log_alpha = np.asarray(log_alpha, float)
  base = np.where(log_alpha < 0, -np.expm1(np.minimum(log_alpha, 0.0)), 0.0)
  return np.minimum(base + excess(unit_profiles, log_alpha, direction), 1.0)


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
    at = self.log_alpha
    right = np.clip(np.searchsorted(at, log_alpha), 1, at.size - 1)
    return on_chords(at, self.value, right, np.minimum(log_alpha, at[-1]))


def on_chords(
    at: np.ndarray, value: np.ndarray, right: np.ndarray, x: np.ndarray
) -> np.ndarray:
  """Evaluate the line in alpha through points `right - 1` and `right` at x."""
  low, high = at[right - 1], at[right]
  # (alpha - alpha_low) / (alpha_high - alpha_low), without overflow.
  share = np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
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

  def divergence(points: np.ndarray) -> np.ndarray:
    return excess(unit_profiles, points, direction)

  # A quarter of the tolerance is left for segments that are not cut again.
  found = refined(divergence, start, TOLERANCE * _FLOORS[floor], floor)
  if found is None:
    return None
  # It falls with alpha: where rounding says otherwise, the larger value holds.
  value = np.maximum.accumulate(found.value[::-1])[::-1]
  return Chords(found.log_alpha, value)


def refined(
    function: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    allowed: float,
    floor: float,
) -> Chords | None:
  """Halve segments until chords are near a convex function of alpha.

  Args:
    function: ln alpha -> value, float64[n] each.
    points: the first ones, rising.
    allowed: how far a chord may be above the function, relatively.
    floor: segments that start at this or below are left as they are.

  Returns:
    The chords, or None where there would be too many.
  """
  values = function(points)
  coarse = np.ones(points.size - 1, bool)
  while True:
    length = np.diff(points)
    coarse &= (values[:-1] > floor) & (length > 1e-12 * points[1:])
    if not coarse.any():
      return Chords(points, values)
    if points.size + coarse.sum() > _MOST_POINTS:
      return None
    at = np.flatnonzero(coarse) + 1
    middle = (points[at - 1] + points[at]) / 2
    found = function(middle)
    gap = on_chords(points, values, at, middle) - found
    # The gap falls with the square of the length.
    again = gap / 4 > allowed * np.maximum(found, max(floor, 1e-300))
    coarse[at - 1] = again
    points = np.insert(points, at, middle)
    values = np.insert(values, at, found)
    coarse = np.insert(coarse, at, again)
