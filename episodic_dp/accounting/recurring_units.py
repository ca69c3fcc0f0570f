"""Units that one step can draw several times, in several places.

Tasks of form "independent" are each drawn from the whole pool; the records of a
hierarchy with copies are held by several primary units. The rates and distances
of every other unit: see `sensitivity`.
"""

import dataclasses
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting import kinds
from episodic_dp.accounting.profiles import recurrence


def independent(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Units of a level where every task of a step is drawn from the whole pool.

  Each of the L tasks draws the unit's parent with probability q = r_1 ..
  r_(k-1), whether or not the unit t exists, and independently of the others: J
  is Binomial(L, q). Given that it does, let the stage draw n of the N children.
  For n < N, with probability p = n / N the task holds t in one of its places;
  given that it does not, what it draws is distributed as without t, and given
  that it does, the same with a uniform other child in t's place. For a full
  stage (`All`, or n >= N) p = 1, and without t the task has one unit less. In
  both cases one task becomes another one with probability p, independently for
  each task, and its clipped gradient moves by at most 2C. No other task
  changes, full stage or not: tasks share no draws, and none is regrouped.
  """
  return tuple(
      dataclasses.replace(
          kind, distance=2 / float(release.mechanism.noise_multiplier)
      )
      for kind in in_tasks(release, k)
  )


def in_tasks(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `independent`, at distance 1."""
  plan = release.plan
  assert plan.episode is not None and plan.episode.tasks is not None
  rows: list[tuple[float, ...]] = [
      (float(np.prod(rates[:-1])), float(rates[-1]))
      for rates in plan_lib.rate_paths(release.hierarchy, plan, k)
  ]
  return tuple(
      recurrence.Recurrence(
          places=plan.episode.tasks, place_rate=q, rate=p, distance=1.0
      )
      for q, p in kinds.front(rows)
  )


def copied(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Records (or classes) that several primary units hold, M of them at most.

  Neighbours differ by the record in every primary unit that holds it. Which
  primary units are drawn does not depend on it, and those that are draw their
  inner stages independently of each other. So the number J of drawn holders
  that also draw the record's parent is Binomial(M, q), where q is the product
  of the rates above the record's own, for `Poisson` and `All` primary stages;
  for `FixedSize` the drawn holders are hypergeometric, and each of them then
  draws the parent with the product of the inner rates. J has the same
  distribution without the record. Each such parent draws the record with its
  own rate p, and what it draws otherwise is distributed as without it.

  The inner rates above the record's own belong to J, which is revealed. Were
  they part of p, a holder that does not draw the record would be taken to be as
  without it, but it tends to draw other parents: the direction "add" fails.
  """
  found = distances.paths(release, k)  # Of a regular hierarchy: one.
  moved = distances.moved(
      release.plan.stages[k],
      int(found.sizes[0, k]),
      int(found.own[0, k]),
      int(found.others[0, k]),
      inside=k > release.clip_level,
  )
  (kind,) = in_holders(release, k)
  return (
      dataclasses.replace(
          kind, distance=moved / float(release.mechanism.noise_multiplier)
      ),
  )


def in_holders(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `copied`, at distance 1; the hierarchy is regular."""
  hierarchy, plan = release.hierarchy, release.plan
  assert hierarchy.most_copies is not None
  (rates,) = plan_lib.rate_paths(hierarchy, plan, k).tolist()
  first, units = plan.stages[0], hierarchy.num_units(0)
  inner = math.prod(rates[1:k])
  drawn_of = None
  if isinstance(first, plan_lib.FixedSize) and first.n < units:
    drawn_of = (int(first.n), units)
  return (
      recurrence.Recurrence(
          places=int(hierarchy.most_copies[k]),
          place_rate=inner if drawn_of else rates[0] * inner,
          rate=rates[k],
          distance=1.0,
          drawn_of=drawn_of,
      ),
  )
