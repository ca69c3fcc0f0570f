"""Lower bounds on epsilon: exact losses of data sets that a plan allows.

A data set is chosen whose step is a mixture of few Gaussians on a line: the
clip units of one unit t have gradient +1, all others one of -1, 0 and 1. A
value other than 0 is given only where a step draws a constant number of such
clip units, so that their sum is constant. With t the output is P, without it
(or with its gradients turned round) Q. The best of these data sets is composed.

One step. The line is cut into cells: merging outcomes loses information and
adds none. The losses ln P/Q of cells are moved to the points k h of a grid,
each in parts to both of its neighbours, the larger part to the nearer: this
costs of second order in h, where rounding each down would cost h / 2 a step.
Outcomes that are merged at a point may be called a loss of k h if their ratio
P/Q is not below e^(k h). Let a cell between two neighbouring points give masses
(P_1, Q_1) to its lower point, P_1 >= e^(k h) Q_1, and (P_2, Q_2) to its upper
one, P_2 < e^((k + 1) h) Q_2. With A_k = P_1 - e^(k h) Q_1 and
B_k = e^((k + 1) h) Q_2 - P_2 the point k is right if B_(k-1) <= A_k, about an
equality where the density is even. Where it fails, a share 1 - A_k / B_(k-1) of
what the cell below gives the point goes to that cell's lower point instead,
which only raises the ratio there.

T steps are powers of the Fourier transform. Its rounding errors and what falls
outside of the window (and is folded back in) are bounded and taken off.

A pass of T steps of random allocation is one step here: under Q its ratio P/Q
is (X_1 + ... + X_T) / T for the ratios X_i of its steps, whose lattice is
merged in the same way.
"""

from collections.abc import Iterator
import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import check
from episodic_dp.accounting.profiles import counts
from episodic_dp.plan import sampler_error

# Cells of one step: to choose a data set, and for its bound.
_COARSE, _FINE = 1 << 9, 1 << 14
# Points of the losses' grid in the widest window, and of one step.
_WINDOW, _POINTS = 1 << 19, 1 << 13
# Probability outside of the window at either end, and of cells left out.
_TAIL, _SMALLEST = 1e-15, 1e-300
_REACH, _NEAR, _MACHINE = 37.0, 7.5, 2.0**-52
# Data sets that are computed on fine cells, and paths that are looked at.
_FINALISTS, _MOST_PATHS = 2, 4
# Above the relative rounding error of a cell's mass.
_ROUNDING = 5e-12


class _Pair(NamedTuple):
  """Two mixtures of Gaussians of variance 1 with the same means."""

  means: np.ndarray
  larger: np.ndarray
  smaller: np.ndarray


def lower_bound(
    release: plan_lib.Release,
    *,
    steps: int,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    neighbours: report.Relation = "add-or-remove",
) -> float:
  """Bound what epsilon (or delta) of a level is at least.

  The exact loss of one data set that the plan allows: no analysis can promise
  less. Known for the units of a tree, and of passes for the primary units.

  Args:
    release: what a step samples and releases.
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    neighbours: "add-or-remove" or "replace-one".

  Returns:
    0 where no lower bound is known.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: a value is out of range, or there is no such level.
  """
  check(steps, delta, epsilon)
  release.check_level(level)
  k = release.hierarchy.level_index(level)
  first = release.plan.stages[0]
  passes = first if isinstance(first, plan_lib.RandomAllocation) else None
  if not _is_known(release, k, passes is not None):
    return 0.0
  replaced = report.is_replaced(neighbours)
  if passes is not None and (replaced or steps < passes.steps):
    return 0.0
  a_step = sampler_error.sampling_error(release.hierarchy, release.plan)
  error = a_step.times(steps)
  ranked = []
  for pair in _pairs(release, k, replaced):
    for p, q in ((pair.larger, pair.smaller), (pair.smaller, pair.larger)):
      one = _Pair(pair.means, p, q)
      value = _value(one, p is pair.smaller, steps, passes, delta, epsilon,
                     error, _COARSE)
      ranked.append((value, one, p is pair.smaller))
  ranked.sort(key=lambda row: -row[0])
  return max(
      (
          max(value, _value(one, turned, steps, passes, delta, epsilon, error,
                            _FINE))
          for value, one, turned in ranked[:_FINALISTS]
      ),
      default=0.0,
  )


# Data sets --------------------------------------------------------------------


