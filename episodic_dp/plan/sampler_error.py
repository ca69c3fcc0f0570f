"""How far the drawn sample can be from the ideal one, in total variation."""

import functools
import math

import numpy as np

from episodic_dp.plan import binomial
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import stages as stages_lib

_RANDOM_COUNT = (stages_lib.Poisson, stages_lib.RandomAllocation)


def _tables(
    stage: stages_lib.Stage, counts: np.ndarray
) -> list[binomial.BinomialTable]:
  """One table for each distinct number of children."""
  return [
      binomial.binomial_table(int(n), float(stage.rate(n)))
      for n in np.unique(counts)
  ]


def capacities(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> tuple[int, ...]:
  """Count the static slots of each stage: n, or a bound on a random count.

  The number of units in one step of `RandomAllocation(T)` is binomial too.
  """
  result = []
  for k, stage in enumerate(plan.stages):
    counts = hierarchy.child_counts(k)
    largest = int(counts.max())
    if isinstance(stage, _RANDOM_COUNT):
      largest = max(table.capacity for table in _tables(stage, counts))
    elif isinstance(stage, stages_lib.FixedSize):
      largest = min(largest, stage.n)
    result.append(max(largest, 1))
  return tuple(result)


@functools.lru_cache(maxsize=64)  # of the objects: a ledger asks every step
def sampling_error(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> float:
  """Bound the total variation between one drawn step and the ideal plan.

  It covers the finite number of random bits and the overflow of the stated
  capacity of stages that draw a random number. It applies to both neighbours,
  so the accountant charges (1 + e^epsilon) of it, times the number of steps, to
  delta.

  `RandomAllocation(T)` draws for a whole pass, and its steps depend on each
  other, yet what is said here of one step adds up: each of N units draws its
  step as floor(U T / 2^128), so a step has a probability within 2^-128 of
  1 / T, and the first k steps of a pass, together with "none of these", are
  within k 2^-128 of the ideal; for N independent units that is N 2^-128 a step.
  An overflow is an event of one step, and events add up whether or not they are
  independent; the order inside a step is drawn anew for each step.
  """
  slots = capacities(hierarchy, plan)
  repeats = 1
  if plan.episode is not None and plan.episode.form == "independent":
    repeats = plan.episode.tasks or 1
  error = 0.0
  for k, stage in enumerate(plan.stages):
    parents = repeats * math.prod(slots[:k])
    error += parents * slots[k] * binomial.UNIFORM_ERROR
    if isinstance(stage, _RANDOM_COUNT):
      tables = _tables(stage, hierarchy.child_counts(k))
      error += parents * max(table.error for table in tables)
    if isinstance(stage, stages_lib.RandomAllocation):
      # The table's 1 / T is rounded: its tail may be off, but not by half.
      error += tables[0].error + hierarchy.num_units(0) / 2**binomial.BITS
  return error
