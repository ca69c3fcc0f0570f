"""Numbers of children that the samplers draw, and the error of their draws.

A Poisson stage draws K ~ Binomial(N, p) children. Its distribution function is
computed with whole numbers (no rounding that matters), scaled to 2^128 and cut
where the remaining tail is below 2^-90. A count that is drawn by inverting it
with 128 random bits differs from the true one by less than `error` in total
variation. Both samplers read these tables and `capacities`; the accountant
charges `sampling_error`.
"""

import bisect
import dataclasses
import fractions
import functools
import itertools
import math

import numpy as np

from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import stages as stages_lib

BITS = 128
TAIL_BITS = 90
_FRACTION_BITS = 256
# One uniform number below n < 2^31 from 128 bits is off by at most n / 2^128 in
# total variation, and each of its values by at most that share.
UNIFORM_ERROR = 2.0 ** (31 - BITS)

_RANDOM_COUNT = (stages_lib.Poisson, stages_lib.RandomAllocation)


@dataclasses.dataclass(frozen=True, eq=False)
class BinomialTable:
  """Thresholds of the distribution function of Binomial(n, p).

  Attributes:
    first: the smallest count of the table.
    thresholds: whole numbers, rising; a number U of 128 random bits draws the
      count `first + (number of thresholds <= U)`.
    capacity: the largest count that can be drawn, first + number of thresholds.
    error: total variation from the true binomial, tails and rounding included.
    upper: the true probability of `capacity` or more, where more was cut off.
    lower: the true probability of `first` or fewer, where fewer were cut off.
  """

  first: int
  thresholds: tuple[int, ...]
  capacity: int
  error: float
  upper: float = 0.0
  lower: float = 0.0


@functools.lru_cache(maxsize=4096)
def binomial_table(n: int, p: float) -> BinomialTable:
  """Tabulate Binomial(n, p), with p a float taken at its exact value.

  Weights are scaled to 2^256 at the mode and follow the recurrence
  w(k+1) = w(k) (n-k) p / ((k+1) (1-p)) away from it, where each division loses
  less than one unit; the products of ratios are below one, so that losses do
  not grow: over at most 2^20 entries a cumulated weight is off by less than
  2^-216 of the total.
  """
  if p >= 1 or n == 0:
    return BinomialTable(n, (), n, 0.0)
  exact = fractions.Fraction(p)
  up, down = exact.numerator, exact.denominator - exact.numerator
  mode = min(n, int((n + 1) * exact))
  # Below the mode the failures, n - k of them, follow the same recurrence.
  below = _weights_above(n, n - mode, down, up)
  weights = [*reversed(below), 1 << _FRACTION_BITS]
  weights += _weights_above(n, mode, up, down)
  sums = [0, *itertools.accumulate(weights)]
  total, smallest = sums[-1], mode - len(below)
  limit = total >> TAIL_BITS
  # The entries before `low` and those after `high` are cut off.
  low = bisect.bisect_right(sums, limit) - 1
  high = bisect.bisect_left(sums, total - limit) - 1
  cut = sums[low] + total - sums[high + 1]
  first, capacity = smallest + low, smallest + high
  return BinomialTable(
      first=first,
      thresholds=tuple(
          (weight << BITS) // total for weight in sums[low + 1 : high + 1]
      ),
      capacity=capacity,
      error=float(
          fractions.Fraction(cut, total)
          + fractions.Fraction(len(weights), 1 << BITS)
      ),
      upper=_share(total - sums[high], total) if capacity < n else 0.0,
      lower=_share(sums[low + 1], total) if first > 0 else 0.0,
  )


def _weights_above(n: int, mode: int, up: int, down: int) -> list[int]:
  """List the weights of mode + 1, mode + 2, ... up to n or to the first 0."""
  weights, weight = [], 1 << _FRACTION_BITS
  for k in range(mode, n):
    weight = weight * (n - k) * up // ((k + 1) * down)
    weights.append(weight)
    if not weight:
      break
  return weights


def _share(weight: int, total: int) -> float:
  """Divide a weight by the total, rounded up."""
  return math.nextafter(float(fractions.Fraction(weight, total)), math.inf)


def count_tables(
    stage: stages_lib.Stage, children: np.ndarray
) -> dict[int, BinomialTable]:
  """Tabulate the number that a stage draws of each distinct family size."""
  return {
      n: binomial_table(n, float(stage.rate(np.asarray(n))))
      for n in np.unique(children).tolist()
  }


