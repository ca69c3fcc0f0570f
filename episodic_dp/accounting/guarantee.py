"""From a release and its steps to guarantees."""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import assumptions
from episodic_dp.accounting import checks
from episodic_dp.accounting import foreign as foreign_lib
from episodic_dp.accounting import group_privacy
from episodic_dp.accounting import queries
from episodic_dp.accounting import replace_one
from episodic_dp.accounting import run_phases
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import phases as phases_lib
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.lower_bounds import bound
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.report import Guarantee

Entry = run_phases.Entry
AnyAccountant = str | base.Accountant


def guarantee(
    release: plan_lib.Release,
    *,
    steps: int,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: AnyAccountant = "pld",
    neighbours: checks.Relation = "add-or-remove",
    group: int = 1,
) -> Guarantee:
  """Compute the guarantee of one level: both directions, sampler error charged.

  Args:
    release: what a step samples and releases; epsilon is infinite without
      noise, and with clipping="percentile_window".
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to be told epsilon, or None.
    epsilon: at least 0, to be told delta, or None.
    accountant: "pld" (the tightest), "rdp", "moments" or an `Accountant`.
    neighbours: "add-or-remove" one unit, or "replace-one": the data of one
      unit are others, and all sizes stay.
    group: how many units are added or removed together; see `group_privacy`.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: a value is out of range, or there is no such level.

  Examples:
    >>> import math
    >>> from episodic_dp import accounting, plan
    >>> r = plan.Release(
    ...     plan.Hierarchy.regular((60_000,), levels=("image",)),
    ...     plan.SamplingPlan((plan.Poisson(256 / 60_000),)),
    ...     plan.Mechanism(clip_unit="image", noise_multiplier=1.1),
    ... )
    >>> g = accounting.guarantee(r, steps=14_000, delta=1e-5, level="image")
    >>> math.ceil(1000 * g.epsilon) / 1000  # An epsilon is rounded up.
    2.377
  """
  return compose_guarantee(
      (Entry(release, steps),),
      level=level,
      delta=delta,
      epsilon=epsilon,
      accountant=accountant,
      neighbours=neighbours,
      group=group,
  )


def guarantees(
    release: plan_lib.Release,
    *,
    steps: int,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: AnyAccountant = "pld",
    neighbours: checks.Relation = "add-or-remove",
    group: int = 1,
) -> dict[str, Guarantee]:
  """Compute level -> Guarantee for every level that has one, in tree order.

  Raises:
    UnsoundPlanError: no level has one; the text is the first level's.

  Examples:
    >>> from episodic_dp import accounting, plan
    >>> r = plan.Release(
    ...     plan.Hierarchy.regular((1000, 20), levels=("user", "example")),
    ...     plan.SamplingPlan((plan.Poisson(0.05), plan.FixedSize(4))),
    ...     plan.Mechanism(clip_unit="user", noise_multiplier=2.0),
    ... )
    >>> for level, g in accounting.guarantees(r, steps=100, delta=1e-5).items():
    ...   print(str(g).split(" (")[0])
    user: epsilon 1.098 at delta 1e-05
    example: epsilon 0.3456 at delta 1e-05
  """
  return compose_guarantees(
      (Entry(release, steps),),
      delta=delta,
      epsilon=epsilon,
      accountant=accountant,
      neighbours=neighbours,
      group=group,
  )


def compose_guarantees(
    entries: Sequence[Entry],
    foreign: Sequence[queries.Foreign] = (),
    **options: Any,
) -> dict[str, Guarantee]:
  """Call `compose_guarantee` for every level that has one, in tree order."""
  found = {}
  first: plan_lib.UnsoundPlanError | None = None
  for level in foreign_lib.levels_of(entries, foreign):
    try:
      found[level] = compose_guarantee(entries, foreign, level=level, **options)
    except plan_lib.UnsoundPlanError as e:
      first = first or e
  if not found and first is not None:
    raise first
  return found


