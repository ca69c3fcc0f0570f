"""A run as phases: what is composed, and how often."""

from collections.abc import Sequence
import dataclasses
import math

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants.phases import Phase
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import averaged
from episodic_dp.accounting.profiles import laplace
from episodic_dp.accounting.profiles import nested_allocation
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile

# With more kinds of units than this they are composed together: looser, faster.
_MAX_APART = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A part of a run whose steps are all alike.

  Attributes:
    release: what a step sampled and released.
    steps: how often, at least 1.
  """

  release: plan_lib.Release
  steps: int


def phases_of(
    entry: Entry, level: str, *, condition_on_step: bool = False
) -> Phases:
  """Describe what the steps of one entry compose to.

  With `RandomAllocation(T)` a pass of T steps is one "step", and the last pass
  may have been cut short. Where one step is all that is seen of a pass, it is
  a step of `Poisson(1 / T)`, which draws each unit with the same coins.

  Args:
    entry: the steps.
    level: the privacy unit.
    condition_on_step: take the step in which a pass uses a primary unit as
      known, which may suit the units inside it better: a pass then is one step
      that draws this primary unit for certain.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  release = entry.release
  units = sensitivity.unit_profiles(release, level)
  stage = release.plan.stages[0]
  if not isinstance(stage, plan_lib.RandomAllocation):
    return (Phase(units, int(entry.steps)),)
  tree = [k for k in units if isinstance(k, amplification.Amplification)]
  assert len(tree) == len(units)  # Soundness: nothing recurs within a pass.
  passes, rest = divmod(int(entry.steps), stage.steps)
  if stage.steps == 1:
    return (Phase(units, passes),)
  alone: Phases = ()
  if rest == 1:
    alone, rest = (Phase(units, 1),), 0
  inside = release.hierarchy.level_index(level) > 0
  if inside and condition_on_step:
    known = tuple(
        dataclasses.replace(k, outer_rates=(1.0, *k.outer_rates[1:]))
        for k in tree
    )
    times = passes + (rest > 0)
    return alone + ((Phase(known, times),) if times else ())
  longest = max(
      k.tail[1]  # The unit's own sensitivity, of each kind of primary unit.
      for k in sensitivity.unit_profiles(release, release.levels[0])
      if k.tail is not None
  )

  def pass_of(observed: int) -> unit_profile.UnitProfiles:
    whole = allocation.Allocation(stage.steps, observed, longest)
    if not inside:
      return (whole,)
    return tuple(dict.fromkeys(
        nested_allocation.NestedAllocation(
            whole=whole,
            parent_rate=math.prod(k.outer_rates[1:]),
            rate=k.rate,
        )
        for k in tree
    ))

  parts = ((stage.steps, passes), (rest, int(rest > 0)))
  return alone + tuple(
      Phase(pass_of(observed), times) for observed, times in parts if times
  )


def routes(entries: Sequence[Entry], level: str) -> tuple[Phases, ...]:
  """List the ways to compose what a level costs; the best of them holds.

  Returns:
    Phases of the whole run, one for every way; () where private data are
    released without noise.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level.
  """
  if not all(e.release.mechanism.guaranteed for e in entries):
    for e in entries:
      plan_lib.check_level(e.release, level)
    return ()
  result = [_merged(entries, level, condition_on_step=False)]
  if entries[0].release.hierarchy.level_index(level) > 0 and any(
      isinstance(e.release.plan.stages[0], plan_lib.RandomAllocation)
      for e in entries
  ):
    result.append(_merged(entries, level, condition_on_step=True))
  return tuple(result)


def apart(run: Phases) -> tuple[Phases, ...]:
  """Split a run by the kinds of units of its level; the largest of them holds.

  A unit is of one kind in all steps, so that what is composed for one kind
  needs to cover no other. Where several phases have several kinds, nothing here
  says which belong together: such a run is left whole.

  Returns:
    A run for each kind, the kinds that likely need most first.
  """
  several = [i for i, phase in enumerate(run) if len(phase.unit_profiles) > 1]
  if len(several) != 1:
    return (run,)
  (i,) = several
  if len(run[i].unit_profiles) > _MAX_APART:
    return (run,)
  units = sorted(
      run[i].unit_profiles,
      key=lambda unit: -math.prod(unit.tail) if unit.tail else -math.inf,
  )
  return tuple(
      (*run[:i], Phase((unit,), run[i].times), *run[i + 1 :]) for unit in units
  )


# Profiles that can be replaced by one that asks for less of a step.
_WITH_MOST = (
    random_count.RandomCount, averaged.Averaged, recurrence.Recurrence
)


def at_most(run: Phases) -> Phases | None:
  """The run if units always drew their largest number; None if nothing changes.

  It costs more, but asks for no more of a step than the chance that it draws a
  unit: see `matched`.
  """
  phases = tuple(
      Phase(
          tuple(
              unit.at_most if isinstance(unit, _WITH_MOST) else unit
              for unit in phase.unit_profiles
          ),
          phase.times,
      )
      for phase in run
  )
  return None if phases == run else phases


def families(run: Phases) -> int:
  """In how many families of a step a unit of the run can lie, at most."""
  return max((
      unit.places
      for phase in run
      for unit in phase.unit_profiles
      if isinstance(unit, recurrence.Recurrence)
  ), default=1)


def sampler_error(entries: Sequence[Entry]) -> plan_lib.SamplerError:
  """How far what a run draws is from its plans, all steps together."""
  return sum(
      (
          plan_lib.sampling_error(e.release.hierarchy, e.release.plan).times(
              int(e.steps)
          )
          for e in entries
      ),
      start=plan_lib.EXACT,
  )


# Profiles that ask for no more of a step than the chance that it draws a unit.
_ON_A_PATH = (
    amplification.Amplification,
    allocation.Allocation,
    nested_allocation.NestedAllocation,
    laplace.Laplace,
)


def matched(
    error: plan_lib.SamplerError, runs: Sequence[Phases]
) -> plan_lib.SamplerError:
  """The error as it is to what is composed.

  What is unmatched is known for a unit that lies on one path of each step, not
  where a profile counts what is drawn below it, or in how many places it is.
  """
  if all(
      isinstance(unit, _ON_A_PATH)
      for run in runs
      for phase in run
      for unit in phase.unit_profiles
  ):
    return error
  return dataclasses.replace(error, unmatched=math.inf)


def _merged(
    entries: Sequence[Entry], level: str, *, condition_on_step: bool
) -> Phases:
  """The phases of all entries, equal ones added up."""
  times: dict[unit_profile.UnitProfiles, int] = {}
  for entry in entries:
    for phase in phases_of(entry, level, condition_on_step=condition_on_step):
      units = phase.unit_profiles
      times[units] = times.get(units, 0) + phase.times
  return tuple(Phase(units, count) for units, count in times.items())
