"""Composition: from the parts of a run to its epsilon or delta.

A run is a list of entries, of equal steps each. Seen from one level, an entry
is one or more phases of equal profiles. A run has several ways to compose its
phases, and the best of them holds. The most expensive type of
unit counts. A group costs no more than its units one after another.

Replacing a unit is to remove it, then to add another in its place.

Let T' be T with the unit t replaced by t', so that T - t is T without t and T'
without t'. For b, c > 0 and any three distributions

  H_(bc)(X || Z)  <=  H_b(X || Y) + b H_c(Y || Z),

since [x - bc z]_+ <= [x - b y]_+ + b [y - c z]_+. Let R bound the run for
removing a unit, and A for adding one. For every epsilon = a + b,

  H_(e^epsilon)(M(T) || M(T'))  <=  R(a) + e^a A(b),

and the minimum over the split is returned. As a function of e^a this is convex
(R is, and so is the perspective of A), so one search along a finds it. Any
split is a bound. The whole run is split, not its steps, because the run without
both units is a run.

For a in the hundreds, e^a overflows a double. Then Renyi divergences bound the
replacing (Mironov, "Renyi Differential Privacy", 2017, proposition 11, with p =
q = 2): for an order l > 1

  D_l(X || Z)  <=  (l - 1/2) / (l - 1) D_(2l)(X || Y) + D_(2l - 1)(Y || Z),

which for Gaussians on a line is an equality.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants.base import Phase
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles.amplification import UnitProfile
from episodic_dp.accounting.profiles.unit_profile import UnitProfiles
from episodic_dp.plan import sampler_error

# More steps than any run takes; larger numbers would exceed exact arithmetic.
_MAX_STEPS = 10**12
# Relative spacing of two guesses of the epsilon of one unit of a group, the
# smallest delta of one unit to try, and how many of its epsilons are tried.
_SLACK, _LEAST_SHARE, _LINKS = 1e-3, 1e-290, 4
# More types of units than this are composed together: looser, but faster.
_MAX_APART = 8
# Tolerance of the curve for replacing a unit, which has only one direction.
_PRECISE = 1e-6
# Points along the split, and how often the search narrows to the best one.
_LOOKS, _NARROWINGS = 17, 7
# The largest ln of the odds between the two parts' shares of delta.
_ODDS = 24.0
# Number of times that curves are refined at the best split.
_ROUNDS = 3
# The smallest delta that is requested from an accountant.
_LEAST_DELTA = 1e-290
# Above the first a, e^-a is zero as a double. Above the second epsilon Renyi
# divergences may give a smaller bound.
_NO_SHARE, _LARGE = 746.0, 200.0
# Orders of the Renyi divergences for replacing, useful at large epsilons.
_MOST_ORDER = 64

# A run ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A part of a run with equal steps; checked on construction.

  Attributes:
    release: the release of each step.
    steps: number of steps, at least 1.

  Raises:
    PlanError: the number of steps is out of range.
  """

  release: plan_lib.Release
  steps: int

  def __post_init__(self) -> None:
    steps = _validate.count("steps", self.steps, 1)
    if steps > _MAX_STEPS:
      raise _validate.refusal(
          "steps", steps, f"a number from 1 to {_MAX_STEPS}"
      )
    object.__setattr__(self, "steps", steps)

  def same_description(self, other: "Entry") -> bool:
    """Return whether another entry has an equal sampler and release."""
    a, b = self.release, other.release
    return (
        a.plan == b.plan
        and a.mechanism == b.mechanism
        and a.hierarchy.same_tree(b.hierarchy)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Described:
  """An entry as plain data."""

  hierarchy: plan_lib.Hierarchy
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  steps: int

  @classmethod
  def of(cls, entry: Entry) -> "_Described":
    """Describe an entry."""
    return cls(**vars(entry.release), steps=entry.steps)

  def build(self) -> Entry:
    """Build the entry; raises PlanError if its parts contradict."""
    release = plan_lib.Release(self.hierarchy, self.plan, self.mechanism)
    return Entry(release, self.steps)


plain.register(Entry, _Described, _Described.of, _Described.build)


def phases_of(
    entry: Entry,
    level: str,
    *,
    condition_on_step: bool = False,
    replaced: bool = False,
) -> Phases:
  """Describe the steps of one entry as phases.

  With `RandomAllocation(T)` a pass of T steps is one "step", and the last pass
  may be incomplete. If only one step of a pass is seen, it is a step of
  `Poisson(1 / T)`, which samples each unit with the same coins.

  Args:
    entry: the steps.
    level: the privacy unit.
    condition_on_step: whether to assume that the step in which a pass uses a
      primary unit is known. It may suit the units inside it better: a pass is
      then one step that surely samples this primary unit.
    replaced: as for `unit_profiles`, and with `condition_on_step` only.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  release, steps = entry.release, entry.steps
  units = sensitivity.unit_profiles(release, level, replaced=replaced)
  whole_pass = release.plan.pass_steps
  if whole_pass in (None, 1):
    return (Phase(units, steps),)
  passes, rest = divmod(steps, whole_pass)
  parts = [(whole_pass, passes)]
  found = []
  if rest == 1:
    found.append(Phase(units, 1))
  elif rest:
    parts.append((rest, 1))
  primary_unit = not release.hierarchy.level_index(level)
  known = tuple(unit.in_known_step() for unit in units)
  if condition_on_step and (replaced or not primary_unit):
    found.append(Phase(known, sum(times for _, times in parts)))
  else:
    primary = sensitivity.unit_profiles(release, release.levels[0])
    farthest = max(unit.tail[1] for unit in primary)
    for released, times in parts:
      whole = allocation.Allocation(whole_pass, released, farthest)
      kinds: dict[UnitProfile, None] = {}
      for tree in known:
        kinds[allocation.NestedAllocation(
            whole=whole, parent_rate=tree.parent_rate, rate=tree.rate
        )] = None
      if primary_unit:
        kinds = {whole: None}
      found.append(Phase(tuple(kinds), times))
  return tuple(phase for phase in found if phase.times)


def routes(
    entries: Sequence[Entry],
    level: str,
    *,
    replaced: bool = False,
) -> tuple[Phases, ...]:
  """List the ways to compose the cost of a level; the best of them holds.

  Args:
    entries: the parts of a run.
    level: the privacy unit.
    replaced: whether neighbours differ in a unit's data, not in its presence;
      known for units of a tree.

  Returns:
    Phases of the whole run, one for every way; () if private data are released
    without noise, or nothing is known about replacing.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level.
  """
  if not all(e.release.mechanism.guaranteed for e in entries):
    for e in entries:
      e.release.check_level(level)
    return ()
  conditions = [replaced]
  if not replaced and any(
      e.release.plan.pass_steps is not None
      and e.release.hierarchy.level_index(level) > 0
      for e in entries
  ):
    conditions.append(True)
  result = []
  for condition in conditions:
    times: dict[tuple[UnitProfiles, int], int] = {}
    for entry in entries:
      for phase in phases_of(
          entry, level, condition_on_step=condition, replaced=replaced
      ):
        # Equal phases add up. A unit may have one type in one plan and another
        # in the next, so several types add up in equal plans only.
        first = next(
            i for i, e in enumerate(entries)
            if len(phase.unit_profiles) == 1 or e.same_description(entry)
        )
        key = phase.unit_profiles, first
        times[key] = times.get(key, 0) + phase.times
    result.append(
        tuple(Phase(units, count) for (units, _), count in times.items())
    )
  if any(not phase.unit_profiles for run in result for phase in run):
    return ()  # Of replaced units that recur in a step.
  return tuple(result)


class Ways(NamedTuple):
  """The ways to compose a run for one of several units, often the only one.

  Attributes:
    group: k, the number of units.
    runs: the ways if one of them is added or removed while others are missing;
      () if private data are released without noise.
    tree: the ways if the data of one are replaced, which are known for units of
      a tree; None if units are added or removed.
    error: error of the sampler for one, all steps together.
  """

  group: int
  runs: tuple[Phases, ...]
  tree: tuple[Phases, ...] | None
  error: sampler_error.SamplerError


def ways(
    entries: Sequence[Entry], level: str, *, replaced: bool, group: int
) -> Ways:
  """Describe a run for a group of units, one after another.

  Args:
    entries: the parts of the run.
    level: the privacy unit.
    replaced: whether the units' data are replaced.
    group: number of units, at least 1.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level.
  """
  lost = 0 if replaced else group - 1
  runs = routes([_depleted(entry, level, lost) for entry in entries], level)
  error = sum(
      (
          sampler_error.sampling_error(
              e.release.hierarchy, e.release.plan
          ).times(e.steps)
          for e in entries
      ),
      start=sampler_error.EXACT,
  )
  # `unmatched` is for one family, but a unit may be in several.
  places = max(
      (unit.families for run in runs for unit in _units(run)),
      default=1,
  )
  error = dataclasses.replace(error, unmatched=places * error.unmatched)
  if lost:
    error = _depleted_error(error, entries, level, group * places)
  if not replaced:
    return Ways(group, runs, None, error)
  tree = routes(entries, level, replaced=True)
  if tree:  # Removing and adding may cost less than replacing in passes only.
    runs = tuple(
        run for run in runs if any(unit.in_passes for unit in _units(run))
    )
  return Ways(group, runs, tree, error)


def _units(run: Phases) -> list[UnitProfile]:
  """List the types of units of all phases."""
  return [unit for phase in run for unit in phase.unit_profiles]


@dataclasses.dataclass(frozen=True)
class _Depleted(plan_lib.FixedSize):
  """`FixedSize(n)` in families that may have lost some units.

  Attributes:
    lost: the largest number of units that may have left one family.
  """

  lost: int = 0

  def rate(self, children: np.ndarray | int) -> np.ndarray:
    """Return the largest rate of those that stay: n / (N - lost), float64."""
    return super().rate(np.asarray(children) - self.lost)


def _depleted(entry: Entry, level: str, lost: int) -> Entry:
  """Describe an entry after some units of a level have left.

  Raises:
    UnsoundPlanError: a `FixedSize` stage has no proof without these units.
  """
  release = entry.release
  hierarchy, stages = release.hierarchy, release.plan.stages
  k = hierarchy.level_index(level)
  stage = stages[k]
  if not lost or not isinstance(stage, plan_lib.FixedSize):
    return entry
  cut_in_order = release.plan.form == "disjoint"
  spare = int(hierarchy.child_counts(k).min()) - stage.n
  if spare <= lost and (cut_in_order or release.sample_level):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for {lost + 1} units of level '{level}' together:"
        f" without them {stage} does not fill every slot; use a group of at"
        f" most {max(spare, 1)}"
    )
  left = (*stages[:k], _Depleted(stage.n, lost), *stages[k + 1 :])
  plan = dataclasses.replace(release.plan, stages=left)
  return Entry(release.replace(plan=plan), entry.steps)


# Largest difference between the tables of two sizes of a family, in total
# variation.
_TABLE_ERROR = 2.0**-88


def _depleted_error(
    error: sampler_error.SamplerError,
    entries: Sequence[Entry],
    level: str,
    group: int,
) -> sampler_error.SamplerError:
  """Raise the sampler's error to that of families which lost some units.

  Their random counts come from other tables. It is not known which counts both
  neighbours can sample then.
  """
  families = 0
  for entry in entries:
    hierarchy = entry.release.hierarchy
    k = hierarchy.level_index(level)
    if entry.release.plan.stages[k].random_count:
      families += entry.steps * min(group, hierarchy.num_units(k - 1))
  if not families:
    return error
  more = families * _TABLE_ERROR
  return dataclasses.replace(
      error,
      variation=error.variation + more,
      tails=error.tails + more,
      unmatched=math.inf,
  )


# Its cost ---------------------------------------------------------------------

# Direction -> epsilon at delta (or delta at epsilon), and the name of the
# accountant that computed them.
Found = tuple[dict[str, float], str]


@dataclasses.dataclass(frozen=True)
class Query:
  """The value that is computed for a run.

  Attributes:
    accountant: composes the steps.
    at: the delta or epsilon.
    error: error of the sampler, all steps together.
    directions: those to compute; one is enough if both are equal.
  """

  accountant: base.Accountant
  at: base.Question
  error: sampler_error.SamplerError
  directions: tuple[amplification.Direction, ...] = amplification.DIRECTIONS

  @property
  def unknown(self) -> dict[str, float]:
    """Return the values of a run that guarantees nothing."""
    return self.both(self.at.unknown)

  def both(self, value: float) -> dict[str, float]:
    """Return one value for both directions."""
    return dict.fromkeys(amplification.DIRECTIONS, value)


def cost(
    accountant: base.Accountant, at: base.Question, ways: Ways
) -> Found:
  """Compute what a group of units costs, one after another.

  Returns:
    The values of both directions. Replaced units of a tree are always composed
    by loss distributions.
  """
  query = Query(accountant, at, ways.error)
  if ways.group == 1:
    return _of_one(query, ways)
  if isinstance(at, base.Delta):
    return _chain_at_delta(query, at, ways)
  return _chain_at_epsilon(query, at, ways)


def values(
    accountant: base.Accountant,
    ways: Ways,
    delta: float | None,
    epsilon: float | None,
) -> dict[str, float]:
  """Compute one of many points of a run's privacy curve, by direction."""
  at: base.Question = base.Epsilon(epsilon or 0.0)
  if delta is not None:
    at = base.Delta(delta, shared=True)
  return cost(accountant, at, ways)[0]


def _of_one(query: Query, ways: Ways) -> Found:
  """Compute what one unit costs."""
  if ways.tree is None:
    return _best(query, ways.runs), query.accountant.name
  # Replacing is symmetric: one direction is both.
  by_way, precise = (
      dataclasses.replace(query, accountant=each, directions=("remove",))
      for each in (ReplaceOne(query.accountant), pld.PLD(tolerance=_PRECISE))
  )
  return min(
      (_best(by_way, ways.runs), query.accountant.name),
      (_best(precise, ways.tree), pld.PLD.name),
      key=_most,
  )


def _most(found: Found) -> float:
  """Return the larger of the values of two directions."""
  return max(found[0].values())


def _best(query: Query, runs: Sequence[Phases]) -> dict[str, float]:
  """Find the smallest bound among the ways to compose a run.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon); infinity (or 1) without
    a way.
  """
  return min(
      [*(_charged(query, run) for run in runs), query.unknown],
      key=lambda v: max(v.values()),
  )


def _charged(query: Query, run: Phases) -> dict[str, float]:
  """Compute the values of a run under the sampler's error.

  `unmatched` is known for a unit that is on one path of each step. It is
  unknown for a profile that counts clip units below it, or the places that hold
  it: if nothing is guaranteed then, the numbers are raised. This costs more,
  but requires no more of a step than the unmatched probability (section 7 of
  the proof).
  """
  if not any(unit.counting for unit in _units(run)):
    return _values(query, run, query.error)
  unmatched = dataclasses.replace(query.error, unmatched=math.inf)
  found = _values(query, run, unmatched)
  if max(found.values()) < query.at.unknown:
    return found
  raised = []
  for phase in run:
    units = tuple(u.raised(query.error.tails) for u in phase.unit_profiles)
    raised.append(Phase(units, phase.times))
  return _values(query, tuple(raised), query.error)


def _values(
    query: Query, run: Phases, error: sampler_error.SamplerError
) -> dict[str, float]:
  """Compute the values of the most expensive unit.

  Values below the largest one so far are not distinguished.
  """
  values = query.both(0.0)
  for direction in query.directions:
    value = 0.0
    for part in _apart(run):
      at = dataclasses.replace(query.at, least=(1 - 1e-6) * value)
      value = max(value, query.accountant.answer(part, direction, at, error))
    values[direction] = value
  return values if len(query.directions) > 1 else query.both(value)


def _apart(run: Phases) -> tuple[Phases, ...]:
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
      (*run[:i], Phase((unit,), run[i].times), *run[i + 1 :])
      for unit in units
  )