def compose_guarantee(
    entries: Sequence[Entry],
    foreign: Sequence[queries.Foreign] = (),
    *,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: AnyAccountant = "pld",
    neighbours: checks.Relation = "add-or-remove",
    group: int = 1,
) -> Guarantee:
  """Compute the guarantee of several parts of a run; see `guarantee`.

  Args:
    entries: what was run, in order; all with the level.
    foreign: what else was released about the same units.
    level: the privacy unit.
    delta: in (0, 1), to be told epsilon, or None.
    epsilon: at least 0, to be told delta, or None.
    accountant: how steps are composed.
    neighbours: the relation.
    group: how many units are added or removed together.
  """
  chosen = foreign_lib.accountant_for(registry.get(accountant), foreign)
  group_privacy.check(group)
  for steps in [entry.steps for entry in entries] or [1]:
    checks.check(steps, delta, epsilon)
  replaced = checks.replaced(neighbours)
  stated = _stated(entries, foreign, level, replaced=replaced)
  stated["question"] = bound.Question(
      tuple(entries), level, delta, epsilon, replaced
  )
  error = run_phases.sampler_error(entries)
  error += foreign_lib.sampler_error(foreign)
  levels = foreign_lib.levels_of(entries, foreign)
  runs = foreign_lib.routes(entries, foreign, level, levels)
  if replaced:
    if group > 1:
      raise plan_lib.UnsoundPlanError(
          f"no guarantee for {group} units that are replaced together is"
          " computed: use neighbours='add-or-remove'"
      )
    value, name = replace_one.best(
        chosen, runs, () if foreign else entries, level, error,
        delta=delta, epsilon=epsilon,
    )
    at = value if epsilon is None else float(epsilon)
    return Guarantee(
        epsilon=at,
        delta=float(delta) if delta is not None else value,
        neighbours=f"replace one {level}",
        direction="both",
        accountant=name,
        epsilons=dict.fromkeys(amplification.DIRECTIONS, at),
        **stated,
    )
  if group == 1:
    values, units = _best(chosen, runs, delta, epsilon, error)
  else:
    values = group_privacy.best(
        chosen, entries, foreign, level, group, delta, epsilon, error
    )
    units = _units(runs)
  direction = max(values, key=lambda d: values[d])
  if group == 1 and runs and delta and math.isinf(values[direction]):
    why = _why_none(chosen, runs[0], float(delta), error)
    stated["caveat"] = (stated["caveat"] + why).strip()
  return Guarantee(
      epsilon=values[direction] if epsilon is None else float(epsilon),
      delta=float(delta) if delta is not None else values[direction],
      neighbours=group_privacy.neighbours(level, group),
      direction=direction,
      accountant=chosen.name,
      epsilons=(
          values
          if epsilon is None
          else dict.fromkeys(values, float(epsilon))
      ),
      unit_profiles=units,
      **stated,
  )


def _stated(
    entries: Sequence[Entry],
    foreign: Sequence[queries.Foreign],
    level: str,
    *,
    replaced: bool,
) -> dict[str, Any]:
  """What a guarantee says beside its numbers: fields of `Guarantee`."""
  releases = [e.release for e in entries]
  caveats = [c for r in releases for c in assumptions.caveats(r, level)]
  sentences = [
      sentence
      for r in releases
      for sentence in assumptions.assumptions(r, level, replaced=replaced)
  ]
  sentences += foreign_lib.sentences(foreign, level)
  rates = [sensitivity.inclusion_rate(r, level) for r in releases]
  return dict(
      level=level,
      steps=sum(int(e.steps) for e in entries),
      others=foreign_lib.counted(foreign),
      # All else reads everyone.
      inclusion_rate=1.0 if foreign else max(rates),
      caveat=" ".join(dict.fromkeys(caveats)),
      assumptions=tuple(dict.fromkeys(sentences)),
  )


def _best(
    accountant: base.Accountant,
    runs: Sequence[phases_lib.Phases],
    delta: float | None,
    epsilon: float | None,
    error: plan_lib.SamplerError,
) -> tuple[dict[str, float], unit_profile.UnitProfiles]:
  """The least bound among the ways to compose a run.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon), and the profiles that
    were composed; infinity (or 1) and () where there is no way.
  """
  nothing = math.inf if epsilon is None else 1.0
  values: dict[str, float] = dict.fromkeys(amplification.DIRECTIONS, nothing)
  units: unit_profile.UnitProfiles = ()
  tried = [(run, run_phases.matched(error, (run,))) for run in runs]
  for run, charged in tried:
    found: dict[str, float] = {
        d: _largest(accountant, run, d, delta, epsilon, charged)
        for d in amplification.DIRECTIONS
    }
    if not units or max(found.values()) < max(values.values()):
      values = found
      units = _units((run,))
    simpler = run_phases.at_most(run)
    if simpler is not None and max(found.values()) >= nothing:
      # What is unmatched is that of one family.
      unmatched = run_phases.families(run) * error.unmatched
      several = dataclasses.replace(error, unmatched=unmatched)
      tried.append((simpler, run_phases.matched(several, (simpler,))))
  return values, units


