"""What queries and selections cost, beside the runs on the same people.

`queries` says what they are. Each becomes a phase of the run that is composed:
a Gaussian query is a Gaussian step, `profiles.laplace` and `private_selection`
have the others. Loss distributions compose all of them; where a selection is
among them, Renyi moments of everything are asked too, and the less is told.
"""

from collections.abc import Sequence
import dataclasses
import math

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import assumptions
from episodic_dp.accounting import private_selection
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants.phases import Phase
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import laplace
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.queries import Foreign
from episodic_dp.accounting.queries import LaplaceQuery
from episodic_dp.accounting.queries import Selection

ASSUMED = (
    "A level means the same units in every run and query: one unit is in or out"
    " of all of them. Each draws its sampling and its noise by itself, and"
    " whatever private data decided is among what is accounted here."
)


def levels_of(
    entries: Sequence[run_phases.Entry], foreign: Sequence[Foreign]
) -> tuple[str, ...]:
  """The levels of a study: of its first run, or those its queries name."""
  for entry in entries:
    return entry.release.levels
  named: list[str] = []
  for mechanism in foreign:
    if isinstance(mechanism, Selection):
      for part in mechanism.candidates:
        named += levels_of(part.entries, part.foreign)
    else:
      named.append(mechanism.level)
  return tuple(dict.fromkeys(named))


def counted(foreign: Sequence[Foreign]) -> str:
  """How many there are of each, such as "2 queries, 1 selection", or ""."""
  chosen = sum(m.times for m in foreign if isinstance(m, Selection))
  asked = sum(m.times for m in foreign) - chosen
  numbers = ((asked, "query", "queries"), (chosen, "selection", "selections"))
  return ", ".join(f"{n} {one if n == 1 else more}" for n, one, more in numbers
                   if n)


def phases_of(
    mechanism: Foreign, level: str, levels: Sequence[str]
) -> Phases | None:
  """What a mechanism is to a unit of a level; None for no guarantee at all.

  Args:
    mechanism: that was used.
    level: the privacy unit.
    levels: of the study, outermost first.

  Raises:
    UnsoundPlanError: it has no guarantee for the level.
  """
  unit: unit_profile.UnitProfile
  if isinstance(mechanism, Selection):
    if any(
        level not in entry.release.levels
        for part in mechanism.candidates
        for entry in part.entries
    ):
      raise plan_lib.UnsoundPlanError(
          f"'{level}' is not a level of every candidate of a selection"
      )
    ways = tuple(
        routes(part.entries, part.foreign, level, levels)
        for part in mechanism.candidates
    )
    if not all(ways):
      return None
    unit = private_selection.PrivateSelection(ways, mechanism.runs)
  elif isinstance(mechanism, LaplaceQuery):
    unit = laplace.Laplace(mechanism.distance(level, levels))
  else:
    unit = amplification.Amplification(
        (), 1.0, (), mechanism.distance(level, levels)
    )
  return (Phase((unit,), mechanism.times),)


def group_phases(
    foreign: Sequence[Foreign], level: str, levels: Sequence[str], group: int
) -> Phases | None:
  """What a group of units is to queries; None where a selection is among them.

  k units one after the other move a sum by k times as much.
  """
  result: Phases = ()
  for mechanism in foreign:
    if isinstance(mechanism, Selection):
      return None
    farther = dataclasses.replace(
        mechanism, sensitivity=group * mechanism.sensitivity
    )
    result += phases_of(farther, level, levels) or ()
  return result


def routes(
    entries: Sequence[run_phases.Entry],
    foreign: Sequence[Foreign],
    level: str,
    levels: Sequence[str],
) -> tuple[Phases, ...]:
  """The ways to compose runs and all else; () where one has no noise.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level.
  """
  runs = run_phases.routes(entries, level) if entries else ((),)
  if not foreign:
    return runs
  if any(e.release.hierarchy.copies for e in entries) and any(
      not isinstance(m, Selection) and m.level != level for m in foreign
  ):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{level}': its records sit under several units"
        " (copies=True), and a query of another level does not say how many of"
        f" them it moves; state its sensitivity at level '{level}'"
    )
  more: Phases = ()
  for mechanism in foreign:
    found = phases_of(mechanism, level, levels)
    if found is None:
      return ()
    more += found
  return tuple((*run, *more) for run in runs)


def sampler_error(foreign: Sequence[Foreign]) -> plan_lib.SamplerError:
  """How far what selections drew is from the plans of their candidates.

  E K runs are made, each of which may be off by its total variation; no bound
  by ratios is known for a number of runs that has none.
  """
  variation = sum(
      mechanism.times
      * mechanism.runs.mean
      * max(
          run_phases.sampler_error(part.entries).variation
          for part in mechanism.candidates
      )
      for mechanism in foreign
      if isinstance(mechanism, Selection)
  )
  if not variation:
    return plan_lib.SamplerError()
  return plan_lib.SamplerError(
      variation=variation, tails=variation, unmatched=math.inf
  )


def accountant_for(
    chosen: base.Accountant, foreign: Sequence[Foreign]
) -> base.Accountant:
  """The accountant, with moments beside it where a selection is composed."""
  if isinstance(chosen, pld.PLD) and any(
      isinstance(mechanism, Selection) for mechanism in foreign
  ):
    return _WithMoments()
  return chosen


@dataclasses.dataclass(frozen=True)
class _WithMoments(base.Accountant):
  """Loss distributions or Renyi moments of everything, whichever is less."""

  name = "pld"

  def curve(
      self,
      phases: Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> curves.Curve:
    """See `base.Accountant`."""
    return curves.Least((
        rdp.RDP().curve(phases, direction),
        pld.PLD().curve(
            phases, direction, delta=delta, epsilon=epsilon, enough=enough
        ),
    ))


def sentences(foreign: Sequence[Foreign], level: str) -> tuple[str, ...]:
  """What the guarantee of a level assumes of these mechanisms."""
  if not foreign:
    return ()
  result = [ASSUMED]
  for mechanism in foreign:
    if isinstance(mechanism, Selection):
      result += _selected(mechanism, level)
    else:
      noise = "Laplace" if isinstance(mechanism, LaplaceQuery) else "Gaussian"
      norm = "l1" if isinstance(mechanism, LaplaceQuery) else "l2"
      often = f", {mechanism.times} times" if mechanism.times > 1 else ""
      result.append(
          f"A query adds {noise} noise of scale {mechanism.noise_scale:g}"
          f"{often}; adding or removing one {mechanism.level} moves it by at"
          f" most {mechanism.sensitivity:g} in {norm} norm, whatever the data."
      )
  return tuple(dict.fromkeys(result))


def _selected(selection: Selection, level: str) -> list[str]:
  own = [
      sentence
      for part in selection.candidates
      for sentence in (
          *(
              s
              for e in part.entries
              for s in assumptions.assumptions(e.release, level)
          ),
          *sentences(part.foreign, level),
      )
  ]
  return [
      "Of a random number of runs, with the mean"
      f" {selection.runs.mean:.4g}, only the best is released; their number and"
      " all others stay secret. The order that says which is best is fixed"
      " beforehand and reads a run's own output and public data only.",
      *own,
  ]
