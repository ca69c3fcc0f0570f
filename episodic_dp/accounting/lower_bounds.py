"""Lower bounds on epsilon: exact losses of data sets that a plan allows.

A data set is chosen whose step is a mixture of few Gaussians on a line. The
clip units of one unit t have gradient +1, all others one of -1, 0 and 1. A
value other than 0 is used only if a step samples a constant number of such clip
units, so that their sum is constant. The output with t is P, and without it (or
with its gradients reversed) Q. The best of these data sets is composed.

One step. The line is cut into cells: merging outcomes loses information and
adds none. Masses of P are rounded down and those of Q up.

T steps. The losses ln P/Q of cells are rounded to the nearest points of a
lattice, and their sum is a power of a Fourier transform. The rounding errors of
the steps are independent and in an interval of the lattice's spacing h. By
Hoeffding's inequality their sum is below its mean by more than
h sqrt(T ln(1 / t) / 2) with probability at most t. The sums are shifted by
both. Then t, the transform's rounding errors and the probability outside its
window (which is folded back in) are subtracted.

A pass of T steps of random allocation is one step here. Under Q its ratio P/Q
is (X_1 + ... + X_T) / T for the ratios X_i of its steps, which are added up in
the same way.
"""

from collections.abc import Iterator
import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.composition import Entry
from episodic_dp.accounting.guarantee import question
from episodic_dp.accounting.profiles import counts
from episodic_dp.plan import sampler_error

# Cells of one step, and points of the window of a sum: to choose a data set,
# and for its bound.
_COARSE, _FINE = (1 << 9, 1 << 15), (1 << 14, 1 << 20)
# Probability outside the window at either end, and of rounding errors larger
# than the subtracted ones; probability of omitted cells.
_TAIL, _SMALLEST = 1e-15, 1e-300
_REACH, _NEAR, _MACHINE = 37.0, 7.5, 2.0**-52
# Number of data sets computed on fine cells, and of paths considered.
_FINALISTS, _MOST_PATHS = 2, 4
# Above the relative rounding error of a cell's mass.
_ROUNDING = 5e-12


class _Pair(NamedTuple):
  """Two mixtures of Gaussians of variance 1 with the same means."""

  means: np.ndarray
  larger: np.ndarray
  smaller: np.ndarray


class _Losses(NamedTuple):
  """Losses ln P/Q, at most the true ones, and their probabilities under P.

  Attributes:
    values: float64[n].
    probs: float64[n].
    wrong: the probability that some loss is above the true one.
  """

  values: np.ndarray
  probs: np.ndarray
  wrong: float = 0.0


def lower_bound(
    release: plan_lib.Release,
    *,
    steps: int,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    neighbours: report.Relation = "add-or-remove",
) -> float:
  """Bound epsilon (or delta) of a level from below.

  The result is the exact loss of one data set that the plan allows, so no
  analysis can promise less. It is known for units of trees, and in passes for
  primary units.

  Args:
    release: the release of a step.
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    neighbours: "add-or-remove" or "replace-one".

  Returns:
    The bound; 0 if none is known.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: a value is out of range, or there is no such level.
  """
  at, steps = question(delta, epsilon), Entry(release, steps).steps
  release.check_level(level)
  k = release.hierarchy.level_index(level)
  passes = release.plan.pass_steps
  if not _is_known(release, k, passes is not None):
    return 0.0
  replaced = report.is_replaced(neighbours)
  if passes is not None and (replaced or steps < passes):
    return 0.0
  a_step = sampler_error.sampling_error(release.hierarchy, release.plan)
  error = a_step.times(steps)

  def bound(pair: _Pair, turned: bool, size: tuple[int, int]) -> float:
    return _value(pair, turned, steps, passes, at, error, size)

  ranked = []
  for pair in _pairs(release, k, replaced):
    for turned in (False, True):
      ranked.append((bound(pair, turned, _COARSE), pair, turned))
  ranked.sort(key=lambda row: -row[0])
  values = [bound(*row[1:], _FINE) for row in ranked[:_FINALISTS]]
  return max(*values, ranked[0][0]) if ranked else 0.0


# Data sets --------------------------------------------------------------------


def _is_known(release: plan_lib.Release, k: int, passes: bool) -> bool:
  return (
      release.mechanism.guaranteed
      and not release.sample_level
      and not ((passes or release.hierarchy.copies) and k)
      and release.plan.form in (None, "unit")
      and not release.plan.allow_short_units
  )