def _is_known(release: plan_lib.Release, k: int, passes: bool) -> bool:
  episode = release.plan.episode
  return (
      release.mechanism.guaranteed
      and not release.sample_level
      and not (release.hierarchy.copies and k)
      and not (passes and k)
      and (episode is None or episode.form == "unit")
      and not release.plan.allow_short_units
  )


def _pairs(
    release: plan_lib.Release, k: int, replaced: bool
) -> Iterator[_Pair]:
  """Yield the pairs of some units and gradients."""
  plan, clip = release.plan, release.clip_level
  z = float(release.mechanism.gradient_noise_multiplier)
  numbers = _constant_numbers(release)
  own = _own(release, k)
  sizes = release.hierarchy.size_paths(k)
  rates = np.stack(
      [plan.stages[j].rate(sizes[:, j]) for j in range(k + 1)], axis=1
  )
  if isinstance(plan.stages[0], plan_lib.RandomAllocation):
    rates[:, 0] = 1.0  # A step that uses the unit.
  found = set()
  best = np.argsort(-rates.prod(axis=1), kind="stable")[:_MOST_PATHS]
  for row in best.tolist():
    for value, parent in itertools.product((-1, 0, 1), repeat=2):
      if k > clip and (numbers[clip] is None or sizes[row, k] < 2):
        parent = 0  # The clip unit may be drawn without an example.
      sibling = [
          (value if j < k else parent) * (numbers[j] or 0)
          if j <= clip and _is_fixed(plan.stages[j])
          else 0
          for j in range(k + 1)
      ]
      pair = _pair(
          release, sizes[row].tolist(), rates[row].tolist(), sibling, own,
          parent if k > clip else 0, replaced,
      )
      key = pair.means.tobytes() + pair.larger.tobytes()
      if key not in found and np.ptp(pair.means) > 0:
        found.add(key)
        yield pair._replace(means=pair.means / z)


def _pair(
    release: plan_lib.Release,
    sizes: list[int],
    rates: list[float],
    sibling: list[int],
    own: counts.Counts,
    empty: int,
    replaced: bool,
) -> _Pair:
  """Compute the mixtures of one path.

  Args:
    release: the plan.
    sizes: of the families on the path.
    rates: of its stages.
    sibling: the sum that one sibling adds, of every stage.
    own: the number of clip units in t, or whether it is seen in one.
    empty: what t's clip unit adds without t, where t lies inside.
    replaced: whether Q has t with gradients -1.
  """
  clip, k = release.clip_level, len(sizes) - 1
  rows: list[tuple[float, float, float]] = []  # mean, weight in P, and in Q
  reached, total = 1.0, 0
  for j in range(k + 1):
    stage = release.plan.stages[j]
    drawn = min(getattr(stage, "n", sizes[j]), sizes[j])
    broken = total + (empty if j > clip else drawn * sibling[j])
    last = j == k
    without = drawn - int(last and drawn == sizes[j])
    if last and not replaced:
      absent = total + (empty if j > clip else without * sibling[j])
      rows.append((absent, 0.0, reached))
    here = reached * (1 - rates[j])
    rows.append((broken, here, 0.0 if last and not replaced else here))
    reached *= rates[j]
    total += (drawn - 1) * sibling[j]
  for number, chance in zip(own.values.tolist(), own.probs.tolist()):
    seen = total + (number if number or k <= clip else empty)
    turned = total + (-number if number or k <= clip else empty)
    rows.append((seen, reached * chance, 0.0))
    if replaced:
      rows.append((turned, 0.0, reached * chance))
  # What has no chance would count as a mean.
  rows = [row for row in rows if row[1] or row[2]]
  means, where = np.unique([row[0] for row in rows], return_inverse=True)
  weights = [
      np.bincount(where.ravel(), [row[i] for row in rows], means.size)
      for i in (1, 2)
  ]
  return _Pair(means, *weights)


def _is_fixed(stage: plan_lib.Stage) -> bool:
  return isinstance(stage, (plan_lib.FixedSize, plan_lib.All))


def _constant_numbers(release: plan_lib.Release) -> list[int | None]:
  """List the clip units drawn in every drawn unit of a level; None if random.

  Each of them holds an example that is drawn.
  """
  hierarchy, plan = release.hierarchy, release.plan
  result: list[int | None] = [1] * hierarchy.depth
  for j in range(hierarchy.depth - 2, -1, -1):
    stage, sizes = plan.stages[j + 1], hierarchy.child_counts(j + 1)
    below, low = result[j + 1], int(sizes.min())
    drawn = min(getattr(stage, "n", low), low)
    even = drawn < low or low == sizes.max() or drawn == getattr(stage, "n", -1)
    if below is None or not _is_fixed(stage) or not even or not low:
      result[j] = None
    elif j < release.clip_level:
      result[j] = below * drawn
  return result


