"""Guarantees of a release and its steps."""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import exchange
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.report import Guarantee
from episodic_dp.plan import sampler_error

Entry = sensitivity.Entry
AnyAccountant = str | base.Accountant

_ACCOUNTANTS: dict[str, base.Accountant] = {
    "pld": pld.PLD(), "rdp": moments.RDP(), "moments": moments.Moments()
}
ACCOUNTANTS = tuple(_ACCOUNTANTS)

# More steps than any run takes; larger numbers would exceed exact arithmetic.
MAX_STEPS = 10**12
# A larger group is assumed to be a mistake.
_MAX_GROUP = 10**6
# Relative spacing of two guesses of a group's epsilon, and the smallest delta
# of one unit to try.
_SLACK, _LEAST_SHARE = 1e-3, 1e-290
# Types of units of a tree that are sampled anew in every step.
_TREE = (
    amplification.Amplification, random_count.RandomCount, random_count.Averaged
)
# Types of units whose profiles count clip units: see `_charged`.
_COUNTING = (
    random_count.RandomCount, random_count.Averaged, recurrence.Recurrence
)
# More types of units than this are composed together: looser, but faster.
_MAX_APART = 8
# Tolerance of the curve for replacing a unit, which has only one direction.
_PRECISE = 1e-6


def guarantee(
    release: plan_lib.Release,
    *,
    steps: int,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: AnyAccountant = "pld",
    neighbours: report.Relation = "add-or-remove",
    group: int = 1,
) -> Guarantee:
  """Compute the guarantee of one level: both directions, sampler error charged.

  Args:
    release: the release of a step. Epsilon is infinite without noise, and with
      clipping="percentile_window".
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    accountant: "pld" (the tightest), "rdp", "moments" or an `Accountant`.
    neighbours: "add-or-remove" for one unit that is present or absent;
      "replace-one" for one unit with other data, while all sizes stay.
    group: k, the number of units that are added, removed or replaced together.

  Returns:
    The guarantee, `Guarantee`, with its assumptions.

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
    neighbours: report.Relation = "add-or-remove",
    group: int = 1,
) -> dict[str, Guarantee]:
  """Compute level -> Guarantee for every level that has one, in tree order.

  Args:
    release: the release of a step.
    steps: T, at least 1.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    accountant: as in `guarantee`.
    neighbours: as in `guarantee`.
    group: as in `guarantee`.

  Raises:
    UnsoundPlanError: no level has a guarantee; the message is the first
      level's.

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


def get_accountant(accountant: AnyAccountant) -> base.Accountant:
  """Return the accountant of a name in `ACCOUNTANTS`; pass instances through.

  Raises:
    PlanError: an unknown name.
  """
  if isinstance(accountant, base.Accountant):
    return accountant
  return _ACCOUNTANTS[_validate.one_of("accountant", accountant, ACCOUNTANTS)]


def check(steps: int, delta: float | None, epsilon: float | None) -> None:
  """Raise PlanError unless steps and one of delta and epsilon are in range."""
  if _validate.count("steps", steps, 1) > MAX_STEPS:
    raise _validate.refusal("steps", steps, f"at most {MAX_STEPS}")
  if (delta is None) == (epsilon is None):
    raise plan_lib.PlanError(
        f"delta={delta!r} and epsilon={epsilon!r}: give one of them, to compute"
        " the other"
    )
  if delta is not None:
    _validate.fraction("delta", delta)
  if epsilon is not None:
    _validate.positive("epsilon", epsilon, zero=True)


def compose_guarantees(
    entries: Sequence[Entry],
    **options: Any,
) -> dict[str, Guarantee]:
  """Call `compose_guarantee` for every level that has one, in tree order."""
  found = {}
  first: plan_lib.UnsoundPlanError | None = None
  for level in entries[0].release.levels:
    try:
      found[level] = compose_guarantee(entries, level=level, **options)
    except plan_lib.UnsoundPlanError as e:
      first = first or e
  if not found and first is not None:
    raise first
  return found


