"""How far the drawn sample can be from the ideal one, in total variation."""

import functools
import math

import numpy as np

from episodic_dp.plan import binomial
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import stages as stages_lib


def capacities(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> tuple[int, ...]:
  """The static number of slots of each stage: n, or a Poisson stage's bound."""
  result = []
  for k, stage in enumerate(plan.stages):
    counts = hierarchy.child_counts(k)
    largest = int(counts.max())
    if isinstance(stage, stages_lib.Poisson):
      largest = max(
          binomial.binomial_table(int(n), stage.p).capacity
          for n in np.unique(counts)
      )
    elif isinstance(stage, stages_lib.FixedSize):
      largest = min(largest, stage.n)
    result.append(max(largest, 1))
  return tuple(result)


@functools.lru_cache(maxsize=64)  # of the objects: a ledger asks every step
def sampling_error(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> float:
  """Total variation between one drawn step and the ideal plan.

  It covers the finite number of random bits and the overflow of the stated
  capacity of Poisson stages. It applies to both neighbours, so the accountant
  charges (1 + e^epsilon) of it, times the number of steps, to delta.
  """
  slots = capacities(hierarchy, plan)
  repeats = 1
  if plan.episode is not None and plan.episode.form == "independent":
    repeats = plan.episode.tasks or 1
  error = 0.0
  for k, stage in enumerate(plan.stages):
    parents = repeats * math.prod(slots[:k])
    error += parents * slots[k] * binomial.UNIFORM_ERROR
    if isinstance(stage, stages_lib.Poisson):
      counts = np.unique(hierarchy.child_counts(k))
      error += parents * max(
          binomial.binomial_table(int(n), stage.p).error for n in counts
      )
  return error