def _pairs(
    release: plan_lib.Release, k: int, replaced: bool
) -> Iterator[_Pair]:
  """Yield the pairs of distributions for some units and gradients."""
  plan, clip = release.plan, release.clip_level
  z = float(release.mechanism.gradient_noise_multiplier)
  numbers = _constant_numbers(release)
  own = _own(release, k)
  sizes = release.hierarchy.size_paths(k)
  rates = plan.path_rates(sizes)
  if plan.pass_steps is not None:
    rates[:, 0] = 1.0  # A step that uses the unit.
  found = set()
  best = np.argsort(-rates.prod(axis=1), kind="stable")[:_MOST_PATHS]
  for row in best.tolist():
    for value, parent in itertools.product((-1, 0, 1), repeat=2):
      if k > clip and (numbers[clip] is None or sizes[row, k] < 2):
        parent = 0  # The clip unit may be sampled without an example.
      sibling = [
          (value if j < k else parent) * (numbers[j] or 0)
          if j <= clip and not plan.stages[j].random_count
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
    sizes: sizes of the families on the path.
    rates: rates of its stages.
    sibling: for every stage, the sum that one sibling adds.
    own: the number of clip units in t, or whether it is seen in one.
    empty: the sum of t's clip unit without t, if t is inside one.
    replaced: whether Q has t with gradients -1.
  """
  clip, k = release.clip_level, len(sizes) - 1
  rows: list[tuple[float, float, float]] = []  # mean, weight in P, and in Q
  reached, total = 1.0, 0
  for j in range(k + 1):
    stage = release.plan.stages[j]
    drawn = int(stage.most(sizes[j]))
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
  for number, chance in zip(
      own.values.tolist(), own.probs.tolist(), strict=True
  ):
    seen = total + (number if number or k <= clip else empty)
    turned = total + (-number if number or k <= clip else empty)
    rows.append((seen, reached * chance, 0.0))
    if replaced:
      rows.append((turned, 0.0, reached * chance))
  # An outcome without probability would count as a mean.
  rows = [row for row in rows if row[1] or row[2]]
  means, where = np.unique([row[0] for row in rows], return_inverse=True)
  weights = [
      np.bincount(where.ravel(), [row[i] for row in rows], means.size)
      for i in (1, 2)
  ]
  return _Pair(means, *weights)


def _constant_numbers(release: plan_lib.Release) -> list[int | None]:
  """List the clip units in every sampled unit of a level; None if random.

  Each of them holds a sampled example.
  """
  hierarchy, plan = release.hierarchy, release.plan
  result: list[int | None] = [1] * hierarchy.depth
  for j in range(hierarchy.depth - 2, -1, -1):
    stage, sizes = plan.stages[j + 1], hierarchy.child_counts(j + 1)
    below, low = result[j + 1], int(sizes.min())
    drawn = int(stage.most(low))
    even = drawn == stage.most(sizes.max())
    if below is None or stage.random_count or not even or not low:
      result[j] = None
    elif j < release.clip_level:
      result[j] = below * drawn
  return result


def _own(release: plan_lib.Release, level: int) -> counts.Counts:
  """Compute the law of the clip units in a unit that hold a sampled example."""
  hierarchy, plan = release.hierarchy, release.plan
  if level == hierarchy.depth - 1:
    return counts.constant(1)
  below = _own(release, level + 1)
  stage = plan.stages[level + 1]
  most = int(hierarchy.child_counts(level + 1).min())
  number = counts.chosen(below, int(stage.most(most)), stage.coin)
  if level < release.clip_level:
    return number
  some = min(1.0, number.some)
  return counts.mixed([
      (1 - some, counts.constant(0)), (some, counts.constant(1))
  ])


# Composition ------------------------------------------------------------------


def _value(
    pair: _Pair,
    turned: bool,
    steps: int,
    passes: int | None,
    at: base.Question,
    error: sampler_error.SamplerError,
    size: tuple[int, int],
) -> float:
  """Bound epsilon (or delta) of one data set in one direction.

  In the direction "add" (`turned`) the parts of the pair are exchanged.
  """
  cells, points = size
  if passes is not None:
    found = _of_pass(pair, turned, passes, cells, points)
    steps //= passes
  elif (pair.larger > 0).sum() == (pair.smaller > 0).sum() == 1:
    # One Gaussian, whose curve is rounded up.
    distance = float(np.ptp(pair.means)) * math.sqrt(steps)
    return at.of(base.GaussianCurve(distance)) * (1 - 1e-8)
  else:
    if turned:
      pair = _Pair(pair.means, pair.smaller, pair.larger)
    found = _losses(pair, cells)
  lost = error.tails + steps * found.wrong
  if steps > 1:
    found = _summed(found.values, found.probs, steps, points)
    lost += found.wrong
  # Losses below 0 are never reached.
  values, probs = found.values[found.values > 0], found.probs[found.values > 0]

  def reached(epsilon: float) -> float:
    start = epsilon + 2 * error.log_ratio + steps * 2 * _ROUNDING
    some = values > start
    sum_ = -float(probs[some] @ np.expm1(start - values[some]))
    charge = (1 + math.exp(min(epsilon, 700.0))) * lost if lost else 0.0
    return sum_ * math.exp(-error.log_ratio) - charge

  if isinstance(at, base.Epsilon):
    return max(reached(at.value), 0.0)
  delta = at.value
  if reached(0.0) <= delta:
    return 0.0
  # Above all losses nothing is reached.
  largest = float(values.max(initial=0.0))
  least = scipy.optimize.brentq(
      lambda epsilon: reached(epsilon) - delta, 0.0, largest, rtol=1e-8
  )
  while reached(least) < delta:
    least *= 1 - 1e-8
  return least


def _losses(pair: _Pair, cells: int, reach: float = _REACH) -> _Losses:
  """Compute ln P/Q of cells, rounded down, and their probabilities under P."""
  low, high = pair.means.min() - reach, pair.means.max() + reach
  edges = np.linspace(low, high, cells + 1)
  p = _masses(pair.means, pair.larger, edges) * (1 - _ROUNDING)
  q = _masses(pair.means, pair.smaller, edges) * (1 + _ROUNDING)
  some = p > _SMALLEST
  q = np.maximum(q[some], 1e-290)
  return _Losses(np.log(p[some]) - np.log(q), p[some])


def _masses(
    means: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> np.ndarray:
  """Compute the mixture's probability of every cell, float64[cells]."""
  total = np.zeros(edges.size - 1)
  for mean, weight in zip(means, weights, strict=True):
    x = edges - mean
    below = np.diff(scipy.special.ndtr(x))
    above = -np.diff(scipy.special.ndtr(-x))
    total += weight * np.where(x[1:] <= 0, below, above)  # The precise one.
  return total


def _summed(
    values: np.ndarray, probs: np.ndarray, copies: int, points: int,
    *, up: bool = False,
) -> _Losses:
  """Add up independent copies on a lattice.

  Args:
    values: float64[n], one copy.
    probs: float64[n], above 0.
    copies: number of copies, at least 1.
    points: approximate number of lattice points.
    up: whether sums are rounded up instead of down.
  """
  values, probs = values[probs > 0], probs[probs > 0]
  total = float(probs.sum())
  mean = float(probs @ values) / total
  centred = values - mean
  deviation = math.sqrt(copies * float(probs @ centred**2) / total)
  # Rounding errors exceed the sum of this many copies.
  if not deviation or copies * -math.log(_TAIL) / 2 > points**2:
    return _NOTHING
  # Chernoff's bounds on both ends of the sum, at a few exponents.
  exponent = np.exp2(np.arange(-4, 6)) / deviation
  log_tail = math.log(_TAIL)
  low, high = (
      sign * float(min(
          copies * scipy.special.logsumexp(sign * t * centred, b=probs) / t
          - log_tail / t
          for t in exponent.tolist()
      ))
      for sign in (-1, 1)
  )
  h = (high - low) / points
  places = np.rint(centred / h).astype(np.int64)
  shift = copies * float(probs @ (centred - h * places)) / total
  # One more h: under P one step of a pass has another mean error.
  margin = h * (1 + math.sqrt(copies * -math.log(_TAIL) / 2))
  at = np.arange(
      math.floor((low - shift - margin) / h),
      math.ceil((high - shift + margin) / h) + 1,
  )
  size = 1 << at.size.bit_length()
  folded = np.bincount(places % size, probs, size)
  circle = scipy.fft.irfft(scipy.fft.rfft(folded) ** copies, size)
  return _Losses(
      at * h + copies * mean + shift + (margin if up else -margin),
      np.maximum(circle[at % size], 0.0),
      5 * _TAIL + copies * 8 * math.log2(size) * _MACHINE,
  )


_NOTHING = _Losses(np.zeros(1), np.ones(1))


def _of_pass(
    pair: _Pair, turned: bool, steps: int, cells: int, points: int
) -> _Losses:
  """Compute the losses of a pass, in the direction "add" if `turned`."""
  # Omitted outcomes only lower the divergence.
  one = _losses(pair, cells, _NEAR)
  if float(one.values.max()) > 20:
    return _NOTHING
  total, probs, wrong = _summed(
      np.exp(one.values), one.probs * np.exp(-one.values), steps, points // 4,
      up=turned,
  )
  log_ratio = np.log(np.maximum(total / steps, 1e-290))
  # Rounding errors of the transform are subtracted from each value.
  probs = np.maximum(probs - wrong, 0.0)
  slack = 2 * steps * _ROUNDING
  if turned:
    return _Losses(-log_ratio - slack, probs * (1 - slack), wrong)
  probs = probs * np.exp(log_ratio) * (1 - slack)
  return _Losses(log_ratio - slack, probs, wrong)
