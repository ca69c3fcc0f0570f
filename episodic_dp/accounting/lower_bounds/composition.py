"""Composition of losses that are rounded downwards.

One step. Losses are moved to the points k h of a grid, each in parts to both of
its neighbours, the larger part to the nearer: this costs of second order in h,
where rounding each down would cost h / 2 a step. Merging outcomes, also at
random, loses information and adds none, and what is merged at a point may be
called a loss of k h if its ratio P/Q is not below e^(k h). Let a cell between
two neighbouring points give masses (P_1, Q_1) to its lower point, P_1 >=
e^(k h) Q_1, and (P_2, Q_2) to its upper one, P_2 < e^((k + 1) h) Q_2. With
A_k = P_1 - e^(k h) Q_1 and B_k = e^((k + 1) h) Q_2 - P_2 the point k is right
if B_(k-1) <= A_k, about an equality where the density is even. Where it fails,
a share 1 - A_k / B_(k-1) of what the cell below gives the point goes to that
cell's lower point instead, which only raises the ratio there.

T steps. As in `accountants.loss_distribution`: powers of the Fourier transform
of a tilted distribution. Its rounding errors and what falls outside of the
window (and is folded back in) are bounded and taken off.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import fft

from episodic_dp.accounting.lower_bounds import pairs

# Tilted probability outside of the window, at either end.
_WINDOW_TAIL = 1e-10
_LARGEST_WINDOW = 1 << 20
_LARGEST_GRID = 1 << 18
# Exponents lambda of moments, from the flattest to the steepest tilt.
_TILTS = np.exp(np.arange(-28, 29) / 2)
# Points that outcomes are merged at before their moments are estimated.
_MOMENT_POINTS = 1 << 10
# Relative width of the bracket that the search for epsilon ends with.
_SEARCHED = 1e-7
_MACHINE = 2.0**-52


class Step(NamedTuple):
  """One kind of step and how often it is taken."""

  losses: pairs.Losses
  times: int


class Lattice(NamedTuple):
  """Losses (first + i) h with probabilities probs[i] of P; `times` steps."""

  first: int
  probs: np.ndarray
  times: int


def log_moments(steps: Sequence[Step]) -> np.ndarray:
  """Of all steps together: ln E_P exp(lambda L) or a bit more, [tilts]."""
  total = np.zeros(_TILTS.size)
  for step in steps:
    losses, probs = _merged(step.losses)
    values = np.log(probs) + _TILTS[:, None] * losses
    largest = values.max(1)
    sums = np.exp(values - largest[:, None]).sum(1)
    total += step.times * (largest + np.log(sums))
  return total


def _merged(given: pairs.Losses) -> tuple[np.ndarray, np.ndarray]:
  """The losses at a few points, none below where it was, and probabilities."""
  some = given.probs > 1e-280
  losses, probs = given.losses[some], given.probs[some]
  if losses.size <= 2 * _MOMENT_POINTS:
    return losses, probs
  lowest = losses.min()
  h = np.ptp(losses) / _MOMENT_POINTS or 1.0
  point = np.ceil((losses - lowest) / h).astype(np.int64)
  merged = np.bincount(point, probs)
  there = merged > 0
  return lowest + h * np.flatnonzero(there), merged[there]


def estimate(
    moments: np.ndarray, delta: float | None, epsilon: float | None
) -> tuple[float, float]:
  """(about epsilon or ln delta, the tilt where losses of interest are likely).

  The moment bound: delta e^(lambda epsilon) <= E e^(lambda L) c(lambda).
  """
  tilts = _TILTS
  logs = moments + tilts * np.log(tilts) - (1 + tilts) * np.log1p(tilts)
  if epsilon is not None:
    values = logs - tilts * epsilon
  else:
    assert delta is not None
    values = (logs - math.log(delta)) / tilts
  at = int(np.argmin(values))
  return float(values[at]), float(tilts[at])


@dataclasses.dataclass(frozen=True, eq=False)
class Composed:
  """A lower bound on the profile of a run, above a first loss.

  Attributes:
    losses: float64[n], those of the run, rising.
    log_probs: float64[n], their logarithms under P.
    log_error: ln of what must be taken off at loss 0, falling as e^(-tilt eps).
    tilt: lambda.
  """

  losses: np.ndarray
  log_probs: np.ndarray
  log_error: float
  tilt: float

  def delta(self, epsilon: float) -> float:
    """At most H of the run at e^epsilon, epsilon >= 0."""
    first = int(np.searchsorted(self.losses, epsilon, side="right"))
    losses, logs = self.losses[first:], self.log_probs[first:]
    with np.errstate(under="ignore"):
      mass = np.exp(np.minimum(logs, 0.0))
    total = -float((mass * np.expm1(epsilon - losses)).sum())
    off = self.log_error - self.tilt * epsilon
    return max(total * (1 - 1e-12) - math.exp(min(off, 1.0)), 0.0)


def compose(steps: Sequence[Step], h: float, tilt: float) -> Composed | None:
  """The losses of a run on a grid of step h; None where it needs too many.

  Args:
    steps: what is composed.
    h: the step of the grid.
    tilt: lambda, where the precision is needed.
  """
  if len(steps) == 1 and steps[0].times == 1:
    return alone(steps[0].losses)
  parts = []
  for step in steps:
    span = float(np.ptp(step.losses.losses))
    if span > h * _LARGEST_GRID:
      return None
    parts.append(_on_lattice(step, h))
  return _power(parts, h, tilt)


def alone(losses: pairs.Losses) -> Composed:
  """One step, without a grid of losses."""
  order = np.argsort(losses.losses)
  return Composed(
      losses.losses[order], np.log(losses.probs[order]), -math.inf, 0.0
  )


def _on_lattice(step: Step, h: float) -> Lattice:
  """One step's losses moved to the grid; see the module's docstring."""
  losses, probs, _ = step.losses
  cell = np.floor(losses / h).astype(np.int64)
  # Never negative: rounding may put a loss next to its cell.
  above = np.clip(losses - cell * h, 0.0, h)
  first, moved = gathered(
      cell, probs, 1 - above / h,
      # Differences of nearby numbers: their rounding is about 1e-16 / h.
      -probs * np.expm1(-above) * (1 - 1e-9),
      probs * np.expm1(h - above) * (1 + 1e-9),
  )
  return Lattice(first, moved, step.times)


def gathered(
    cell: np.ndarray,
    probs: np.ndarray,
    share: np.ndarray,
    surplus: np.ndarray,
    wanted: np.ndarray,
) -> tuple[int, np.ndarray]:
  """Merge outcomes at points that have no less than they stand for.

  Args:
    cell: int64[n], the point below each outcome.
    probs: float64[n], what is merged.
    share: float64[n], how much of it goes to that point; the rest to the next.
    surplus: float64[n], by how much all of it is more than that point needs.
    wanted: float64[n], by how much all of it is less than the next one needs.

  Returns:
    The first point, and float64[points], what is merged at each.
  """
  first = int(cell.min())
  cell = cell - first
  size = int(cell.max()) + 2
  a = np.bincount(cell, share * surplus, size)
  b = np.bincount(cell, (1 - share) * wanted, size)
  given = np.bincount(cell, (1 - share) * probs, size)
  with np.errstate(divide="ignore", invalid="ignore"):
    back = np.where(b[:-1] > 0, 1 - a[1:] / b[:-1], 0.0)
  back = np.maximum(back, 0.0) * given[:-1]
  result = np.bincount(cell, share * probs, size)
  result[:-1] += back
  result[1:] += given[:-1] - back
  return first, result


def _power(parts: Sequence[Lattice], h: float, tilt: float) -> Composed | None:
  """The convolution power of some parts, tilted."""
  found = convolved(parts, h, tilt)
  if found is None:
    return None
  losses = found.places * h
  some = found.values > 0
  logs = np.log(found.values[some]) + found.log_factor - tilt * losses[some]
  # The largest of e^(-tilt u) (1 - e^(-u)) over losses u beyond epsilon.
  largest = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
  return Composed(
      losses[some], logs, math.log(found.error) + found.log_factor + largest,
      tilt,
  )


class Sum(NamedTuple):
  """The law of a sum on a lattice, times exp(tilt * sum).

  Attributes:
    places: int64[n].
    values: float64[n], which add up to about 1.
    log_factor: ln of what they were divided by.
    error: a bound on the sum of their absolute errors.
  """

  places: np.ndarray
  values: np.ndarray
  log_factor: float
  error: float


def convolved(
    parts: Sequence[Lattice],
    h: float,
    tilt: float,
    tail: float = _WINDOW_TAIL,
) -> Sum | None:
  """The law of a sum of independent numbers; None where it is too wide."""
  tilted: list[_Tilted] = []
  log_factor = 0.0
  mean = variance = 0.0
  for part in parts:
    losses = (part.first + np.arange(part.probs.size)) * h
    with np.errstate(divide="ignore"):
      logs = np.log(part.probs) + tilt * losses
    largest = float(logs.max())
    probs = np.exp(logs - largest)
    total = float(probs.sum())
    probs /= total
    log_factor += part.times * (largest + math.log(total))
    own = float(probs @ losses)
    mean += part.times * own
    variance += part.times * float(probs @ (losses - own) ** 2)
    with np.errstate(divide="ignore"):
      tilted.append(_Tilted(part, probs, np.log(probs), losses - own))
  deviation = math.sqrt(max(variance, 0.0)) or h

  def bound(shift: float) -> float:
    """Chernoff's bound on how far from the mean the sum is, to one side."""
    cumulant = 0.0
    for one in tilted:
      terms = one.logs + shift * one.centred
      largest = float(terms.max())
      cumulant += one.part.times * (
          largest + math.log(float(np.exp(terms - largest).sum()))
      )
    return (cumulant - math.log(tail)) / abs(shift)

  def reach(sign: int) -> float:
    """The best of Chernoff's bounds: first it falls with the exponent."""
    best, k, way = bound(sign / deviation), 0, 1
    while abs(k) < 24:
      value = bound(sign * 2.0 ** (k + way) / deviation)
      if value < best:
        best, k = value, k + way
      elif k == 0 and way == 1:
        way = -1
      else:
        break
    return best

  lowest = max(
      math.floor((mean - reach(-1)) / h),
      sum(part.times * part.first for part in parts),
  )
  highest = min(
      math.ceil((mean + reach(1)) / h),
      sum(p.times * (p.first + p.probs.size - 1) for p in parts),
  )
  if highest - lowest >= _LARGEST_WINDOW or max(-lowest, highest) > 2**53:
    return None
  size = 1 << max(highest - lowest + 1, 2).bit_length()
  circle, error = _circle(tilted, size)
  places = np.arange(lowest, highest + 1)
  return Sum(
      places, circle[places % size], log_factor, error + 2 * tail
  )


