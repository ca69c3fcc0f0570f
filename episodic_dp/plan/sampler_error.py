"""Tables of random counts, and the sampler's distance from the ideal plan.

A Poisson stage samples K ~ Binomial(N, p) children. The table of its
distribution function is computed in whole numbers, scaled to 2^128 and cut
where the remaining tail is below 2^-90. Inverting the table with 128 random
bits gives a count whose distribution is within `error` of the true one in total
variation. Both samplers read these tables and `capacities`; the accountant
charges `sampling_error`.
"""

import bisect
import dataclasses
import fractions
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import stages as stages_lib

BITS = 128
TAIL_BITS = 90
_FRACTION_BITS = 256
# A uniform number below n < 2^31 from 128 bits is off by at most n / 2^128 in
# total variation, and each of its probabilities by at most that ratio.
UNIFORM_ERROR = 2.0 ** (31 - BITS)


@dataclasses.dataclass(frozen=True, eq=False)
class BinomialTable:
  """Thresholds of the distribution function of Binomial(n, p).

  Attributes:
    first: the smallest count of the table.
    thresholds: whole numbers, ascending; a number U of 128 random bits gives
      the count `first + (number of thresholds <= U)`.
    capacity: the largest possible count, first + number of thresholds.
    error: total variation from the true binomial, tails and rounding included.
    upper: the true probability of `capacity` or more if more was cut off.
    lower: the true probability of `first` or fewer if fewer were cut off.
  """

  first: int
  thresholds: tuple[int, ...]
  capacity: int
  error: float
  upper: float = 0.0
  lower: float = 0.0