def _own(release: plan_lib.Release, level: int) -> counts.Counts:
  """Compute the law of the clip units in a unit that hold a drawn example."""
  hierarchy, plan = release.hierarchy, release.plan
  if level == hierarchy.depth - 1:
    return counts.constant(1)
  below = _own(release, level + 1)
  stage = plan.stages[level + 1]
  most = int(hierarchy.child_counts(level + 1).min())
  if isinstance(stage, plan_lib.Poisson):
    number = counts.chosen(below, most, float(stage.p))
  else:
    number = counts.times(below, min(getattr(stage, "n", most), most))
  if level < release.clip_level:
    return number
  none = float(number.probs[number.values == 0].sum())
  return counts.mixed(
      [(none, counts.constant(0)), (1 - none, counts.constant(1))]
  )


# Composition ------------------------------------------------------------------


def _value(
    pair: _Pair,
    turned: bool,
    steps: int,
    passes: plan_lib.RandomAllocation | None,
    delta: float | None,
    epsilon: float | None,
    error: sampler_error.SamplerError,
    cells: int,
) -> float:
  """Bound epsilon (or delta) of one data set in one direction."""
  if passes is not None:
    losses, probs = _of_pass(pair, turned, passes.steps, cells)
    steps //= passes.steps
  else:
    if (pair.larger > 0).sum() == (pair.smaller > 0).sum() == 1:
      return _of_gaussian(pair, steps, delta, epsilon)
    losses, probs = _losses(pair, cells)
  lost = error.tails
  if steps > 1:
    composed = _power(losses, probs, steps, cells)
    if composed is None:
      return 0.0
    losses, probs, lost = composed[0], composed[1], lost + composed[2]

  def reached(at: float) -> float:
    slack = 2 * error.log_ratio + steps * 2 * _ROUNDING
    some = losses > at + slack
    sum_ = -float(probs[some] @ np.expm1(at + slack - losses[some]))
    charge = (1 + math.exp(min(at, 700.0))) * lost if lost else 0.0
    return sum_ * math.exp(-error.log_ratio) - charge

  if epsilon is not None:
    return max(reached(float(epsilon)), 0.0)
  assert delta is not None
  low, high = 0.0, max(float(losses.max()), 0.0)
  if reached(low) < delta:
    return 0.0
  while high - low > 1e-7 * high:
    middle = (low + high) / 2
    low, high = (middle, high) if reached(middle) >= delta else (low, middle)
  return low


def _of_gaussian(
    pair: _Pair, steps: int, delta: float | None, epsilon: float | None
) -> float:
  curve = base.GaussianCurve(float(np.ptp(pair.means)) * math.sqrt(steps))
  if epsilon is not None:
    found = curve.delta(float(epsilon))
  else:
    found = curve.epsilon(float(delta or 0))
  return found * (1 - 1e-8)


def _losses(
    pair: _Pair, cells: int, reach: float = _REACH
) -> tuple[np.ndarray, np.ndarray]:
  """Compute ln P/Q of cells, rounded down, and their probabilities under P."""
  low, high = pair.means.min() - reach, pair.means.max() + reach
  edges = np.linspace(low, high, cells + 1)
  p = _masses(pair.means, pair.larger, edges) * (1 - _ROUNDING)
  q = _masses(pair.means, pair.smaller, edges) * (1 + _ROUNDING)
  some = p > _SMALLEST
  q = np.maximum(q[some], 1e-290)
  return np.log(p[some]) - np.log(q), p[some]