def compose_guarantee(
    entries: Sequence[Entry],
    *,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: AnyAccountant = "pld",
    neighbours: report.Relation = "add-or-remove",
    group: int = 1,
) -> Guarantee:
  """Compute the guarantee of several parts of a run; see `guarantee`.

  Args:
    entries: the parts in order; all of them have the level.
    level: the privacy unit.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    accountant: composes the steps.
    neighbours: the relation.
    group: number of units that are added or removed together.
  """
  chosen = get_accountant(accountant)
  if _validate.count("group", group, 1) > _MAX_GROUP:
    raise _validate.refusal("group", group, f"at most {_MAX_GROUP}")
  for entry in entries:
    check(entry.steps, delta, epsilon)
  replaced = report.is_replaced(neighbours)
  releases = [e.release for e in entries]
  runs = sensitivity.routes(entries, level)
  inclusion = max(sensitivity.inclusion_rate(r, level) for r in releases)
  error = sensitivity.sampler_error(entries)
  relation = "replace" if replaced else "add or remove"
  if group == 1:
    values, name = _of_one(
        chosen, entries, level, replaced, delta, epsilon, error
    )
    relation += f" one {level}"
  else:
    values, name = _of_group(
        chosen, entries, level, replaced, delta, epsilon, group
    )
    relation += f" up to {group} units of level '{level}' together"
  direction = "both" if replaced else max(values, key=lambda d: values[d])
  largest = max(values.values())
  caveats = [c for r in releases for c in report.caveats(r, level)]
  if runs and group == 1 and delta and math.isinf(largest):
    caveats.append(
        f"The drawn sample is within {error.variation:.1g} of the plan's, in"
        " total variation, which takes all of delta at any epsilon."
    )
  assumed = [
      sentence
      for r in releases
      for sentence in report.assumptions(r, level, replaced=replaced)
  ]
  return Guarantee(
      epsilon=largest if epsilon is None else float(epsilon),
      delta=largest if delta is None else float(delta),
      level=level,
      neighbours=relation,
      direction=direction,
      accountant=name,
      epsilons=(
          values if epsilon is None else dict.fromkeys(values, float(epsilon))
      ),
      steps=sum(int(e.steps) for e in entries),
      inclusion_rate=inclusion,
      caveat=" ".join(dict.fromkeys(caveats)),
      assumptions=tuple(dict.fromkeys(assumed)),
  )


def _of_one(
    accountant: base.Accountant,
    entries: Sequence[Entry],
    level: str,
    replaced: bool,
    delta: float | None,
    epsilon: float | None,
    error: sampler_error.SamplerError,
    lost: int = 0,
) -> tuple[dict[str, float], str]:
  """Compute what one unit costs.

  Args:
    accountant: how steps are composed.
    entries: what was run.
    level: the privacy unit.
    replaced: whether the unit is replaced, not added or removed.
    delta: in (0, 1), or None.
    epsilon: at least 0, or None.
    error: of the sampler, all steps together.
    lost: the number of other units of the level that may be missing.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon), and the name of the
    accountant that computed it: replaced units of a tree are always composed by
    loss distributions.
  """
  runs = sensitivity.routes(entries, level, lost=lost)
  if not replaced:
    return _best(accountant, runs, delta, epsilon, error), accountant.name
  tree = sensitivity.routes(entries, level, replaced=True)
  if tree:
    # Only in passes may an exchange cost less than the tree's own curve.
    runs = tuple(
        r for r in runs if not all(isinstance(u, _TREE) for u in _units(r))
    )

  def exchanged(
      run: base.Phases, error: sampler_error.SamplerError
  ) -> dict[str, float]:
    parts = _apart(run)
    value = exchange.value(accountant, parts, delta, epsilon, error)
    return dict.fromkeys(amplification.DIRECTIONS, value)

  # Replacing is symmetric: one direction is both.
  own = _best(pld.PLD(tolerance=_PRECISE), tree, delta, epsilon, error, 1)
  values: dict[str, float] = dict.fromkeys(
      amplification.DIRECTIONS, own["remove"]
  )
  best = values, pld.PLD.name if tree else accountant.name
  nothing = math.inf if epsilon is None else 1.0
  for run in runs:
    found = _charged(exchanged, run, error, nothing), accountant.name
    best = min(best, found, key=_most)
  return best


def _most(found: tuple[dict[str, float], str]) -> float:
  """Return the larger of the values of two directions."""
  return max(found[0].values())


def _best(
    accountant: base.Accountant,
    runs: Sequence[base.Phases],
    delta: float | None,
    epsilon: float | None,
    error: sampler_error.SamplerError,
    directions: int = 2,
) -> dict[str, float]:
  """Find the smallest bound among the ways to compose a run.

  Args:
    accountant: how steps are composed.
    runs: the ways.
    delta: in (0, 1), or None.
    epsilon: at least 0, or None.
    error: of the sampler, all steps together.
    directions: 1 to compute "remove" alone.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon); infinity (or 1) without
    a way.
  """
  asked = amplification.DIRECTIONS[:directions]

  def value(
      run: base.Phases, error: sampler_error.SamplerError
  ) -> dict[str, float]:
    return {
        d: _largest(accountant, run, d, delta, epsilon, error) for d in asked
    }

  nothing = math.inf if epsilon is None else 1.0
  found = [_charged(value, run, error, nothing) for run in runs]
  return min(
      [*found, dict.fromkeys(asked, nothing)], key=lambda v: max(v.values())
  )