def _chain_at_delta(query: Query, at: base.Delta, ways: Ways) -> Found:
  """Bound what a group costs by the curve of one of its units.

  If (e, d) holds for each of k links of a chain of neighbours, the ends of the
  chain have (k e, d (1 + e^e + ... + e^((k - 1) e))): section 12 of the proof.
  The least such e is found.
  """
  link, group = 0.0, ways.group
  while (share := at.value / _links(link, group)) > _LEAST_SHARE:
    each = dataclasses.replace(at, value=share)
    values, name = _of_one(dataclasses.replace(query, at=each), ways)
    most = max(values.values())
    if most <= link or math.isinf(most):
      return {d: group * v for d, v in values.items()}, name
    link = most * (1 + _SLACK)
  return query.unknown, query.accountant.name


def _chain_at_epsilon(query: Query, at: base.Epsilon, ways: Ways) -> Found:
  """Bound the delta of a group: the best of a few links at most epsilon / k."""
  found: list[Found] = []
  for link in np.linspace(0.0, at.value / ways.group, _LINKS).tolist():
    each = dataclasses.replace(query, at=base.Epsilon(link))
    values, name = _of_one(each, ways)
    links = _links(link, ways.group)
    found.append(({d: min(1.0, v * links) for d, v in values.items()}, name))
  return min(found, key=_most)