class _Tilted(NamedTuple):
  """One step's tilted probabilities, their logs, and losses from the mean."""

  part: Lattice
  probs: np.ndarray
  logs: np.ndarray
  centred: np.ndarray


def _circle(
    tilted: Sequence[_Tilted], size: int
) -> tuple[np.ndarray, float]:
  """The power on a circle, and a bound on the sum of its rounding errors."""
  power = np.zeros(size // 2 + 1, complex)
  longest = np.zeros(size // 2 + 1)
  turned = np.zeros(size // 2 + 1)
  # Of each coefficient of one step: roundings of numbers within 1.
  one = 4 * math.log2(size) * _MACHINE
  for part, probs, _, _ in tilted:
    places = (part.first + np.arange(probs.size)) % size
    spectrum = fft.rfft(np.bincount(places, probs, size))
    logs = np.log(np.where(np.abs(spectrum) < 1e-300, 1e-300, spectrum))
    power += part.times * logs
    longest += part.times * np.log(np.exp(logs.real) + one)
    turned += part.times * 4 * _MACHINE * np.abs(logs)
  final = np.exp(power)
  length = np.exp(power.real)
  error = np.exp(longest) - length + length * np.minimum(turned, 1.0)
  error += one * length
  # The sum over places is at most sqrt(size) times the root of the sum of
  # squares, which is Parseval's; half of the coefficients are kept.
  return fft.irfft(final, size), math.sqrt(2 * float((error**2).sum()))


def largest_epsilon(
    holds: Callable[[float], bool], highest: float
) -> float:
  """About the largest epsilon in [0, highest] of which `holds` is true, or 0.

  It need not be monotone: any epsilon that holds is a lower bound.
  """
  high, low = None, highest
  while not holds(low):
    high, low = low, 0.7 * low
    if low < 1e-7 * highest:
      return 0.0
  if high is None:
    return low
  while high - low > _SEARCHED * low:
    middle = (low + high) / 2
    if holds(middle):
      low = middle
    else:
      high = middle
  return low