def _largest(
    accountant: base.Accountant,
    run: base.Phases,
    direction: amplification.Direction,
    delta: float | None,
    epsilon: float | None,
    error: sampler_error.SamplerError,
) -> float:
  """Find epsilon at delta, or delta at epsilon, of the most expensive unit.

  Values below the largest one so far are not distinguished.
  """
  value = 0.0
  for part in _apart(run):
    enough = (1 - 1e-6) * value
    if delta is not None:
      found = accountant.epsilon(part, direction, delta, error, enough)
    else:
      found = accountant.delta(
          part, direction, float(epsilon or 0), error, enough
      )
    value = max(value, found)
  return value


def _apart(run: base.Phases) -> tuple[base.Phases, ...]:
  """Split a run by the types of units of its level; the largest result holds.

  A unit has one type in all steps, so a bound for one type need not cover
  others. If several phases have several types, it is unknown which belong
  together: such a run is not split.

  Returns:
    A run for each type, those with probably the largest values first.
  """
  several = [i for i, phase in enumerate(run) if len(phase.unit_profiles) > 1]
  if len(several) != 1 or len(run[several[0]].unit_profiles) > _MAX_APART:
    return (run,)
  (i,) = several
  units = sorted(run[i].unit_profiles, key=lambda unit: -math.prod(unit.tail))
  return tuple(
      (*run[:i], base.Phase((unit,), run[i].times), *run[i + 1 :])
      for unit in units
  )


def _raised(run: base.Phases, chance: float) -> base.Phases:
  """Raise the numbers that units sample by the probability that tables cut off.

  It costs more, but requires no more of a step than the unmatched probability:
  see section 7 of the proof.
  """
  return tuple(
      base.Phase(
          tuple(
              unit.raised(chance) if isinstance(unit, _COUNTING) else unit
              for unit in phase.unit_profiles
          ),
          phase.times,
      )
      for phase in run
  )


def _charged(
    value: Callable[
        [base.Phases, sampler_error.SamplerError], dict[str, float]
    ],
    run: base.Phases,
    error: sampler_error.SamplerError,
    nothing: float,
) -> dict[str, float]:
  """Evaluate a run under the sampler's error.

  `unmatched` is known for a unit that is on one path of each step. It is
  unknown for a profile that counts clip units below it, or the places that hold
  it: if the answer is then `nothing`, the numbers are raised.
  """
  units = _units(run)
  if not any(isinstance(unit, _COUNTING) for unit in units):
    return value(run, error)
  found = value(run, dataclasses.replace(error, unmatched=math.inf))
  if max(found.values()) < nothing:
    return found
  # `unmatched` is for one family, but a unit may be in several.
  families = max(getattr(unit, "places", 1) for unit in units)
  matched = dataclasses.replace(error, unmatched=families * error.unmatched)
  return value(_raised(run, error.tails), matched)


def _units(run: base.Phases) -> unit_profile.UnitProfiles:
  """List the distinct types of units of a run."""
  return tuple(
      dict.fromkeys(unit for phase in run for unit in phase.unit_profiles)
  )


def _of_group(
    accountant: base.Accountant,
    entries: Sequence[Entry],
    level: str,
    replaced: bool,
    delta: float | None,
    epsilon: float | None,
    group: int,
) -> tuple[dict[str, float], str]:
  """Bound what a group costs: its units one after another, or all at once.

  If (e, d) holds for each of k links of a chain of neighbours, the ends of the
  chain have (k e, d (1 + e^e + ... + e^((k - 1) e))). Every d that reaches the
  given delta gives a bound. The guess of e increases until one does. Links are
  those of the ideal plan; the sampler's error is charged at the ends.
  """
  _check_group(entries, level, group, replaced)
  lost = 0 if replaced else group - 1
  error = sensitivity.group_error(entries, level, group)
  whole = _together(entries, level, group, replaced)
  best = _best(accountant, whole, delta, epsilon, error), accountant.name
  guess = 0.0 if epsilon is None else float(epsilon) / group
  while True:
    links = math.exp(min(_log_links(guess, group), 700.0))
    charge = (1 + math.exp(min(group * guess, 700.0))) * error.variation
    share = None if delta is None else (delta - charge) / links
    if share is not None and share < _LEAST_SHARE:
      return best
    one = None if epsilon is None else guess
    values, name = _of_one(
        accountant, entries, level, replaced, share, one, sampler_error.EXACT,
        lost,
    )
    if epsilon is not None:
      values = {d: min(1.0, v * links + charge) for d, v in values.items()}
      return min(best, (values, name), key=_most)
    found = max(values.values())
    if found <= guess or math.isinf(found):
      values = {d: group * v for d, v in values.items()}
      return min(best, (values, name), key=_most)
    guess = found * (1 + _SLACK)


