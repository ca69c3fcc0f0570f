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
from episodic_dp.accounting.profiles import nested_allocation
from episodic_dp.accounting.profiles import unit_profile


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A part of a run whose steps are all alike.

  Attributes:
    hierarchy: what was sampled.
    plan: how.
    mechanism: what was released.
    steps: how often, at least 1.
  """

  hierarchy: plan_lib.Hierarchy
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  steps: int


def phases_of(entry: Entry, level: str, *, revealed: bool = False) -> Phases:
  """What the steps of one entry compose to.

  With `RandomAllocation(T)` a pass of T steps is one "step", and the last pass
  may have been cut short.

  Args:
    entry: the steps.
    level: the privacy unit.
    revealed: take the step in which a pass uses a primary unit as known, which
      may suit the units inside it better: a pass then is one step that draws
      this primary unit for certain.

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: plan, hierarchy and mechanism disagree, or there is no noise.
  """
  kinds = sensitivity.kinds(
      entry.hierarchy, entry.plan, entry.mechanism, level
  )
  stage = entry.plan.stages[0]
  if not isinstance(stage, plan_lib.RandomAllocation):
    return (Phase(kinds, int(entry.steps)),)
  tree = [k for k in kinds if isinstance(k, amplification.Amplification)]
  if len(tree) < len(kinds):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{level}': no proof covers records that recur"
        f" under {stage}; use a Poisson first stage"
    )
  passes, rest = divmod(int(entry.steps), stage.steps)
  inside = entry.hierarchy.level_index(level) > 0
  if inside and revealed:
    known = tuple(
        dataclasses.replace(k, outer_rates=(1.0, *k.outer_rates[1:]))
        for k in tree
    )
    return (Phase(known, passes + (rest > 0)),)
  primary = entry.hierarchy.levels[0]
  longest = max(
      k.tail[1]  # The own distance, of each kind of primary unit.
      for k in sensitivity.kinds(
          entry.hierarchy, entry.plan, entry.mechanism, primary
      )
      if k.tail is not None
  )

  def pass_of(observed: int) -> unit_profile.Kinds:
    whole = allocation.Allocation(stage.steps, observed, longest)
    if not inside:
      return (whole,)
    return tuple(dict.fromkeys(
        nested_allocation.Exchange(
            whole=whole,
            parent_rate=math.prod(k.outer_rates[1:]),
            rate=k.rate,
        )
        for k in tree
    ))

  parts = ((stage.steps, passes), (rest, int(rest > 0)))
  return tuple(
      Phase(pass_of(observed), times) for observed, times in parts if times
  )


def routes(entries: Sequence[Entry], level: str) -> tuple[Phases, ...]:
  """Every way to compose what the level costs; the best of them holds.

  Returns:
    Phases of the whole run, one for every way; () where private data are
    released without noise.

  Raises:
    UnsoundPlanError: no guarantee is proved.
    PlanError: plan, hierarchy and mechanism disagree.
  """
  if not all(e.mechanism.guaranteed for e in entries):
    for e in entries:
      sensitivity.refuse_unsound(e.hierarchy, e.plan, e.mechanism, level)
    return ()
  result = [_merged(entries, level, revealed=False)]
  if entries[0].hierarchy.level_index(level) > 0 and any(
      isinstance(e.plan.stages[0], plan_lib.RandomAllocation) for e in entries
  ):
    result.append(_merged(entries, level, revealed=True))
  return tuple(result)


def _merged(
    entries: Sequence[Entry], level: str, *, revealed: bool
) -> Phases:
  """The phases of all entries, equal ones added up."""
  times: dict[unit_profile.Kinds, int] = {}
  for entry in entries:
    for phase in phases_of(entry, level, revealed=revealed):
      times[phase.kinds] = times.get(phase.kinds, 0) + phase.times
  return tuple(Phase(kinds, count) for kinds, count in times.items())
