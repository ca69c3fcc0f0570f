"""From a release to the rates and distances of its units.

Distances are in standard deviations of the noise. With z the noise multiplier
and M_j the largest number of clip units that are sampled under any one unit of
level j (over siblings; 1 at the clip level and below):

  own stage        2/z inside a clip unit; else M/z where the stage is `Poisson`
                   or `All` (the unit is absent) and 2M/z where it is
                   `FixedSize` (another unit takes its place);
  outer stage j    the same with M_j; only stages of rate below 1 have one.

Tasks of form "disjoint" are groups of `way` consecutive classes in drawn order,
and the order within each unit is uniformly random, so a unit that is replaced
is replaced in its own place: it changes exactly the tasks that its block of
classes touches. A block of b classes that starts at a multiple of b touches
b / way tasks if way divides b, one if b divides way, and never more than the
largest count over its possible places. M_j is that count.

Tasks of form "independent" are each drawn from the whole pool: see
`_independent`; records below the primary units of a hierarchy with copies: see
`_copied`; clip units inside a task whose inner steps are noisy: see
`_sample_level`.
"""

import dataclasses
import functools
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import assumptions
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import soundness

# More distinct kinds of units than this are merged into their upper bounds.
MAX_KINDS = 24


@functools.lru_cache(maxsize=64)  # A ledger asks after every step.
def unit_profiles(
    release: plan_lib.Release, level: str
) -> unit_profile.UnitProfiles:
  """Find the distinct kinds of units of a level, none dominated by another.

  Args:
    release: with a noise multiplier above 0.
    level: the privacy unit.

  Returns:
    One `Amplification` per distinct tuple of rates and distances, or one
    `Recurrence` where a unit of the level can be drawn several times in one
    step. The profile grows with every rate and distance, so a kind that is
    nowhere above another is left out, and more than `MAX_KINDS` kinds are
    merged in groups, each taking its largest rates and distances.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  hierarchy, mechanism = release.hierarchy, release.mechanism
  plan_lib.check_level(release, level)
  assumptions.refuse_un_noised(mechanism)
  if mechanism.noise_multiplier == 0:
    raise plan_lib.PlanError(
        "noise_multiplier is 0: distances are in standard deviations of the"
        " noise, so give a positive one (epsilon is infinite without noise)"
    )
  k = hierarchy.level_index(level)
  episode = release.plan.episode
  if episode is not None and episode.form == "independent":
    return _independent(release, k)
  if hierarchy.copies and k > 0:
    return _copied(release, k)
  if release.sample_level:
    return _sample_level(release, k)
  return _tree(release, k)


def _tree(
    release: plan_lib.Release, k: int
) -> tuple[amplification.Amplification, ...]:
  """Units of a tree of partitions."""
  plan, clip = release.plan, release.clip_level
  z = float(release.mechanism.noise_multiplier)
  sizes, touched = _paths(release, k)
  rows = []
  for size, count in zip(sizes, touched):
    rates = [
        float(plan.stages[j].rate(np.asarray(size[j]))) for j in range(k + 1)
    ]
    lengths = [
        _distance(plan.stages[j], int(count[j]), inside=j > clip) / z
        for j in range(k + 1)
    ]
    rows.append((*rates, *lengths))
  return tuple(
      amplification.Amplification(
          row[:k], row[k], row[k + 1 : -1], row[-1]
      )
      for row in _front(rows)
  )


def _independent(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Units of a level where every task of a step is drawn from the whole pool.

  Each of the L tasks draws the unit's parent with probability q = r_1 ..
  r_(k-1), whether or not the unit t exists, and independently of the others: J
  is Binomial(L, q). Given that it does, let the stage draw n of the N children.
  For n < N, with probability p = n / N the task holds t in one of its places;
  given that it does not, what it draws is distributed as without t, and given
  that it does, the same with a uniform other child in t's place. For a full
  stage (`All`, or n >= N) p = 1, and without t the task has one unit less. In
  both cases one task becomes another one with probability p, independently for
  each task, and its clipped gradient moves by at most 2C. No other task
  changes, full stage or not: tasks share no draws, and none is regrouped.
  """
  return tuple(
      dataclasses.replace(
          kind, distance=2 / float(release.mechanism.noise_multiplier)
      )
      for kind in _in_tasks(release, k)
  )