def _together(
    entries: Sequence[Entry], level: str, group: int, replaced: bool
) -> tuple[base.Phases, ...]:
  """Describe a run for a group at once; () if no proof says how."""
  runs = sensitivity.routes(entries, level, lost=group - 1)
  recurs = any(
      isinstance(e.release.plan.stages[0], plan_lib.RandomAllocation)
      or e.release.plan.repeats
      for e in entries
  )
  if recurs or not runs or not all(
      isinstance(unit, _TREE) for unit in _units(runs[0])
  ):
    return ()
  return (tuple(
      base.Phase(
          (random_count.together(
              phase.unit_profiles, group, replaced=replaced
          ),),
          phase.times,
      )
      for phase in runs[0]
  ),)


def _check_group(
    entries: Sequence[Entry], level: str, group: int, replaced: bool
) -> None:
  """Refuse a group if FixedSize has no proof after some of its units leave."""
  for release in (entry.release for entry in entries):
    hierarchy, episode = release.hierarchy, release.plan.episode
    k = hierarchy.level_index(level)
    stage, form = release.plan.stages[k], getattr(episode, "form", "unit")
    if replaced or not isinstance(stage, plan_lib.FixedSize):
      continue
    most = hierarchy.most_copies or (1,) * hierarchy.depth
    if most[k] > 1 or form == "independent":
      raise plan_lib.UnsoundPlanError(
          f"no guarantee for {group} units of level '{level}' together: they"
          f" recur in a step, and {stage} samples the others more often once"
          " one of them has left; use group=1, or sample the units by Poisson"
      )
    spare = int(hierarchy.child_counts(k).min()) - stage.n
    if spare < group and (form == "disjoint" or release.sample_level):
      raise plan_lib.UnsoundPlanError(
          f"no guarantee for {group} units of level '{level}' together: without"
          f" them {stage} does not fill every slot; use a group of at most"
          f" {max(spare, 1)}"
      )


def _log_links(epsilon: float, group: int) -> float:
  """Compute ln(1 + e^epsilon + ... + e^((group - 1) epsilon))."""
  terms = np.arange(group) * epsilon
  return float(np.logaddexp.reduce(terms)) * (1 + 1e-12)


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
  """Compute epsilon of one type of unit from its rates and distances.

  Args:
    q: the rate at which the unit's parent is sampled.
    p: the unit's own rate inside its parent.
    distances: (d_a, d_b) in noise standard deviations. d_a is the distance of
      the released sum without the parent from both others; d_b is the distance
      between the sums with and without the unit. One number gives both.
    steps: T, at least 1.
    delta: in (0, 1).
    direction: "remove" or "add"; None for the larger.
    accountant: composes the steps.

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
  check(steps, delta, None)
  pair = tuple(np.atleast_1d(np.asarray(distances, float)).tolist())
  if (
      len(pair) not in (1, 2)
      or not all(d >= 0 for d in pair)
      or isinstance(distances, bool)
  ):
    raise plan_lib.PlanError(
        f"distances {distances!r} must be one number or (d_a, d_b), not"
        " negative"
    )
  _validate.probability("q", q)
  _validate.probability("p", p)
  if not all(map(math.isfinite, pair)):
    return math.inf if q * p > 0 else 0.0
  kind = amplification.Amplification(
      (float(q),), float(p), (pair[0],), pair[-1]
  )
  _validate.one_of("direction", direction, (None, *amplification.DIRECTIONS))
  run = (base.Phase((kind,), int(steps)),)
  chosen = get_accountant(accountant)
  return max(
      chosen.epsilon(run, d, float(delta))
      for d in ([direction] if direction else amplification.DIRECTIONS)
  )
