"""Guarantees of a release and its steps."""

from collections.abc import Callable, Iterable, Sequence
import functools
import math
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import composition
from episodic_dp.accounting import report
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.report import Guarantee

Entry = composition.Entry
AnyAccountant = str | base.Accountant

_ACCOUNTANTS: dict[str, base.Accountant] = {
    "pld": pld.PLD(),
    "rdp": moments.RDP(),
    "moments": moments.Moments(refinements=2),
}
ACCOUNTANTS = tuple(_ACCOUNTANTS)

# A larger group is assumed to be a mistake.
_MAX_GROUP = 10**6


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


def question(delta: float | None, epsilon: float | None) -> base.Question:
  """Return the question at delta or epsilon.

  Raises:
    PlanError: not one of them is given, or it is out of range.
  """
  if (delta is None) == (epsilon is None):
    raise plan_lib.PlanError(
        f"delta={delta!r} and epsilon={epsilon!r}: give one of them, to compute"
        " the other"
    )
  if delta is not None:
    return base.Delta(_validate.fraction("delta", delta))
  return base.Epsilon(_validate.positive("epsilon", epsilon, zero=True))


def compose_guarantees(
    entries: Sequence[Entry],
    **options: Any,
) -> dict[str, Guarantee]:
  """Call `compose_guarantee` for every level that has one, in tree order."""
  found, refused = by_level(
      lambda level: compose_guarantee(entries, level=level, **options),
      entries[0].release.levels,
  )
  if not found:
    raise next(iter(refused.values()))
  return found


def by_level(
    guarantee_of: Callable[[str], Guarantee], levels: Iterable[str]
) -> tuple[dict[str, Guarantee], dict[str, plan_lib.UnsoundPlanError]]:
  """Return the guarantees of the levels, and the refusals of the others."""
  found, refused = {}, {}
  for level in levels:
    try:
      found[level] = guarantee_of(level)
    except plan_lib.UnsoundPlanError as e:
      refused[level] = e
  return found, refused


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
  at = question(delta, epsilon)
  replaced = report.is_replaced(neighbours)
  releases = [e.release for e in entries]
  ways = composition.ways(entries, level, replaced=replaced, group=group)
  inclusion = max(sensitivity.inclusion_rate(r, level) for r in releases)
  values, name = composition.cost(chosen, at, ways)
  relation, direction = "replace", "both"
  if not replaced:
    relation, direction = "add or remove", max(values, key=values.__getitem__)
  changed = f"one {level}"
  if group > 1:
    changed = f"up to {group} units of level '{level}' together"
  largest = max(values.values())
  caveats = [c for r in releases for c in report.caveats(r, level)]
  covered = all(r.mechanism.guaranteed for r in releases)
  unbounded = covered and delta and math.isinf(largest)
  if unbounded and group > 1:
    caveats.append(
        f"The bound for {group} units, one after another, is infinite: take a"
        " smaller group, or make the group a level of the hierarchy."
    )
  elif unbounded:
    caveats.append(
        f"The drawn sample is within {ways.error.variation:.1g} of the plan's,"
        " in total variation, which takes all of delta at any epsilon."
    )
  found_delta, epsilons = at.value, values
  if isinstance(at, base.Epsilon):
    found_delta, epsilons = largest, dict.fromkeys(values, at.value)
  if covered:
    caveats += [
        report.large_delta(r.hierarchy, level, found_delta) for r in releases
    ]
  assumed: list[str] = []
  for r in releases:
    assumed += report.assumptions(r, level, replaced=replaced)
  return Guarantee(
      epsilon=max(epsilons.values()),
      delta=found_delta,
      level=level,
      neighbours=f"{relation} {changed}",
      direction=direction,
      accountant=name,
      epsilons=epsilons,
      steps=sum(e.steps for e in entries),
      inclusion_rate=inclusion,
      caveat=" ".join(dict.fromkeys(filter(None, caveats))),
      assumptions=tuple(dict.fromkeys(assumed)),
      costs=functools.partial(composition.values, chosen, ways),
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
    neighbours: report.Relation = "add-or-remove",
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
    neighbours: the relation. The sums with the unit and with its other data are
      at most 2 d_b apart; a third distance may give less.

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
  at = base.Delta(_validate.fraction("delta", delta))
  replaced = report.is_replaced(neighbours)
  given = tuple(np.atleast_1d(np.asarray(distances, float)).tolist())
  if (
      not 1 <= len(given) <= 2 + replaced
      or not all(d >= 0 for d in given)
      or isinstance(distances, bool)
  ):
    raise plan_lib.PlanError(
        f"distances {distances!r} must be one number or (d_a, d_b), not"
        " negative"
    )
  _validate.probability("q", q)
  _validate.probability("p", p)
  _validate.one_of("direction", direction, (None, *amplification.DIRECTIONS))
  first, own = given[0], given[:2][-1]
  kind = amplification.Amplification((float(q),), float(p), (first,), own)
  if replaced:
    (farthest,) = given[2:] or (2 * own,)
    kind = amplification.Amplification(
        (float(q), float(p)), 1.0, (first, own), max(farthest, own)
    )
  run = (base.Phase((kind,), _validate.count("steps", steps, 1)),)
  if not all(map(math.isfinite, given)):
    return math.inf if base.sampled(run) > delta else 0.0
  chosen = get_accountant(accountant)
  directions: tuple[amplification.Direction, ...] = amplification.DIRECTIONS
  if direction is not None:
    directions = (direction,)
  return max(chosen.answer(run, d, at) for d in directions)
