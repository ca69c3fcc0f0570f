"""Sensitivity: the rates and distances of a release's units.

Distances are in standard deviations of the noise. Let z be the noise
multiplier, M_j the largest number of clip units that are sampled under the
path's unit of level j (1 at the clip level and below) and M'_j the largest
number under any one of its siblings:
  own stage        2/z inside a clip unit; otherwise M/z if the unit is absent
                   (`Poisson`, `All`, and `FixedSize(n)` of n or fewer), and
                   (M + M')/z if another unit replaces it (`FixedSize(n)` of
                   more than n);
  outer stage j    the same with M_j, M'_j; only stages of rate below 1 have
                   one.

A unit that is sampled but contributes nothing (because of `Poisson` stages
below it) changes nothing. If no other unit replaces it, its own rate is the
probability that it is sampled with content.

Tasks of form "disjoint" are groups of `way` consecutive classes in sampled
order, and the order within each unit is uniformly random. So a unit that is
replaced is replaced in its own place: it changes exactly the tasks that its
block of classes touches. A block of b classes that starts at a multiple of b
touches b / way tasks if way divides b, one if b divides way, and never more
than the largest count over its possible places. M_j is that count.

The next paragraph treats units that a step can sample at several places (tasks
of form "independent", records with copies). `_sample_level` treats clip units
inside a task with noisy inner steps.

Several places. Tasks of form "independent" are each sampled from the whole
pool; the records of a hierarchy with copies are held by several primary units.
A unit that can be at one place only is a unit of a tree. If a step samples its
parent at one place at most, the step is like one of a tree:
`profiles.recurrence` uses the probabilities that the path to that place breaks.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants.base import Phase
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages as stages_lib


def independent(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> unit_profile.UnitProfiles:
  """Describe units if every task of a step samples from the whole pool.

  Each of the L tasks samples the unit's parent with probability q = r_1 ..
  r_(k-1), whether or not the unit t exists, and independently of the others: J
  is Binomial(L, q). Given that it does, let the stage sample n of the N
  children. For n < N, with probability p = n / N the task holds t in one of its
  places. If it does not hold t, its sample is distributed as without t. If it
  does, the sample is the same with a uniform other child in t's place. For a
  full stage (`All`, or n >= N) p = 1, and without t the task has one unit less.
  In both cases one task becomes another one with probability p, independently
  for each task, and its clipped gradient moves by at most 2C. No other task
  changes, with a full stage or not: tasks share no samples, and none is
  regrouped. Given J <= 1 take a uniformly random task, and assume that the
  others are known. It samples the parent with probability P(J = 1) / P(J <= 1),
  and sampling it or not moves this one task, by at most 2C. One task alone is
  the tree of form "disjoint".
  """
  d = 2 / float(release.mechanism.noise_multiplier)
  found = in_tasks(release, k)
  if found[0].places == 1:
    single = []
    for kind in found:
      one = amplification.Amplification((kind.place_rate,), kind.rate, (d,), d)
      if replaced:
        rates = (kind.place_rate, kind.rate)
        one = amplification.Amplification(rates, 1.0, (d, d), d)
      single.append(one)
    return tuple(single)
  return tuple(
      dataclasses.replace(kind, distance=d, outer=((1.0, d),))
      for kind in found
  )


def in_tasks(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Describe the units of `independent` at distance 1."""
  hierarchy, plan = release.hierarchy, release.plan
  assert plan.episode is not None and plan.episode.tasks is not None
  if hierarchy.most_copies and hierarchy.most_copies[k] > 1:
    return (_crossing(release, hierarchy.most_copies[k], plan.episode.tasks),)
  paths = stages_lib.rate_paths(hierarchy, plan, k)
  none = np.empty((len(paths), 0))
  rates = np.column_stack([paths[:, :-1].prod(axis=1), paths[:, -1]])
  return tuple(
      recurrence.Recurrence(
          places=plan.episode.tasks, place_rate=q, rate=p, distance=1.0
      )
      for (q, p), _, _ in distances.front(distances.rows(rates, none, none))
  )


