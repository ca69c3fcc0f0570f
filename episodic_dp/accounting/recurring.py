"""Units that one step can draw several times, in several places.

Tasks of form "independent" are each drawn from the whole pool; the records of a
hierarchy with copies are held by several primary units. A unit that can be at
one place only is one of a tree: see `sensitivity`. Where a step draws it (its
parent) at one place at most, the step is like one of a tree: `profiles.
recurrence` takes the probabilities that the path to that place breaks.
"""

import dataclasses
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting import drawn_below
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile


def independent(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> unit_profile.UnitProfiles:
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

  Given J <= 1 take a uniformly random task, and the others as known. It draws
  the parent with probability P(J = 1) / P(J <= 1), and drawing it or not moves
  this one task, by at most 2C. One task alone is the tree of form "disjoint".
  """
  d = 2 / float(release.mechanism.noise_multiplier)
  found = in_tasks(release, k)
  if found[0].places == 1:
    return tuple(
        amplification.Amplification(
            (kind.place_rate,), kind.rate, (d,), d, d if replaced else 0.0
        )
        for kind in found
    )
  return tuple(
      dataclasses.replace(kind, distance=d, outer=((1.0, d),))
      for kind in found
  )


def in_tasks(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `independent`, at distance 1."""
  hierarchy, plan = release.hierarchy, release.plan
  assert plan.episode is not None and plan.episode.tasks is not None
  if hierarchy.most_copies and hierarchy.most_copies[k] > 1:
    return (_crossing(release, hierarchy.most_copies[k], plan.episode.tasks),)
  rows: list[tuple[float, ...]] = [
      (float(np.prod(rates[:-1])), float(rates[-1]))
      for rates in plan_lib.rate_paths(hierarchy, plan, k)
  ]
  return tuple(
      recurrence.Recurrence(
          places=plan.episode.tasks, place_rate=q, rate=p, distance=1.0
      )
      for q, p in distances.front(rows)
  )


def _crossing(
    release: plan_lib.Release, most: int, tasks: int
) -> recurrence.Recurrence:
  """A unit of the second level that up to `most` primary units hold in parts.

  A patient with images of several diagnoses, say. A task draws a number h of
  the diagnoses that hold some of it, whether or not the patient exists, and
  given those, each of its parts with its own rate, at most p: some of it with a
  probability u <= u_h = 1 - (1 - p)^h. Call the task live with probability
  u / u_max, u_max being that of the largest h, by a coin that depends on the
  diagnoses drawn alone, and let it hold some of the patient with probability
  u_max where it is live and never where it is not. That is the same law. So the
  patient is a unit whose parent is drawn with probability q = E[u] / u_max and
  which has the rate u_max; whatever the task draws of it, and whether it is
  live, moves the one task by at most 2C.
  """
  first, units = release.plan.stages[0], release.hierarchy.num_units(0)
  rate = _largest_rates(release, 1)[1]
  drawn = units
  if isinstance(first, plan_lib.FixedSize):
    drawn = min(first.n, units)
  number, chances = counts.hypergeometric(units, most, drawn)
  some = -np.expm1(number * math.log1p(-rate)) if rate < 1 else number > 0
  largest = float(max(some))
  return recurrence.Recurrence(
      places=tasks,
      # Rounding may not make it smaller.
      place_rate=min(1.0, float(chances @ some) / largest * (1 + 1e-12)),
      rate=largest,
      distance=1.0,
  )


def _largest_rates(release: plan_lib.Release, k: int) -> list[float]:
  """The largest rate of each stage on the paths to a level's units."""
  found = plan_lib.rate_paths(release.hierarchy, release.plan, k)
  return found.max(axis=0).tolist()


def copied(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Records (or classes) that several primary units hold, M of them at most.

  (With M = 1 no record is held twice, and the hierarchy is a tree of records.)

  Neighbours differ by the record in every primary unit that holds it. Which
  primary units are drawn does not depend on it, and those that are draw their
  inner stages independently of each other. So the number J of drawn holders
  that also draw the record's parent is Binomial(M, q), where q is the product
  of the rates above the record's own, for `Poisson` and `All` primary stages;
  for `FixedSize` the drawn holders are hypergeometric, and each of them then
  draws the parent with the product of the inner rates. J has the same
  distribution without the record. Each such parent draws the record with its
  own rate p, and what it draws otherwise is distributed as without it.

  The inner rates above the record's own belong to J, which is revealed where it
  is 2 or more. Were they part of p, a holder that does not draw the record
  would be taken to be as without it, but it tends to draw other parents: the
  direction "add" fails.

  Given J <= 1 take a uniformly random holder. Its path breaks at each stage
  with the probabilities of `_breaks`, and only that differs: section 7 of the
  proof has the coupling for a `FixedSize` primary stage.

  Where levels cross (form "disjoint" of classes that hold the unit in parts)
  the holders are the classes, and their rates p differ: the largest is taken.
  """
  plan, z = release.plan, float(release.mechanism.noise_multiplier)
  (kind,) = in_holders(release, k)
  shares = _breaks(release, k, kind)
  if drawn_below.is_random(release, k, own=True):
    (row,) = drawn_below.rows(release, k)
    return (
        dataclasses.replace(
            kind,
            distance=1 / z,
            outer=tuple((w, m / z) for w, m in zip(shares, row.others)),
            number=row.number,
            instead=row.instead,
        ),
    )
  # Of a regular hierarchy there is one path; where levels cross, the first
  # stage and what lies below it inside tasks are the same on all.
  found = distances.paths(release, k)
  lengths = [
      distances.moved(stage, *sizes, inside=j > release.clip_level) / z
      for j, (stage, *sizes) in enumerate(
          zip(plan.stages, found.sizes[0], found.own[0], found.others[0])
      )
  ]
  outer = tuple(zip(shares, lengths))
  return (dataclasses.replace(kind, distance=lengths[k], outer=outer),)


def _breaks(
    release: plan_lib.Release, k: int, kind: recurrence.Recurrence
) -> list[float]:
  """Compute where a holder's path breaks, given that every holder's does."""
  rates = _largest_rates(release, k)
  inner = math.prod(rates[1:k])
  if inner == 1:  # Then no holder is drawn.
    return [1.0] + [0.0] * (k - 1)
  # The probability that a holder is drawn nevertheless.
  if kind.drawn_of is None:
    drawn = rates[0] * (1 - inner) / (1 - rates[0] * inner)
  else:
    n, units = kind.drawn_of
    number, probs = counts.hypergeometric(units, kind.places, n)
    probs = probs * np.exp(
        (number - number[0]) * math.log1p(-inner)  # Over its largest value.
    )
    drawn = float(probs @ number) / (kind.places * float(probs.sum()))
  shares, left = [1 - drawn], drawn / (1 - inner)
  for rate in rates[1:k]:
    shares.append(left * (1 - rate))
    left *= rate
  return shares


def in_holders(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `copied`, at distance 1."""
  hierarchy, plan = release.hierarchy, release.plan
  assert hierarchy.most_copies is not None
  rates = _largest_rates(release, k)
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
