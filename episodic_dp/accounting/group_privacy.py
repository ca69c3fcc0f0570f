"""Guarantees for k units of a level that are added or removed together.

Two bounds, and the least of them is stated:

  chained   the k units leave one after the other; what the run is worth to one
            unit is chained (`accountants.chain`), in every plan. The data sets
            on the way have up to k - 1 units less than the one at hand: where
            the units' own stage is `FixedSize`, the rates are those of the
            smallest family that is left;
  together  where the units are primary units: K of them are drawn in a step, K
            ~ Binomial(k, p) for `Poisson` and `All`, hypergeometric for
            `FixedSize`; each of them moves the sum by at most d (by a random
            number of clip units, where it draws one), and vectors on one line
            are the worst: the mixture of `profiles.random_count`. An aligned
            group attains it in a step.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import foreign as foreign_lib
from episodic_dp.accounting import queries
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import chain
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.accountants.phases import Phase
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import averaged
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import nested_allocation
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile

# More units than this are asked for by mistake.
MAX_GROUP = 10**6
# A chain's links are made precise at these shares of ln delta's likely range.
_DEPTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SMALLEST = 1e-280

_WithRate = (
    amplification.Amplification,
    random_count.RandomCount,
    recurrence.Recurrence,
    nested_allocation.NestedAllocation,
)


def check(group: int) -> None:
  """Raise PlanError unless the number of units is in range."""
  whole = isinstance(group, int) and not isinstance(group, bool)
  if not whole or not 1 <= group <= MAX_GROUP:
    raise plan_lib.PlanError(
        f"group {group!r} must be a whole number from 1 to {MAX_GROUP}"
    )


def neighbours(level: str, group: int) -> str:
  """Say what the neighbours of a group's guarantee are."""
  if group == 1:
    return f"add or remove one {level}"
  return f"add or remove up to {group} units of level '{level}' together"


def best(
    accountant: base.Accountant,
    entries: Sequence[run_phases.Entry],
    foreign: Sequence[queries.Foreign],
    level: str,
    group: int,
    delta: float | None,
    epsilon: float | None,
    error: plan_lib.SamplerError,
) -> dict[str, float]:
  """The least bound for a group, in each direction.

  Args:
    accountant: how steps are composed.
    entries: what was run.
    foreign: what else was released about the same units.
    level: the units'.
    group: k, at least 2.
    delta: in (0, 1), to be told epsilon, or None.
    epsilon: at least 0, to be told delta, or None.
    error: of the run's sampler, all steps together. It holds with the group and
      without it, so it is charged once, but for what is unmatched, which is
      known for one unit only.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon).

  Raises:
    UnsoundPlanError: no guarantee is proved for the level, or for a group.
  """
  ways = chained(entries, foreign, level, group)
  if not ways:  # Something was released without noise.
    nothing = math.inf if epsilon is None else 1.0
    return dict.fromkeys(amplification.DIRECTIONS, nothing)
  mixed = together(entries, foreign, level, group)
  error = dataclasses.replace(error, unmatched=math.inf)
  values: dict[str, float] = {}
  for direction in amplification.DIRECTIONS:
    left = None if delta is None else curves.left_by_sampler(delta, error)
    if left is not None and left <= 0:
      values[direction] = math.inf
      continue

    def told(curve: curves.Curve) -> float:
      charged = curves.charge_sampler_error(curve, error)
      if delta is not None:
        return charged.epsilon(delta)
      return charged.delta(float(epsilon or 0))

    values[direction] = math.inf if epsilon is None else 1.0
    if mixed is not None:
      values[direction] = told(
          accountant.curve(mixed, direction, delta=left, epsilon=epsilon)
      )
    # Links are many: they are asked where the group at once has no bound.
    if values[direction] >= (math.inf if epsilon is None else 1.0):
      enough = 0.0
      if epsilon is not None:  # The last link counts e^epsilon times at most.
        enough = curves.negligible(error, epsilon)
        enough *= math.exp(-min(epsilon, 700.0)) / group
      links = [
          _link(accountant, run, direction, group, left, epsilon, enough)
          for run in ways
      ]
      values[direction] = told(
          curves.Least(tuple(chain.Chained(link, group) for link in links))
      )
  return values


def together(
    entries: Sequence[run_phases.Entry],
    foreign: Sequence[queries.Foreign],
    level: str,
    group: int,
) -> Phases | None:
  """All as the group sees it at once; None where no proof says how."""
  levels = foreign_lib.levels_of(entries, foreign)
  more = foreign_lib.group_phases(foreign, level, levels, group)
  if more is None:
    return None
  result = list(more)
  for entry in entries:
    if entry.release.hierarchy.level_index(level) > 0:
      return None
    for phase in run_phases.phases_of(entry, level):
      unit = _at_once(entry.release, phase.unit_profiles, group)
      if unit is None:
        return None
      result.append(Phase((unit,), phase.times))
  return tuple(result)