def _largest(
    accountant: base.Accountant,
    run: phases_lib.Phases,
    direction: amplification.Direction,
    delta: float | None,
    epsilon: float | None,
    error: plan_lib.SamplerError,
) -> float:
  """Epsilon at delta, or delta at epsilon, of the kind of units with most.

  Of the others no more has to be known than that they do not need more.
  """
  value = 0.0
  for part in run_phases.apart(run):
    enough = (1 - 1e-6) * value
    if delta is not None:
      found = accountant.epsilon(part, direction, delta, error, enough)
    else:
      found = accountant.delta(
          part, direction, float(epsilon or 0), error, enough
      )
    value = max(value, found)
  return value


def _units(runs: Sequence[phases_lib.Phases]) -> unit_profile.UnitProfiles:
  """The kinds of units of the first way to compose a run, () for none."""
  return tuple(dict.fromkeys(
      unit for run in runs[:1] for phase in run for unit in phase.unit_profiles
  ))


def _why_none(
    accountant: base.Accountant,
    run: phases_lib.Phases,
    delta: float,
    error: plan_lib.SamplerError,
) -> str:
  """Why a run with noise has no finite epsilon, in a sentence, or ""."""
  without = max(
      accountant.epsilon(run, d, delta) for d in amplification.DIRECTIONS
  )
  if math.isinf(without):
    return ""
  return (
      f" The drawn sample is within {error.variation:.1g} of the plan's, in"
      f" total variation, and e^{without:.4g} times that is more than delta: so"
      " large an epsilon is not stated."
  )


def epsilon(
    q: float,
    p: float,
    distances: float | Sequence[float],  # pylint: disable=redefined-outer-name
    steps: int,
    delta: float,
    *,
    direction: amplification.Direction | None = None,
    accountant: AnyAccountant = "pld",
) -> float:
  """Compute epsilon of one kind of unit from its rates and distances.

  Args:
    q: the rate at which the unit's parent is chosen.
    p: the unit's own rate inside its parent.
    distances: (d_a, d_b) in noise standard deviations: how far the released sum
      is from both others when the parent is not chosen, and with the unit
      against without it. One number stands for both.
    steps: T, at least 1.
    delta: in (0, 1).
    direction: "remove" or "add"; None for the larger.
    accountant: how steps are composed.

  Raises:
    PlanError: a value is out of range.

  Examples:
    >>> import math
    >>> from episodic_dp import accounting
    >>> found = accounting.epsilon(
    ...     q=0.004, p=0.2, distances=(1.0, 2.0), steps=250, delta=1e-6
    ... )
    >>> math.ceil(10_000 * found) / 10_000
    0.1094
  """
  checks.check(steps, delta, None)
  pair = tuple(np.atleast_1d(np.asarray(distances, float)).tolist())
  if len(pair) not in (1, 2) or not all(d >= 0 for d in pair):
    raise plan_lib.PlanError(
        f"distances {distances!r} must be one number or (d_a, d_b), not"
        " negative"
    )
  for name, rate in (("q", q), ("p", p)):
    if not 0 <= rate <= 1:
      raise plan_lib.PlanError(f"{name}={rate!r} must lie between 0 and 1")
  if not all(map(math.isfinite, pair)):
    return math.inf if q * p > 0 else 0.0
  kind = amplification.Amplification(
      (float(q),), float(p), (pair[0],), pair[-1]
  )
  if direction not in (None, *amplification.DIRECTIONS):
    raise plan_lib.PlanError(
        f"direction {direction!r} must be 'remove', 'add' or None"
    )
  run = (phases_lib.Phase((kind,), int(steps)),)
  chosen = registry.get(accountant)
  return max(
      chosen.epsilon(run, d, float(delta))
      for d in ([direction] if direction else amplification.DIRECTIONS)
  )


def epsilon_curve(
    release: plan_lib.Release,
    *,
    steps: Sequence[int],
    delta: float,
    level: str,
    accountant: AnyAccountant = "pld",
) -> list[float]:
  """Compute epsilon after each number of steps; it never falls with them."""
  rising = sorted(set(map(int, steps)))
  values = [
      guarantee(
          release, steps=t, delta=delta, level=level, accountant=accountant
      ).epsilon
      for t in rising
  ]
  # More steps never cost less, so a smaller value later on is valid before.
  values = np.minimum.accumulate(values[::-1])[::-1].tolist()
  by_steps = dict(zip(rising, values))
  return [by_steps[int(t)] for t in steps]