def _crossing(
    release: plan_lib.Release, most: int, tasks: int
) -> recurrence.Recurrence:
  """Describe a unit that has parts in up to `most` primary units.

  An example is a patient with images of several diagnoses. A task samples a
  number h of the diagnoses that hold a part of the patient, whether or not the
  patient exists. Given those, it samples each part with its own rate, at most
  p: some part with a probability u <= u_h = 1 - (1 - p)^h. Let u_max be that of
  the largest h. Call the task live with probability u / u_max, by a coin that
  depends on the sampled diagnoses alone, and let it hold some part of the
  patient with probability u_max if it is live, and never otherwise. This is the
  same law. So the patient is a unit whose parent is sampled with probability q
  = E[u] / u_max and which has the rate u_max. The task's sample of it, and
  whether it is live, move the one task by at most 2C.
  """
  first, units = release.plan.stages[0], release.hierarchy.num_units(0)
  rate = _largest_rates(release, 1)[1]
  number, chances = counts.hypergeometric(units, most, int(first.most(units)))
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
  """List the largest rate of each stage on the paths to a level's units."""
  return stages_lib.rate_paths(release.hierarchy, release.plan, k).max(
      axis=0
  ).tolist()


def copied(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Describe records (or classes) that up to M primary units hold.

  With M = 1 no record is held twice, and the hierarchy is a tree of records.

  Neighbours differ by the record in every primary unit that holds it. The
  sample of primary units does not depend on it, and the sampled ones sample
  their inner stages independently of each other. So the number J of sampled
  holders that also sample the record's parent is Binomial(M, q), where q is the
  product of the rates above the record's own, for `Poisson` and `All` primary
  stages. For `FixedSize` the sampled holders are hypergeometric, and each of
  them then samples the parent with the product of the inner rates. J has the
  same distribution without the record. Each such parent samples the record with
  its own rate p, and its sample is otherwise distributed as without it.

  The inner rates above the record's own belong to J, which is revealed if it is
  2 or more. If they were part of p, a holder that does not sample the record
  would be treated as without it, but it tends to sample other parents: the
  direction "add" fails.

  Given J <= 1 take a uniformly random holder. Its path breaks at each stage
  with the probabilities of `_breaks`, and only that differs: section 8 of the
  proof has the coupling for a `FixedSize` primary stage.

  If levels cross (form "disjoint" of classes that hold the unit in parts) the
  holders are the classes, and their rates p differ: the largest is used.
  """
  plan, z = release.plan, float(release.mechanism.noise_multiplier)
  (kind,) = in_holders(release, k)
  shares = _breaks(release, k, kind)
  if distances.has_random_number(release, k, own=True):
    (row,) = distances.random_paths(release, k)
    return (
        dataclasses.replace(
            kind,
            distance=1 / z,
            outer=tuple(
                (w, m / z) for w, m in zip(shares, row.others, strict=True)
            ),
            counted=True,
            number=row.number,
            instead=row.instead,
        ),
    )
  far = distances.paths(release, k).changes(release.clip_level) / z
  # A regular hierarchy has one path. If levels cross, the first stage and the
  # stages inside tasks are the same on all paths.
  if (far != far[0]).any():
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{release.levels[k]}': its copies lie in units"
        " of different sizes"
    )
  lengths = far[0].tolist()
  outer = tuple(zip(shares, lengths[:k], strict=True))
  return (dataclasses.replace(kind, distance=lengths[k], outer=outer),)


def _breaks(
    release: plan_lib.Release, k: int, kind: recurrence.Recurrence
) -> list[float]:
  """Compute where a holder's path breaks, given that every holder's does."""
  rates = _largest_rates(release, k)
  inner = math.prod(rates[1:k])
  if inner == 1:  # Then no holder is sampled.
    return [1.0] + [0.0] * (k - 1)
  # The probability that a holder is sampled nevertheless.
  if kind.drawn_of is None:
    drawn = rates[0] * (1 - inner) / (1 - rates[0] * inner)
  else:
    n, units = kind.drawn_of
    number, probs = counts.hypergeometric(units, kind.places, n)
    probs = probs * np.exp(
        (number - number[0]) * math.log1p(-inner)  # Relative to its largest.
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
  """Describe the units of `copied` at distance 1."""
  hierarchy, plan = release.hierarchy, release.plan
  assert hierarchy.most_copies is not None
  rates = _largest_rates(release, k)
  first, units = plan.stages[0], hierarchy.num_units(0)
  inner = math.prod(rates[1:k])
  drawn_of = None
  if first.exchanges(units):
    drawn_of = (int(first.most(units)), units)
  return (
      recurrence.Recurrence(
          places=int(hierarchy.most_copies[k]),
          place_rate=inner if drawn_of else rates[0] * inner,
          rate=rates[k],
          distance=1.0,
          drawn_of=drawn_of,
      ),
  )


@functools.lru_cache(maxsize=64)  # A ledger asks after every step.
def unit_profiles(
    release: plan_lib.Release,
    level: str,
    *,
    replaced: bool = False,
) -> unit_profile.UnitProfiles:
  """Find the distinct types of units of a level, none dominated by another.

  Args:
    release: a release with a noise multiplier above 0.
    level: the privacy unit.
    replaced: whether neighbours differ in a unit's data, not in its presence.
      Units that recur in a step only have profiles for adding or removing.

  Returns:
    One `Amplification` for each distinct tuple of rates and distances; one
    `Recurrence` if a unit of the level can be sampled several times in one
    step; one `RandomCount` or `Averaged` if it or its siblings have a random
    number of clip units. The profile grows with every rate and distance, so a
    type that exceeds no other is omitted. More than `distances.MAX_TYPES` are
    merged in groups, each with its largest rates and distances.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  hierarchy, mechanism = release.hierarchy, release.mechanism
  release.check_level(level)
  report.refuse_un_noised(mechanism)
  if mechanism.noise_multiplier == 0:
    raise plan_lib.PlanError(
        "noise_multiplier=0: distances are in standard deviations of the"
        " noise, so give a positive one (epsilon is infinite without noise)"
    )
  k = hierarchy.level_index(level)
  episode = release.plan.episode
  if episode is not None and episode.form == "independent":
    return independent(release, k, replaced=replaced)
  copies = hierarchy.most_copies[k] if hierarchy.most_copies and k else 1
  if copies > 1:
    return copied(release, k)
  if release.sample_level:
    return _sample_level(release, k, replaced=replaced)
  if distances.has_random_number(release, k):
    return distances.averaged(release, k, replaced=replaced)
  return _tree(release, k, replaced=replaced)


def _tree(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[amplification.Amplification, ...]:
  """Find the units of a tree of partitions.

  The own stage of a replaced unit is one more outer stage: if it does not
  sample the unit, both neighbours are equal.
  """
  clip, z = release.clip_level, float(release.mechanism.noise_multiplier)
  found = distances.paths(release, k)
  rates, far = found.rates.copy(), found.changes(clip) / z
  # Sampled without content, a unit that nothing replaces changes nothing. The
  # samples below it are off by less than 2^-88 (`plan.sampler_error`): the
  # share covers it.
  filled = np.minimum(1.0, found.filled * (1 + 1e-12))
  rates[:, k] *= np.where(found.exchanged[:, k], 1.0, filled)
  own = far[:, k:]
  if replaced:
    rates = np.column_stack([rates, np.ones(len(rates))])
    twice = 2.0 * found.own[:, k:] if k <= clip else 2.0
    own = np.maximum(twice / z, own)
  # An outer stage of rate 1 never breaks, so it has no distance.
  outer = np.where(rates[:, :-1] == 1, math.inf, far[:, : k + replaced])
  kinds = []
  for row in distances.front(distances.rows(rates, outer, own)):
    (last,) = row.own
    kinds.append(amplification.Amplification(
        row.rates[:-1],
        row.rates[-1],
        tuple(d if math.isfinite(d) else last for d in row.others),
        last,
    ))
  return tuple(kinds)


def inclusion_rate(release: plan_lib.Release, level: str) -> float:
  """Compute the largest probability that a step samples a unit of the level.

  `plan.inclusion_rate` is for one place, in one task or one primary unit. Here
  a unit that can be sampled at several places counts at all of them.
  """
  hierarchy, plan = release.hierarchy, release.plan
  k = hierarchy.level_index(level)
  if plan.episode is not None and plan.episode.form == "independent":
    found = in_tasks(release, k)
  elif k > 0 and hierarchy.most_copies is not None and hierarchy.most_copies[k]:
    found = in_holders(release, k)
  else:
    return plan_lib.inclusion_rate(hierarchy, plan, level)
  return max(kind.inclusion_rate for kind in found)


def _sample_level(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[amplification.Amplification, ...]:
  """Describe units of sample-level DP-MAML, which clips query examples.

  Algorithm 2 of "Meta-Learning with Differential Privacy" (DP-MAML), with
  first-order outer gradients and averages over public constants.

  Every level. A task releases the sum of the clipped first-order gradients of
  its way * query query examples, whatever it adapted to: one clip unit of norm
  way * query * C. So the distances are those of clipping per task with the
  noise multiplier z / (way * query); support examples give no outer gradient.

  Examples. Let t be an example whose class is sampled. The last stage samples
  n = shot + query of N > n examples in uniformly random order; the first `shot`
  are the support. With probability n / N one of these places is t's. Given that
  none is, the sample is distributed as without t. Given that one is, it is the
  same with a uniform other example in that place. So M(T) = (1 - p) M_0 +
  p_s M_s + p_q M_q with M_0 = M(T - t), and by joint convexity it is at most as
  bad as the worse of the two mixtures that put all of p = n / N on one role. In
  M_q one query example differs: the outer sum moves by 2C. In M_s one support
  example differs: each of the S inner steps releases a sum that moves by at
  most 2 C_inner with noise z_inner C_inner, given the ones before. Together
  they are dominated by one Gaussian at distance 2 sqrt(S) / z_inner. Everything
  else reads only them and other examples. This holds for first-order gradients:
  a second-order gradient reads the support set again, without noise. So either
  way the pair is dominated at 2 max(sqrt(S) / z_inner, 1 / z). If the class is
  not sampled the distances above hold, and the proof of `amplification` splits
  the divergence before it bounds its parts.
  """
  mechanism, episode = release.mechanism, release.plan.episode
  assert episode is not None
  assert mechanism.inner_noise_multiplier and mechanism.inner_steps
  z = float(mechanism.noise_multiplier)
  tasks = dataclasses.replace(
      mechanism,
      clip_unit=release.task_unit,
      noise_multiplier=z / (episode.way * episode.query),
      inner_clip_norm=None,
      inner_noise_multiplier=None,
  )
  found = _tree(release.replace(mechanism=tasks), k, replaced=replaced)
  if k < release.hierarchy.depth - 1:
    return found
  inner = mechanism.inner_noise_multiplier / math.sqrt(mechanism.inner_steps)
  own = 2 / min(inner, z)
  return tuple(
      dataclasses.replace(
          kind,
          unit_sensitivity=own,
          # No less than half of the own: see section 3 of the proof.
          outer_distances=tuple(
              max(d, own / 2) for d in kind.outer_distances[:k]
          ) + (own,) * replaced,
      )
      for kind in found
  )


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A part of a run with equal steps.

  Attributes:
    release: the release of each step.
    steps: number of steps, at least 1.
  """

  release: plan_lib.Release
  steps: int

  def same_description(self, other: "Entry") -> bool:
    """Return whether another entry has an equal sampler and release."""
    a, b = self.release, other.release
    return a == b or (  # The very same hierarchy.
        plan_lib.to_dict(a) == plan_lib.to_dict(b)
    )


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
  release, steps = entry.release, int(entry.steps)
  units = unit_profiles(release, level, replaced=replaced)
  stage = release.plan.stages[0]
  if not isinstance(stage, plan_lib.RandomAllocation) or stage.steps == 1:
    return (Phase(units, steps),)
  passes, rest = divmod(steps, stage.steps)
  parts = [(stage.steps, passes)]
  found = []
  if rest == 1:
    found.append(Phase(units, 1))
  elif rest:
    parts.append((rest, 1))
  primary_unit = not release.hierarchy.level_index(level)
  if condition_on_step and (replaced or not primary_unit):
    passes = sum(times for _, times in parts)
    found.append(Phase(tuple(map(_in_known_step, units)), passes))
  else:
    primary = unit_profiles(release, release.levels[0])
    farthest = max(unit.tail[1] for unit in primary)
    for released, times in parts:
      whole = allocation.Allocation(stage.steps, released, farthest)
      inner = tuple(_in_pass(whole, unit) for unit in units)
      found.append(Phase(tuple(dict.fromkeys(inner)), times))
  return tuple(phase for phase in found if phase.times)


def _in_known_step(
    unit: unit_profile.UnitProfile,
) -> amplification.Amplification:
  """Describe a unit in the step of a pass that uses its primary unit."""
  assert isinstance(unit, amplification.Amplification)  # Nothing recurs.
  if not unit.outer_rates:
    return dataclasses.replace(unit, rate=1.0)
  return dataclasses.replace(unit, outer_rates=(1.0, *unit.outer_rates[1:]))


def _in_pass(
    whole: allocation.Allocation, unit: unit_profile.UnitProfile
) -> unit_profile.UnitProfile:
  """Describe a unit in a pass that counts as one step."""
  assert isinstance(unit, amplification.Amplification)  # Nothing recurs.
  if not unit.outer_rates:
    return whole
  return allocation.NestedAllocation(
      whole=whole, parent_rate=math.prod(unit.outer_rates[1:]), rate=unit.rate
  )


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
      isinstance(e.release.plan.stages[0], plan_lib.RandomAllocation)
      and e.release.hierarchy.level_index(level) > 0
      for e in entries
  ):
    conditions.append(True)
  result = []
  for condition in conditions:
    times: dict[tuple[unit_profile.UnitProfiles, int], int] = {}
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
  if replaced and any(
      isinstance(unit, recurrence.Recurrence)
      for phase in result[0]
      for unit in phase.unit_profiles
  ):
    return ()
  return tuple(result)


# The whole run ---------------------------------------------------------------


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
          ).times(int(e.steps))
          for e in entries
      ),
      start=sampler_error.EXACT,
  )
  # `unmatched` is for one family, but a unit may be in several.
  places = max(
      (
          getattr(unit, "places", 1)
          for run in runs for phase in run for unit in phase.unit_profiles
      ),
      default=1,
  )
  error = dataclasses.replace(error, unmatched=places * error.unmatched)
  if lost:
    error = _depleted_error(error, entries, level, group * places)
  if not replaced:
    return Ways(group, runs, None, error)
  tree = routes(entries, level, replaced=True)
  # Only in passes may an exchange cost less than the tree's own curve.
  single = tuple(run for run in runs if not (tree and _of_tree(run)))
  return Ways(group, single, tree, error)


# Types of units of a tree that are sampled anew in every step.
_TREE = (
    amplification.Amplification, random_count.RandomCount, random_count.RandomType
)


def _of_tree(run: Phases) -> bool:
  """Return whether all units of a run are those of a tree."""
  return all(
      isinstance(unit, _TREE) for phase in run for unit in phase.unit_profiles
  )


@dataclasses.dataclass(frozen=True)
class _Depleted(plan_lib.FixedSize):
  """`FixedSize(n)` in families that may have lost some units.

  Attributes:
    lost: the largest number of units that may have left one family.
  """

  lost: int = 0

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Return the largest rate of those that stay: n / (N - lost), float64."""
    return super().rate(np.asarray(children) - self.lost)


def _depleted(entry: Entry, level: str, lost: int) -> Entry:
  """Describe an entry after some units of a level have left.

  Raises:
    UnsoundPlanError: a `FixedSize` stage has no proof without these units.
  """
  hierarchy, episode = entry.release.hierarchy, entry.release.plan.episode
  k, stages = hierarchy.level_index(level), entry.release.plan.stages
  stage = stages[k]
  if not lost or not isinstance(stage, plan_lib.FixedSize):
    return entry
  form = "unit" if episode is None else episode.form
  spare = int(hierarchy.child_counts(k).min()) - stage.n
  if spare <= lost and (form == "disjoint" or entry.release.sample_level):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for {lost + 1} units of level '{level}' together:"
        f" without them {stage} does not fill every slot; use a group of at"
        f" most {max(spare, 1)}"
    )
  left = (*stages[:k], _Depleted(stage.n, lost), *stages[k + 1 :])
  plan = dataclasses.replace(entry.release.plan, stages=left)
  return Entry(entry.release.replace(plan=plan), entry.steps)


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
    if isinstance(
        entry.release.plan.stages[k],
        (plan_lib.Poisson, plan_lib.RandomAllocation),
    ):
      parents = hierarchy.num_units(k - 1) if k else 1
      families += int(entry.steps) * min(group, parents)
  if not families:
    return error
  more = families * _TABLE_ERROR
  return dataclasses.replace(
      error,
      variation=error.variation + more,
      tails=error.tails + more,
      unmatched=math.inf,
  )
