"""A run as phases: what is composed, and how often."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import amplification
from episodic_dp.accounting import distances
from episodic_dp.accounting import profile


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


@dataclasses.dataclass(frozen=True)
class Phase:
  """Equal steps (or passes) of a run, seen from one level.

  Attributes:
    kinds: the kinds of units of the level; the profile is their maximum.
    times: how often it is composed, at least 1.
  """

  kinds: profile.Kinds
  times: int


Phases = tuple[Phase, ...]


def phases_of(entry: Entry, level: str) -> Phases:
  """What the steps of one entry compose to.

  With `RandomAllocation(T)` a pass of T steps is one "step" for the primary
  units, and the last pass may have been cut short. For the levels below, the
  step that a pass uses the primary unit in is taken as revealed: then a pass is
  one step that draws this primary unit for certain.

  Raises:
    UnsoundPlanError: no guarantee is proved for the combination.
    PlanError: plan, hierarchy and mechanism disagree, or there is no noise.
  """
  kinds = distances.kinds(
      entry.hierarchy, entry.plan, entry.mechanism, level
  )
  return (Phase(kinds, int(entry.steps)),)


@dataclasses.dataclass(frozen=True)
class Route:
  """One way to a guarantee.

  Attributes:
    phases: what is composed; None where nothing is noised.
    there_and_back: the phases are those of the primary units, and a unit inside
      one is protected because a run with the unit is close to the run without
      its primary unit, and that one to the run where the primary unit is back
      without the unit: (e1, d1) and (e2, d2) add up to
      (e1 + e2, d1 + exp(e1) d2).
  """

  phases: Phases | None
  there_and_back: bool = False

  @property
  def sentence(self) -> str:
    """What an assumption list should say of it."""
    if not self.there_and_back:
      return ""
    return (
        "The bound goes through the primary unit: it is taken out with the unit"
        " inside it and put back without."
    )

  def epsilons(self, accountant: Any, delta: float, error: float):
    """Direction -> epsilon at delta; `error` is the run's sampling error."""
    phases = self.phases
    if phases is None:
      return dict.fromkeys(amplification.DIRECTIONS, math.inf)
    if not self.there_and_back:
      return {
          d: accountant.epsilon(phases, d, delta, error)
          for d in amplification.DIRECTIONS
      }
    out = accountant.epsilon(phases, "remove", delta / 2, error)
    left = delta / 2 * math.exp(-min(out, 700.0))
    back = math.inf
    if left > 0 and math.isfinite(out):
      back = accountant.epsilon(phases, "add", left, error)
    return dict.fromkeys(amplification.DIRECTIONS, out + back)

  def deltas(self, accountant: Any, epsilon: float, error: float):
    """Direction -> delta at epsilon."""
    phases = self.phases
    if phases is None:
      return dict.fromkeys(amplification.DIRECTIONS, 1.0)
    if not self.there_and_back:
      return {
          d: accountant.delta(phases, d, epsilon, error)
          for d in amplification.DIRECTIONS
      }
    value = 1.0
    for share in (0.4, 0.5, 0.6):  # Any split of epsilon is valid.
      out = accountant.delta(phases, "remove", share * epsilon, error)
      back = accountant.delta(phases, "add", (1 - share) * epsilon, error)
      value = min(value, out + math.exp(min(share * epsilon, 700.0)) * back)
    return dict.fromkeys(amplification.DIRECTIONS, value)


def routes(entries: Sequence[Entry], level: str) -> tuple[Route, ...]:
  """Every way to a guarantee of the level; the best of them holds.

  Raises:
    UnsoundPlanError: there is none.
    PlanError: plan, hierarchy and mechanism disagree.
  """
  silent = [e for e in entries if e.mechanism.noise_multiplier == 0]
  if silent:
    for e in entries:
      distances.refuse_unsound(e.hierarchy, e.plan, e.mechanism, level)
    return (Route(None),)
  result = [Route(_merged(entries, level))]
  return tuple(result)


def _merged(entries: Sequence[Entry], level: str) -> Phases:
  """The phases of all entries, equal ones added up."""
  times: dict[profile.Kinds, int] = {}
  for entry in entries:
    for phase in phases_of(entry, level):
      times[phase.kinds] = times.get(phase.kinds, 0) + phase.times
  return tuple(Phase(kinds, count) for kinds, count in times.items())