def _in_tasks(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `_independent`, at distance 1."""
  plan = release.plan
  assert plan.episode is not None and plan.episode.tasks is not None
  rows: list[tuple[float, ...]] = [
      (float(np.prod(rates[:-1])), float(rates[-1]))
      for rates in plan_lib.rate_paths(release.hierarchy, plan, k)
  ]
  return tuple(
      recurrence.Recurrence(
          places=plan.episode.tasks, place_rate=q, rate=p, distance=1.0
      )
      for q, p in _front(rows)
  )


def _copied(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """Records (or classes) that several primary units hold, M of them at most.

  Neighbours differ by the record in every primary unit that holds it. Which
  primary units are drawn does not depend on it, and those that are draw their
  inner stages independently of each other. So the number J of drawn holders
  that also draw the record's parent is Binomial(M, q), where q is the product
  of the rates above the record's own, for `Poisson` and `All` primary stages;
  for `FixedSize` the drawn holders are hypergeometric, and each of them then
  draws the parent with the product of the inner rates. J has the same
  distribution without the record. Each such parent draws the record with its
  own rate p, and what it draws otherwise is distributed as without it.

  The inner rates above the record's own belong to J, which is revealed. Were
  they part of p, a holder that does not draw the record would be taken to be as
  without it, but it tends to draw other parents: the direction "add" fails.
  """
  _, counts = _paths(release, k)
  moved = _distance(
      release.plan.stages[k], int(counts[0][k]), inside=k > release.clip_level
  )
  (kind,) = _in_holders(release, k)
  return (
      dataclasses.replace(
          kind, distance=moved / float(release.mechanism.noise_multiplier)
      ),
  )


def _in_holders(
    release: plan_lib.Release, k: int
) -> tuple[recurrence.Recurrence, ...]:
  """The units of `_copied`, at distance 1; the hierarchy is regular."""
  hierarchy, plan = release.hierarchy, release.plan
  assert hierarchy.most_copies is not None
  (rates,) = plan_lib.rate_paths(hierarchy, plan, k).tolist()
  first, units = plan.stages[0], hierarchy.num_units(0)
  inner = math.prod(rates[1:k])
  drawn_of = None
  if isinstance(first, plan_lib.FixedSize) and first.n < units:
    drawn_of = (int(first.n), units)
  return (
      recurrence.Recurrence(
          places=int(hierarchy.most_copies[k]),
          place_rate=inner if drawn_of else rates[0] * inner,
          rate=rates[k],
          distance=1.0,
          drawn_of=drawn_of,
      ),
  )


def inclusion_rate(release: plan_lib.Release, level: str) -> float:
  """Compute the largest probability that a step draws a unit of the level.

  `plan.inclusion_rate` is that of one place, in one task or one primary unit;
  here a unit that can be drawn at several places counts at all of them.
  """
  hierarchy, plan = release.hierarchy, release.plan
  k = hierarchy.level_index(level)
  if plan.episode is not None and plan.episode.form == "independent":
    found = _in_tasks(release, k)
  elif k > 0 and hierarchy.most_copies is not None and hierarchy.most_copies[k]:
    found = _in_holders(release, k)
  else:
    return plan_lib.inclusion_rate(hierarchy, plan, level)
  return max(kind.inclusion_rate for kind in found)


def _sample_level(
    release: plan_lib.Release, k: int
) -> tuple[amplification.Amplification, ...]:
  """Sample-level DP-MAML: noisy inner steps, one clip unit per query example.

  Algorithm 2 of "Meta-Learning with Differential Privacy" (DP-MAML), with
  first-order outer gradients and averages over public constants.

  Every level. A task releases the sum of the clipped first-order gradients of
  its way * query query examples, whatever it adapted to: one clip unit of norm
  way * query * C. So the distances are those of clipping per task with the
  noise multiplier z / (way * query); support examples give no outer gradient.

  Examples. Let t be an example, and its class be drawn. The last stage draws n
  = shot + query of N > n examples in uniformly random order, the first `shot`
  being the support. With probability n / N one of these places is t's; given
  that none is, the draw is distributed as without t, and given that one is, the
  same with a uniform other example in that place. So M(T) = (1 - p) M_0 +
  p_s M_s + p_q M_q with M_0 = M(T - t), and by joint convexity it is at most as
  bad as the worse of the two mixtures that put all of p = n / N on one role. In
  M_q one query example differs: the outer sum moves by 2C. In M_s one support
  example differs: each of the S inner steps releases a sum that moves by at
  most 2 C_inner with noise z_inner C_inner, given the ones before; together
  they are dominated by one Gaussian at distance 2 sqrt(S) / z_inner. All else
  reads them and other examples only, which holds for first-order gradients: a
  second-order one reads the support set again, without noise. So either way the
  pair is dominated at 2 max(sqrt(S) / z_inner, 1 / z). Where the class is not
  drawn the distances above hold, and the proof of `amplification` splits the
  divergence before it bounds its parts.
  """
  mechanism, episode = release.mechanism, release.plan.episode
  assert episode is not None
  assert mechanism.inner_noise_multiplier and mechanism.inner_steps
  z = float(mechanism.noise_multiplier)
  tasks = dataclasses.replace(
      mechanism,
      clip_unit=soundness.task_unit(release),
      noise_multiplier=z / (episode.way * episode.query),
      inner_clip_norm=None,
      inner_noise_multiplier=None,
  )
  found = _tree(release.replace(mechanism=tasks), k)
  if k < release.hierarchy.depth - 1:
    return found
  inner = mechanism.inner_noise_multiplier / math.sqrt(mechanism.inner_steps)
  return tuple(
      dataclasses.replace(kind, unit_sensitivity=2 / min(inner, z))
      for kind in found
  )


def _distance(stage: plan_lib.Stage, count: int, inside: bool) -> float:
  """How far the sum moves, in clip norms, without the stage's unit."""
  if inside:
    return 2.0
  if isinstance(stage, plan_lib.FixedSize):
    return 2.0 * count
  return float(count)


def clip_units_below(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    clip: int,
    level: int,
) -> np.ndarray:
  """Count the most clip units that are drawn under each unit of the level.

  Poisson stages count every child, whatever their rate.

  Returns:
    int64[units of the level], or int64[1] for a regular hierarchy, whose units
    are all alike.
  """
  if level >= clip:
    return np.ones(
        1 if hierarchy.sizes is not None else hierarchy.num_units(level),
        np.int64,
    )
  below = clip_units_below(hierarchy, plan, clip, level + 1)
  counts = hierarchy.child_counts(level + 1)
  stage = plan.stages[level + 1]
  if hierarchy.sizes is not None:
    drawn = counts
    if isinstance(stage, plan_lib.FixedSize):
      drawn = np.minimum(counts, stage.n)
    return drawn * below
  parents = hierarchy.parents(level + 1)
  if isinstance(stage, plan_lib.FixedSize):
    order = np.lexsort((-below, parents))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)[:-1]])
    rank = np.arange(parents.size) - starts[parents]
    kept = below[order] * (rank < stage.n)
    return np.bincount(
        parents, weights=kept, minlength=counts.size
    ).astype(np.int64)
  return np.bincount(parents, weights=below, minlength=counts.size).astype(
      np.int64
  )


