"""Profiles that are slow to compute, read off their chords.

The divergence of an average over forty cases, or the largest over two dozen
kinds of units, is asked for at every point of every grid that a query tries. It
is convex in alpha = e^epsilon, so between two points it lies below its chord:
computed at a few thousand points, once, it is bounded everywhere.

The points are chosen so that no chord is more than about `TOLERANCE` of the
divergence above it, down to a floor (64 times that for the lowest floor).
Log-moments are linear in the excess of the profile (`accountants.log_moments`),
so that they grow by no more than this share, however many steps are composed.
"""

import functools
import math

import numpy as np

from episodic_dp.accounting.profiles import averaged
from episodic_dp.accounting.profiles import line_mixture
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction

# How far a chord may be above the divergence, relatively.
TOLERANCE = 2e-5
# Kinds that are computed as they are, if each of them is quick.
_FEW = 2
# Divergences below such a floor are not looked at more closely. The deeper it
# is, the farther a chord may be above, so that points are about as many.
_FLOORS = {1e-40: 1.0, 1e-80: 4.0, 1e-160: 16.0, 0.0: 64.0}
# Where a profile ends is looked for between these powers of two. They are the
# first points of its chords too, with so many between two of them.
_LOWEST, _HIGHEST, _BETWEEN = -40, 41, 4
# Into how many pieces a segment is cut at a time, and points in all.
_MOST_PIECES, _MOST_POINTS = 32, 1 << 16


def excess(
    unit_profiles: unit_profile.UnitProfiles,
    log_alpha: np.ndarray,
    direction: Direction,
    least: float,
) -> np.ndarray:
  """`unit_profile.excess`, or a little more where that takes long.

  Args:
    unit_profiles: the kinds of units.
    log_alpha: float64[n].
    direction: "remove" or "add".
    least: smaller values than this do not matter.

  Returns:
    float64[n].
  """
  if len(unit_profiles) <= _FEW and not any(map(_slow, unit_profiles)):
    return unit_profile.excess(unit_profiles, log_alpha, direction)
  floor = next(floor for floor in _FLOORS if floor <= (least or 1.0))
  other: Direction = "add" if direction == "remove" else "remove"
  first = chords(unit_profiles, direction, floor)
  second = chords(unit_profiles, other, floor)
  if first is None or second is None:
    return unit_profile.excess(unit_profiles, log_alpha, direction)
  low = np.minimum(log_alpha, 0.0)
  return np.where(
      log_alpha >= 0,
      first(np.maximum(log_alpha, 0.0)),
      np.exp(low) * second(-low),
  )


def reach(
    unit_profiles: unit_profile.UnitProfiles,
    direction: Direction,
    sign: int,
    tail: float,
) -> float:
  """The loss beyond which the profile's excess is at most `tail`, or inf."""
  losses = np.exp2(np.arange(_LOWEST, _HIGHEST))
  for _ in range(2):
    if len(unit_profiles) <= _FEW:  # So few points are not worth any chords.
      value = unit_profile.excess(unit_profiles, sign * losses, direction)
    else:
      value = excess(unit_profiles, sign * losses, direction, tail)
    small = tail >= value
    if not small[-1]:
      return math.inf
    # The excess falls with the distance from 0: the first point that is small.
    first = int(np.argmax(small))
    high = float(losses[first])
    losses = np.linspace(high / 2, high, 33)
  return high


def _slow(kind: unit_profile.UnitProfile) -> bool:
  return isinstance(kind, (averaged.Averaged, recurrence.Recurrence))


@functools.lru_cache(maxsize=64)
def chords(
    unit_profiles: unit_profile.UnitProfiles,
    direction: Direction,
    floor: float,
) -> line_mixture.Curve | None:
  """The largest divergence over kinds of units, for alpha >= 1, by chords.

  None where that would need too many of them, as with distances so long that
  every number of clip units shows.
  """

  def divergence(points: np.ndarray) -> np.ndarray:
    return unit_profile.excess(unit_profiles, points, direction)

  octaves = np.arange(_LOWEST * _BETWEEN, _HIGHEST * _BETWEEN) / _BETWEEN
  points = np.append(0.0, np.exp2(octaves))
  values = divergence(points)
  found, left = [(points, values)], _MOST_POINTS
  allowed = TOLERANCE * _FLOORS[floor]
  # Open segments, and into how many pieces each is to be cut.
  low, high = points[:-1], points[1:]
  at_low, at_high = values[:-1], values[1:]
  pieces = np.full(low.size, 2)
  while True:
    open_ = (at_low > floor) & (pieces > 1) & (high - low > 1e-12 * high)
    low, high, at_low, at_high, pieces = (
        part[open_] for part in (low, high, at_low, at_high, pieces)
    )
    if not low.size:
      break
    left -= int((pieces - 1).sum())
    if left < 0:
      return None
    # The points inside every segment, segment after segment.
    first = np.cumsum(pieces - 1) - (pieces - 1)
    of = np.repeat(np.arange(low.size), pieces - 1)
    step = (np.arange(of.size) - first[of] + 1) / pieces[of]
    inside = low[of] + (high - low)[of] * step
    values = divergence(inside)
    found.append((inside, values))
    # How far the segment's own chord is above, relatively, and so about how far
    # those of its pieces are: that falls with the square of their length.
    chord = _chord(inside, low[of], high[of], at_low[of], at_high[of])
    gap = (chord - values) / np.maximum(values, max(floor, 1e-300))
    gap = np.maximum.reduceat(gap, first) / pieces**2
    share = np.sqrt(np.clip(gap / allowed, 0.0, _MOST_PIECES**2))
    # Every piece is a segment of the next round.
    low, high, at_low, at_high = (
        np.insert(part, index, ends)
        for part, index, ends in (
            (inside, first, low),
            (inside, first + pieces - 1, high),
            (values, first, at_low),
            (values, first + pieces - 1, at_high),
        )
    )
    pieces = np.repeat(np.ceil(share).astype(int), pieces)
  points, values = (np.concatenate(part) for part in zip(*found))
  order = np.argsort(points, kind="stable")
  # It falls with alpha: where rounding says otherwise, the larger value holds.
  values = np.maximum.accumulate(values[order][::-1])[::-1]
  return line_mixture.Curve(points[order], values)


def _chord(
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    at_low: np.ndarray,
    at_high: np.ndarray,
) -> np.ndarray:
  """The line in alpha through two points, at ln alpha = x between them."""
  share = np.exp(x - high) * np.expm1(low - x) / np.expm1(low - high)
  return at_low * (1 - share) + at_high * share