@functools.lru_cache(maxsize=64)  # of the objects: the samplers ask every step
def capacities(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> tuple[int, ...]:
  """Count the static slots of each stage: n, or a bound on a random count.

  The number of units in one step of `RandomAllocation(T)` is binomial too.
  Below the first stage n does not depend on the data: where tasks are cut out
  of several levels, one unit less must not move the slots of all others.
  """
  result = []
  for k, stage in enumerate(plan.stages):
    counts = hierarchy.child_counts(k)
    largest = int(counts.max())
    if isinstance(stage, _RANDOM_COUNT):
      tables = count_tables(stage, counts)
      largest = max(table.capacity for table in tables.values())
    elif isinstance(stage, stages_lib.FixedSize):
      largest = stage.n if k else min(largest, stage.n)
    result.append(max(largest, 1))
  return tuple(result)


@dataclasses.dataclass(frozen=True)
class SamplerError:
  """The distance between the drawn sample and the plan's, in some steps.

  Attributes:
    variation: the total variation, all causes together.
    log_ratio: how far the logarithms of the two probabilities of a sample are
      apart at most, by uniform numbers of finitely many bits.
    tails: the total variation by counts alone, which are cut and rounded.
    unmatched: the probability of samples of one neighbour that the other one
      could not draw, or not as often, where neighbours differ by one child of
      one family; infinity where no bound is known.
  """

  variation: float = 0.0
  log_ratio: float = 0.0
  tails: float = 0.0
  unmatched: float = 0.0

  def times(self, steps: int) -> "SamplerError":
    """Return the error of n steps."""
    return SamplerError(
        *(steps * value for value in dataclasses.astuple(self))
    )

  def __add__(self, other: "SamplerError") -> "SamplerError":
    return SamplerError(
        *map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other)))
    )


EXACT = SamplerError()
"""The error of a sampler that draws exactly what the plan says: none."""


@functools.lru_cache(maxsize=64)  # of the objects: a ledger asks every step
def sampling_error(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> SamplerError:
  """Bound how far one drawn step is from the ideal plan.

  It covers the finite number of random bits and the overflow of the stated
  capacity of stages that draw a random number, and it holds for both
  neighbours. What it costs: section 9 of `accounting/README.md`.

  Uniform numbers. `sampling.draws` turns one of them, floor(U n / 2^128)
  of an n below 2^31, into every drawn slot. As many of the 2^128 values of U
  give one number as another, or one more, so that its probability is
  (1 + r) / n for an |r| below n / 2^128: a ratio that is near 1 for every
  outcome, and a product of such ratios for all slots.

  Counts. A tail that is cut off has no such ratio: `tails`. Yet what both
  neighbours can draw, they draw alike; see `_unmatched`.

  `RandomAllocation(T)` draws for a whole pass, and its steps depend on each
  other, yet what is said here of one step adds up: each of N units draws its
  step as floor(U T / 2^128), so a step has a probability within 2^-128 of
  1 / T, and the first k steps of a pass, together with "none of these", are
  within k 2^-128 of the ideal; for N independent units that is N 2^-128 a step.
  The ratios of one step and of "none of these" are within T 2^-128 of 1, which
  is counted in every step, for a pass may have one only. An overflow is an
  event of one step, and events add up whether or not they are independent; the
  order inside a step is drawn anew for each step.
  """
  slots = capacities(hierarchy, plan)
  uniform = tails = assigned = ratios = unmatched = 0.0
  for k, stage in enumerate(plan.stages):
    parents = math.prod((*plan.repeats, *slots[:k]))
    uniform += parents * slots[k] * UNIFORM_ERROR
    if isinstance(stage, _RANDOM_COUNT):
      tables = count_tables(stage, hierarchy.child_counts(k))
      table_error = max(table.error for table in tables.values())
      tails += parents * table_error
      unmatched += max(
          _unmatched(stage, children, table)
          for children, table in tables.items()
      )
    if isinstance(stage, stages_lib.RandomAllocation):
      # The table's 1 / T is rounded: its tail may be off, but not by half.
      tails += table_error
      units = hierarchy.num_units(0) / 2**BITS
      assigned, ratios = units, units * stage.steps
  return SamplerError(
      variation=uniform + tails + assigned,
      # -ln(1 - x) <= x (1 + x) for the small x of these.
      log_ratio=(uniform + ratios) * (1 + 1e-6),
      tails=tails,
      unmatched=unmatched,
  )


def _unmatched(
    stage: stages_lib.Stage, children: int, table: BinomialTable
) -> float:
  """Compute the share of one random count in `SamplerError.unmatched`.

  Of N children one lies on the path to the unit in question (or is the unit);
  let c be how many of the others an ideal draw takes. With the table first ..
  last, c from first to last - 1 is safe: with and without the child the count
  is in the table, and c is in that of N - 1 children, which reaches from at
  most `first` to at least last - 1. The rest has a probability of `lower` and
  `upper` at most, for c >= last only if the count of all N is, and so on. What
  was cut off is drawn as the first or the last count: at most 2^-89 for either
  neighbour. Thresholds are rounded to 2^-128, a share of a count's probability
  that adds up to (1 / (1 - p) + last / (N p)) 2^-128 for each entry, as the
  probability of c is at most that over the probability of c or c + 1 of all N.
  """
  rate = float(stage.rate(np.asarray(children)))
  if rate == 1 or children == 0:
    return 0.0
  edges = table.upper + table.lower
  entries = len(table.thresholds) + 1
  rounded = 2 + 1 / (1 - rate) + table.capacity / (children * rate)
  # Twice, for a pass: the table's 1 / T is rounded.
  moved = 2.0 ** -(TAIL_BITS - 2) if edges else 0.0
  return (
      2 * edges + moved + entries * rounded * 2.0**-BITS
  )