def tasks_touched(classes: int, way: int) -> int:
  """Count the most tasks that a block of consecutive classes can touch.

  Tasks are [0, way), [way, 2 way), ...; blocks start at multiples of `classes`.
  """
  return max(
      ((m + 1) * classes - 1) // way - (m * classes) // way + 1
      for m in range(min(way, 10_000))
  )


def _paths(
    release: plan_lib.Release, level: int
) -> tuple[np.ndarray, np.ndarray]:
  """Distinct family sizes and M on the paths to a level's units.

  Returns:
    Two int64[distinct, level + 1].
  """
  hierarchy, plan, clip = release.hierarchy, release.plan, release.clip_level
  episode = plan.episode
  if episode is not None and episode.form != "unit":
    sizes = hierarchy.size_paths(level)
    drawn = plan_lib.capacities(hierarchy, plan)
    counts = [
        tasks_touched(math.prod(drawn[j + 1 : clip + 1]), episode.way)
        for j in range(level + 1)
    ]
    return sizes, np.tile(np.asarray(counts, np.int64), (len(sizes), 1))
  if hierarchy.sizes is not None:
    counts = [
        int(clip_units_below(hierarchy, plan, clip, j)[0])
        for j in range(level + 1)
    ]
    return hierarchy.size_paths(level), np.asarray([counts], np.int64)
  columns = np.zeros((1, 0), np.int64)
  for j in range(level + 1):
    sizes = hierarchy.child_counts(j)
    below = clip_units_below(hierarchy, plan, clip, j)
    largest = np.zeros(sizes.size, np.int64)
    np.maximum.at(largest, hierarchy.parents(j), below)
    columns = np.concatenate(
        [columns, sizes[:, None], largest[:, None]], axis=1
    )
    columns = columns[sizes > 0] if j == level else np.repeat(
        columns, sizes, axis=0
    )
  columns = np.unique(columns, axis=0)
  return columns[:, 0::2], columns[:, 1::2]


def _undominated(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """The rows that no other row equals or exceeds in every column."""
  kept: list[tuple[float, ...]] = []
  for row in rows:  # sorted downwards: only an earlier row can dominate
    if not any(all(a >= b for a, b in zip(k, row)) for k in kept):
      kept.append(row)
  return kept


def _front(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """Rows that between them are above all, `MAX_KINDS` at most."""
  return _merge(_undominated(sorted(set(rows), reverse=True)), MAX_KINDS)


def _merge(
    rows: list[tuple[float, ...]], limit: int
) -> list[tuple[float, ...]]:
  """At most `limit` rows, every given row under one of them."""
  if len(rows) <= limit:
    return rows
  size = math.ceil(len(rows) / limit)
  groups = [rows[i : i + size] for i in range(0, len(rows), size)]
  return _undominated(
      sorted((tuple(map(max, zip(*group))) for group in groups), reverse=True)
  )