def _links(epsilon: float, group: int) -> float:
  """Compute 1 + e^epsilon + ... + e^((group - 1) epsilon)."""
  log_sum = float(np.logaddexp.reduce(np.arange(group) * epsilon))
  return math.exp(min(log_sum * (1 + 1e-12), 700.0))


# Replacing one unit ----------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class ReplaceOneCurve:
  """The profile of a run for replacing a unit.

  Attributes:
    remove: bound on the run for removing a unit.
    add: bound on the run for adding one.
  """

  remove: base.Curve
  add: base.Curve

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return self.split_of_delta(delta)[0]

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return self.split_of_epsilon(epsilon)[0]

  def refined(
      self,
      accountant: base.Accountant,
      run: Phases,
      remove_at: base.Question,
      add_at: base.Question,
  ) -> "ReplaceOneCurve":
    """Return the curve with bounds that are precise near two questions too."""
    remove = accountant.curve(run, "remove", remove_at)
    add = accountant.curve(run, "add", add_at)
    return ReplaceOneCurve(
        base.Least((self.remove, remove)), base.Least((self.add, add))
    )

  def split_of_delta(self, delta: float) -> tuple[float, float, float]:
    """Find the least a + b, and the shares of delta for R and A.

    Returns:
      (a + b, R(a), A(b)); R(a) and e^a A(b) add up to delta.
    """

    def tried(log_odds: float) -> tuple[float, float, float]:
      first = delta / (1 + math.exp(log_odds))
      a = self.remove.epsilon(first)
      if math.isinf(a):
        return math.inf, first, 0.0
      second = (delta - first) * math.exp(-a)
      # A bound that holds everywhere holds at delta = 0 too.
      return a + self.add.epsilon(second), first, second

    return _least(tried, -_ODDS, _ODDS)

  def split_of_epsilon(self, epsilon: float) -> tuple[float, float, float]:
    """Find the least R(a) + e^a A(b), and its a and b."""

    def tried(a: float) -> tuple[float, float, float]:
      b = max(epsilon - a, 0.0)
      second = self.add.delta(b)
      if second > 0:
        second = math.exp(min(a + math.log(second), 0.0))
      return min(1.0, self.remove.delta(a) + second), a, b

    return _least(tried, 0.0, epsilon)