@functools.lru_cache(maxsize=4096)
def binomial_table(n: int, p: float) -> BinomialTable:
  """Tabulate Binomial(n, p) for the exact value of the float p.

  Weights are scaled to 2^256 at the mode and follow the recurrence
  w(k+1) = w(k) (n-k) p / ((k+1) (1-p)) away from it. Each division loses less
  than one unit. The products of ratios are below one, so losses do not grow:
  over at most 2^20 entries a cumulative weight is off by less than 2^-216 of
  the total.
  """
  if p >= 1 or n == 0:
    return BinomialTable(n, (), n, 0.0)
  exact = fractions.Fraction(p)
  up, down = exact.numerator, exact.denominator - exact.numerator
  mode = min(n, int((n + 1) * exact))
  # Below the mode the n - k failures follow the same recurrence.
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
  rounded = fractions.Fraction(len(weights), 1 << BITS)
  upper = lower = 0.0
  if capacity < n:
    upper = _share(total - sums[high], total)
  if first > 0:
    lower = _share(sums[low + 1], total)
  return BinomialTable(
      first=first,
      thresholds=tuple(
          (weight << BITS) // total for weight in sums[low + 1 : high + 1]
      ),
      capacity=capacity,
      error=float(fractions.Fraction(cut, total) + rounded),
      upper=upper,
      lower=lower,
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
  """Tabulate the random count of a stage for each distinct family size."""
  return {
      n: binomial_table(n, float(stage.rate(n)))
      for n in np.unique(children).tolist()
  }


class _Limits(NamedTuple):
  """The worst of the count tables of a stage, over all family sizes.

  Attributes:
    capacity: the largest possible count.
    error: total variation from the true binomial, also with a child less.
    unmatched: see `_unmatched`.
  """

  capacity: int
  error: float
  unmatched: float


@functools.lru_cache(maxsize=64)  # Keyed by object: samplers call every step.
def _limits(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan, k: int
) -> _Limits:
  """Return the limits of stage k, whose count is random; keeps no table."""
  stage, capacity, error, unmatched = plan.stages[k], 0, 0.0, 0.0
  for n in np.unique(hierarchy.child_counts(k)).tolist():
    table = binomial_table(n, float(stage.rate(n)))
    capacity = max(capacity, table.capacity)
    # A neighbour may have one child less, and its table other ends.
    fewer = binomial_table(max(n - 1, 0), float(stage.rate(n)))
    error = max(error, table.error, fewer.error)
    unmatched = max(unmatched, _unmatched(stage, n, table))
  return _Limits(capacity, error, unmatched)


@functools.lru_cache(maxsize=64)  # Keyed by object: samplers call every step.
def capacities(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> tuple[int, ...]:
  """Return the static number of slots of each stage.

  It is n of `FixedSize(n)`, and a bound on the count of a random stage. The
  number of units in one step of `RandomAllocation(T)` is binomial too. Below
  the first stage the number does not depend on the data: if tasks are cut from
  several levels, one unit less must not move the slots of all others.
  """
  result = []
  for k, stage in enumerate(plan.stages):
    largest = int(hierarchy.child_counts(k).max())
    if stage.random_count:
      largest = _limits(hierarchy, plan, k).capacity
    elif isinstance(stage, stages_lib.FixedSize):
      if k > 0 or stage.n < largest:
        largest = stage.n
    result.append(max(largest, 1))
  return tuple(result)


@dataclasses.dataclass(frozen=True)
class SamplerError:
  """The distance between the sampler's distribution and the plan's.

  Attributes:
    variation: the total variation, from all causes.
    log_ratio: the largest difference between the logarithms of a sample's two
      probabilities, due to uniform numbers of finitely many bits.
    tails: the total variation from random counts, which are cut and rounded.
    unmatched: the probability of samples that one neighbour can produce and the
      other cannot, or less often, if neighbours differ by one child of one
      family; infinity if no bound is known.
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
"""The error of a sampler that follows the plan exactly."""


@functools.lru_cache(maxsize=64)  # Keyed by object: ledgers call every step.
def sampling_error(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> SamplerError:
  """Bound the distance of one sampled step from the ideal plan.

  It covers the finite number of random bits and the overflow of a random
  stage's capacity, and holds for both neighbours. Its cost in privacy is in
  section 10 of `accounting/README.md`.

  Uniform numbers. `sampling.draws` fills every slot with floor(U n / 2^128) for
  a U of 128 random bits and n below 2^31. The numbers of values of U that give
  two results differ by at most one. So each result has probability (1 + r) / n
  with |r| below n / 2^128. The ratio is near 1 for every result, and a sample's
  ratio is the product over all slots.

  Counts. A tail that is cut off has no such ratio: `tails`. Counts that both
  neighbours can produce have the same error in both; see `_unmatched`.

  `RandomAllocation(T)` assigns all units once a pass, so its steps depend on
  each other. Still, the errors of single steps add up. Each of N units gets
  step floor(U T / 2^128), whose probability is within 2^-128 of 1 / T. The
  first k steps of a pass, together with "none of these", are within k 2^-128 of
  the ideal, which for N independent units is N 2^-128 a step. The ratios of one
  step and of "none of these" are within T 2^-128 of 1; this is charged in every
  step, because a run may end after one. An overflow is an event of one step,
  and probabilities of events add up even if they depend on each other. The
  order inside a step is random and new in each step.
  """
  slots = capacities(hierarchy, plan)
  uniform = tails = assigned = ratios = unmatched = 0.0
  for k, stage in enumerate(plan.stages):
    parents = math.prod((*plan.repeats, *slots[:k]))
    uniform += parents * slots[k] * UNIFORM_ERROR
    if stage.random_count:
      limits = _limits(hierarchy, plan, k)
      tails += parents * limits.error
      unmatched += limits.unmatched
    if stage.pass_steps is not None:
      # The table's 1 / T is rounded: doubled, the tail is still a bound.
      tails += limits.error
      units = hierarchy.num_units(0) / 2**BITS
      assigned, ratios = units, units * stage.pass_steps
  return SamplerError(
      variation=uniform + tails + assigned,
      # -ln(1 - x) <= x (1 + x) for these small x.
      log_ratio=(uniform + ratios) * (1 + 1e-6),
      tails=tails,
      unmatched=unmatched,
  )


def _unmatched(
    stage: stages_lib.Stage, children: int, table: BinomialTable
) -> float:
  """Compute one random count's part of `SamplerError.unmatched`.

  One of the N children is on the path to the differing unit, or is that unit.
  Let c be the number of the others in an ideal sample, and let the table reach
  from first to last. Every c from first to last - 1 is safe. With and without
  the child the count is in the table, and c is in the table of N - 1 children,
  which starts at `first` or below and ends at last - 1 or above. The remaining
  c have a probability of at most `lower` and `upper`: c >= last implies that
  the count of all N is, too, and the same holds below. A count that was cut off
  becomes the first or the last: at most 2^-89 for either neighbour. Thresholds
  are rounded to 2^-128. Relative to a count's probability these roundings add
  up to (1 / (1 - p) + last / (N p)) 2^-128 for each entry, because P(c) is at
  most that multiple of P(c) or P(c + 1) of all N.
  """
  rate = float(stage.rate(children))
  if rate == 1 or children == 0:
    return 0.0
  edges = table.upper + table.lower
  entries = len(table.thresholds) + 1
  rounded = 2 + 1 / (1 - rate) + table.capacity / (children * rate)
  # Doubled for a pass: the table's 1 / T is rounded.
  moved = 2 * edges
  if edges:
    moved += 2.0 ** -(TAIL_BITS - 2)
  return moved + entries * rounded * 2.0**-BITS