def _at_once(
    release: plan_lib.Release, units: unit_profile.UnitProfiles, group: int
) -> random_count.RandomCount | None:
  """k primary units as one; None where no proof says how.

  Members of different kinds have the largest rate, distance and number of any.
  """
  stage, population = release.plan.stages[0], release.hierarchy.num_units(0)
  trees = [u for u in units if isinstance(u, amplification.Amplification)]
  many = [u for u in units if isinstance(u, random_count.RandomCount)]
  own: counts.Counts
  if len(trees) == len(units):
    distance = max(unit.unit_sensitivity for unit in trees)
    rate = max(unit.rate for unit in trees)
    own = counts.constant(1)
  elif len(many) == len(units):
    distance = max(unit.distance for unit in many)
    rate = max(unit.rate for unit in many)
    own = functools.reduce(counts.larger, [_counts(u.number) for u in many])
  else:
    return None
  if isinstance(stage, (plan_lib.Poisson, plan_lib.All)):
    number = counts.chosen(own, group, rate)
  elif isinstance(stage, plan_lib.FixedSize) and not many:
    number = counts.hypergeometric(
        population, min(group, population), min(stage.n, population)
    )
  else:
    return None
  return random_count.RandomCount(
      outer_rates=(),
      rate=1.0,
      outer_distances=(),
      number=random_count.Number.of(number),
      instead=random_count.NOTHING,
      distance=distance,
  )


def _counts(number: random_count.Number) -> counts.Counts:
  return counts.Counts(np.asarray(number.values), np.asarray(number.probs))


def chained(
    entries: Sequence[run_phases.Entry],
    foreign: Sequence[queries.Foreign],
    level: str,
    group: int,
) -> tuple[Phases, ...]:
  """The ways to compose everything for one of the group's last k units.

  Raises:
    UnsoundPlanError: what is left by the others does not fill a stage.
  """
  levels = foreign_lib.levels_of(entries, foreign)
  for mechanism in foreign:
    if isinstance(mechanism, queries.Selection):
      for part in mechanism.candidates:
        for entry in part.entries:
          if _growth(entry.release, level, group) > 1:
            raise plan_lib.UnsoundPlanError(
                f"a group of {group} units with a selection among runs that"
                " draw them by FixedSize: how these cost more when units leave"
                " is not computed; use group=1, or draw them by Poisson"
            )
  growths = [_growth(entry.release, level, group) for entry in entries]
  ways = foreign_lib.routes(entries, foreign, level, levels)
  if all(growth == 1 for growth in growths) or not ways:
    return ways
  # Entry by entry: all by their first way, or all by their last.
  runs = [
      [_faster(run, growth) for run in run_phases.routes([entry], level)]
      for entry, growth in zip(entries, growths)
  ]
  (more,) = foreign_lib.routes((), foreign, level, levels)
  return tuple(dict.fromkeys(
      (*(phase for run in runs for phase in run[at]), *more) for at in (0, -1)
  ))


def _growth(release: plan_lib.Release, level: str, group: int) -> float:
  """How many times the own rate grows when k - 1 units have left.

  Raises:
    UnsoundPlanError: what is left does not fill the stage.
  """
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  stage = release.plan.stages[k]
  if not isinstance(stage, plan_lib.FixedSize):
    return 1.0
  sizes = {int(n) for n in hierarchy.child_counts(k) if n > 0}
  if release.plan.episode is not None and any(
      n - group < stage.n for n in sizes
  ):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for {group} units of level '{level}' together: {stage}"
        f" of {min(sizes)} would not be filled without them, and tasks made of"
        f" fewer are not covered by the proof; take a group of"
        f" {max(min(sizes) - stage.n, 1)} or fewer"
    )
  return max(
      _rate(stage.n, max(n - (group - 1), 1)) / _rate(stage.n, n)
      for n in sizes
  )


def _rate(drawn: int, size: int) -> float:
  return min(1.0, drawn / size)


def _faster(run: Phases, factor: float) -> Phases:
  """The phases with the units' own rates so many times as large."""
  return tuple(
      Phase(tuple(_with_rate(u, factor) for u in p.unit_profiles), p.times)
      for p in run
  )


def _with_rate(
    unit: unit_profile.UnitProfile, factor: float
) -> unit_profile.UnitProfile:
  """The kind of unit with its own rate so many times as large."""
  if isinstance(unit, averaged.Averaged):
    return averaged.Averaged(tuple(
        (chance, dataclasses.replace(part, rate=min(1.0, part.rate * factor)))
        for chance, part in unit.parts
    ))
  if isinstance(unit, _WithRate):
    return dataclasses.replace(unit, rate=min(1.0, unit.rate * factor))
  raise plan_lib.UnsoundPlanError(
      f"a group that leaves a FixedSize stage: how the profile of a"
      f" {type(unit).__name__} depends on the size of what is left is not"
      " known; use group=1, or draw the units by Poisson"
  )


def _link(
    accountant: base.Accountant,
    run: Phases,
    direction: amplification.Direction,
    group: int,
    delta: float | None,
    epsilon: float | None,
    enough: float,
) -> curves.Curve:
  """One link's bound, precise wherever a chain may ask.

  Where epsilon is given, deltas below `enough` need not be told apart.
  """
  if epsilon is not None:
    return curves.Least(tuple(
        accountant.curve(
            run, direction, epsilon=epsilon * share / group, enough=enough
        )
        for share in (0.5, 1.0, 1.5)
    ))
  assert delta is not None
  first = accountant.curve(run, direction, delta=delta / 2)
  step = first.epsilon(delta / 2)
  if not math.isfinite(step):
    return first
  # The last link's delta has to be smaller by about e^(k epsilon).
  ladder = [
      max(delta * math.exp(-min(depth * group * step, 640.0)), _SMALLEST)
      for depth in _DEPTHS
  ]
  return curves.Least((
      first,
      *(
          accountant.curve(run, direction, delta=rung)
          for rung in dict.fromkeys(ladder)
      ),
  ))