_UNKNOWN = ReplaceOneCurve(base.UNPROTECTED, base.UNPROTECTED)
_Tried = tuple[float, float, float]


def _least(
    tried: Callable[[float], _Tried], low: float, high: float
) -> _Tried:
  """Minimise the first value of a function that decreases, then increases."""
  found: list[_Tried] = []
  for _ in range(_NARROWINGS):
    step = (high - low) / (_LOOKS - 1)
    points = [low + step * i for i in range(_LOOKS)]
    looks = [tried(x) for x in points]
    at = min(range(_LOOKS), key=lambda i: looks[i][0])
    found.append(looks[at])
    low, high = max(points[at] - step, low), min(points[at] + step, high)
  return min(found)


def replace_one_curve(
    accountant: base.Accountant, run: Phases, at: base.Question
) -> ReplaceOneCurve:
  """Bound a run for replacing a unit by an accountant's curves.

  Args:
    accountant: composes the steps.
    run: the phases to compose.
    at: the question near which the curve is precise.
  """
  if isinstance(at, base.Delta):
    return _near_delta(accountant, run, at.value)
  a, b, half = at.value / 2, at.value / 2, at.least / 2
  found = _UNKNOWN
  for _ in range(_ROUNDS):
    found = found.refined(
        accountant, run, base.Epsilon(a, half),
        base.Epsilon(b, half * math.exp(-min(a, 700.0))),
    )
    _, a, b = found.split_of_epsilon(at.value)
  return found