def _masses(
    means: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> np.ndarray:
  """Compute the mixture's probability of every cell, float64[cells]."""
  total = np.zeros(edges.size - 1)
  for mean, weight in zip(means, weights):
    x = edges - mean
    below, above = np.diff(special.ndtr(x)), -np.diff(special.ndtr(-x))
    total += weight * np.where(x[1:] <= 0, below, above)  # The precise one.
  return total


def _power(
    losses: np.ndarray, probs: np.ndarray, steps: int, cells: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
  """Compose steps: losses, probabilities, and what these may be wrong by."""
  mean = float(probs @ losses)
  spread = math.sqrt(float(probs @ (losses - mean) ** 2))
  if not spread:
    return None
  h = max(spread / 64, 40 * spread * math.sqrt(steps) / _WINDOW)
  h = max(h, float(np.ptp(losses)) / _WINDOW, 0.0)
  if cells == _COARSE:
    h *= 16
  cell = np.floor(losses / h).astype(np.int64)
  # Never negative: rounding may put a loss next to its cell.
  above = np.clip(losses - cell * h, 0.0, h)
  first, probs = _gathered(
      cell, probs, 1 - above / h,
      # Differences of nearby numbers: their rounding is about 1e-16 / h.
      -probs * np.expm1(-above) * (1 - 1e-9),
      probs * np.expm1(h - above) * (1 + 1e-9),
  )
  found = _convolved(first, probs, h, steps)
  if found is None:
    return None
  places, values, lost = found
  return places * h, np.maximum(values, 0.0), lost


def _gathered(
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
    The first point, and the probabilities of it and the points that follow.
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


def _convolved(
    first: int, probs: np.ndarray, h: float, times: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
  """Convolve probabilities of the points (first + i) h with themselves.

  Returns:
    Points, their probabilities, and a bound on errors; None where the points
    are too many.
  """
  some = np.flatnonzero(probs)
  at = (first + some) * h
  total = float(probs.sum())
  mean = float(probs @ ((first + np.arange(probs.size)) * h)) / total
  variance = float(probs[some] @ (at - mean) ** 2) / total
  deviation = math.sqrt(variance * times) or h
  ends = []
  for sign in (-1, 1):
    bounds = [
        # Chernoff's, at a few exponents.
        (
            times * float(special.logsumexp(
                np.log(probs[some]) + sign * s / deviation * (at - mean)
            ))
            - math.log(_TAIL)
        ) / s * deviation
        for s in np.exp2(np.arange(-4, 6))
    ]
    ends.append(times * mean + sign * min(bounds))
  lowest = max(math.floor(ends[0] / h), times * first)
  highest = min(math.ceil(ends[1] / h), times * (first + probs.size - 1))
  if not 0 <= highest - lowest <= 8 * _WINDOW:  # Or beyond exact numbers.
    return None
  size = 1 << max(highest - lowest + 1, 2).bit_length()
  folded = np.bincount((first + np.arange(probs.size)) % size, probs, size)
  circle = fft.irfft(fft.rfft(folded) ** times, size)
  places = np.arange(lowest, highest + 1)
  wrong = 2 * _TAIL + times * 8 * math.log2(size) * _MACHINE
  return places, circle[places % size], wrong


def _of_pass(
    pair: _Pair, turned: bool, steps: int, cells: int
) -> tuple[np.ndarray, np.ndarray]:
  """Compute the losses of a pass, rounded down, and their probabilities.

  In the direction "add" (`turned`) the pair is given with its parts exchanged.
  """
  if turned:
    pair = _Pair(pair.means, pair.smaller, pair.larger)
  # Outcomes that are left out only lower the divergence.
  losses, p = _losses(pair, cells, _NEAR)
  q = p * np.exp(-losses)
  ratio = p / q
  nothing = np.zeros(1), np.ones(1)
  if float(ratio.max()) > 1e9:
    return nothing
  mean = float(q @ ratio)
  spread = math.sqrt(float(q @ (ratio - mean) ** 2))
  h = max(spread / 64, 40 * spread * math.sqrt(steps) / _WINDOW)
  h = max(h, float(np.ptp(ratio)) / _WINDOW)
  lowest = float(ratio.min())
  cell = np.floor((ratio - lowest) / h).astype(np.int64)
  above = np.clip(ratio - (lowest + cell * h), 0.0, h)
  surplus, wanted = q * above, q * (h - above)
  if not turned:
    first, probs = _gathered(
        cell, q, 1 - above / h, surplus * (1 - 1e-6), wanted * (1 + 1e-6)
    )
  else:  # From the other side: the point above is the one below.
    last, probs = _gathered(
        -cell - 1, q, above / h, wanted * (1 - 1e-6), surplus * (1 + 1e-6)
    )
    first, probs = 1 - last - probs.size, probs[::-1]
  found = _convolved(first, probs, h, steps)
  if found is None:
    return nothing
  places, values, lost = found
  ratio = np.maximum((places * h + steps * lowest) / steps, 1e-290)
  # Rounding errors of the transform are taken off each value.
  values = np.maximum(values - lost, 0.0)
  slack = 2 * steps * _ROUNDING
  if turned:
    return -np.log(ratio) - slack, values * (1 - slack)
  return np.log(ratio) - slack, values * ratio * (1 - slack)