def _near_delta(
    accountant: base.Accountant, run: Phases, delta: float
) -> ReplaceOneCurve:
  """Compute `replace_one_curve` near a delta."""
  first = delta / 2
  remove = accountant.curve(run, "remove", base.Delta(first))
  if remove.epsilon(delta) > _NO_SHARE:
    # No split leaves A any delta.
    return ReplaceOneCurve(remove, base.UNPROTECTED)
  found = _UNKNOWN
  second = first * math.exp(-min(remove.epsilon(first), 600.0))
  for _ in range(_ROUNDS):
    found = found.refined(
        accountant, run, base.Delta(max(first, _LEAST_DELTA)),
        base.Delta(max(second, _LEAST_DELTA)),
    )
    total, first, second = found.split_of_delta(delta)
    if math.isinf(total):
      break
  return found


def by_moments(run: Phases) -> moments.RenyiCurve:
  """Bound the replacing of a unit by Renyi divergences."""
  order = np.asarray(moments.orders(_MOST_ORDER))
  at = tuple(sorted({*(2 * order).tolist(), *(2 * order - 1).tolist()}))
  # (order - 1) times the divergence, at every order.
  remove, add = (
      dict(
          zip(at, moments.total_log_moments(run, direction, at), strict=True)
      )
      for direction in amplification.DIRECTIONS
  )
  first, second = (
      np.asarray([logs[x] / (x - 1) for x in at.tolist()])
      for logs, at in ((remove, 2 * order), (add, 2 * order - 1))
  )
  return moments.RenyiCurve(order, (order - 0.5) / (order - 1) * first + second)


@dataclasses.dataclass(frozen=True)
class ReplaceOne(base.Accountant):
  """Bounds the replacing of a unit by what an accountant says of one.

  Attributes:
    accountant: composes the steps; both directions are equal.
  """

  accountant: base.Accountant
  name = "replace-one"

  def curve(
      self,
      phases: Phases,
      direction: amplification.Direction,
      at: base.Question,
  ) -> base.Curve:
    """See `Accountant`."""
    found: base.Curve = replace_one_curve(self.accountant, phases, at)
    if at.epsilon(found) <= _LARGE:
      return found
    rdp = replace_one_curve(moments.RDP(), phases, at)
    return base.Least((found, rdp, by_moments(phases)))
