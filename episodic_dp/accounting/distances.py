"""From hierarchy, plan and mechanism to rates and distances.

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
"""

import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import amplification

# More distinct kinds of units than this are merged into their upper bounds.
MAX_KINDS = 24


def kinds(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
) -> tuple[amplification.Amplification, ...]:
  """The distinct kinds of units of a level, none dominated by another.

  Args:
    hierarchy: the public sizes.
    plan: one stage per level.
    mechanism: z > 0.
    level: the privacy unit.

  Returns:
    One `Amplification` per distinct tuple of rates and distances. The profile
    grows with every rate and distance, so a kind that is nowhere above another
    is left out, and more than `MAX_KINDS` kinds are merged in groups, each
    taking its largest rates and distances.

  Raises:
    UnsoundPlanError: no guarantee is proved for this combination.
    PlanError: plan, hierarchy and mechanism disagree, or there is no noise.
  """
  k = hierarchy.level_index(level)
  refuse_unsound(hierarchy, plan, mechanism, level)
  clip = clip_level(hierarchy, mechanism)
  z = float(mechanism.noise_multiplier)
  if z == 0:
    raise plan_lib.PlanError(
        "noise_multiplier is 0: distances are in standard deviations of the"
        " noise, so give a positive one (epsilon is infinite without noise)"
    )
  sizes, touched = _paths(hierarchy, plan, k, clip)
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
  front = _merge(_undominated(sorted(set(rows), reverse=True)), MAX_KINDS)
  return tuple(
      amplification.Amplification(
          row[:k], row[k], row[k + 1 : -1], row[-1]
      )
      for row in front
  )


def clip_level(
    hierarchy: plan_lib.Hierarchy, mechanism: plan_lib.Mechanism
) -> int:
  """The level (from 0) whose units lie inside one clip unit or are it.

  For tasks made of classes this is the class level: several of its units share
  one clip unit.
  """
  if mechanism.clip_unit == plan_lib.EPISODE:
    return hierarchy.depth - 2
  return hierarchy.level_index(mechanism.clip_unit)


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
  """int64[units of the level]: most clip units that are drawn under each.

  For a regular hierarchy the one number that holds for all, as int64[1].
  Poisson stages count every child, whatever their rate.
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
  """The most tasks that a block of consecutive classes can have a part in.

  Tasks are [0, way), [way, 2 way), ...; blocks start at multiples of `classes`.
  """
  return max(
      ((m + 1) * classes - 1) // way - (m * classes) // way + 1
      for m in range(min(way, 10_000))
  )


def _paths(hierarchy, plan, level, clip) -> tuple[np.ndarray, np.ndarray]:
  """Distinct family sizes and M on the paths to a level's units."""
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


def refuse_unsound(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
) -> None:
  """UnsoundPlanError where no guarantee is proved; PlanError for nonsense."""
  k = hierarchy.level_index(level)
  plan_lib.validate(hierarchy, plan)
  _check_clip_unit(hierarchy, plan, mechanism)
  if hierarchy.copies and k > 0:
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{level}': the same record may sit under"
        f" several units of level '{hierarchy.levels[0]}' (copies=True), and"
        " the tree of partitions does not hold below it; ask for level"
        f" '{hierarchy.levels[0]}'"
    )
  episode = plan.episode
  if episode is None or episode.form != "disjoint" or k == hierarchy.depth - 1:
    return
  # Tasks are cut out of the drawn classes by position. Without one of its units
  # the stage must still draw as many, or every later task is regrouped.
  stage = plan.stages[k]
  counts = hierarchy.child_counts(k)
  full = not isinstance(stage, plan_lib.FixedSize) or bool(
      (counts[counts > 0] <= stage.n).any()
  )
  drawn = plan_lib.capacities(hierarchy, plan)
  block = math.prod(drawn[k + 1 : hierarchy.depth - 1])
  if full and (k > 0 or block % episode.way):
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{level}': {stage} draws every unit of a"
        " family, so without one of them fewer classes are drawn and the tasks"
        f" are regrouped; draw FixedSize({max(int(counts.min()) - 1, 1)}) or"
        " fewer"
    )


def _check_clip_unit(hierarchy, plan, mechanism) -> None:
  """The clip unit must be what the episode makes a task of."""
  unit, episode = mechanism.clip_unit, plan.episode
  primary = hierarchy.levels[0]
  if unit != plan_lib.EPISODE:
    clip = hierarchy.level_index(unit)
  elif episode is None or episode.form == "unit":
    nearest = primary if episode is not None else hierarchy.levels[-1]
    raise plan_lib.PlanError(
        "clip_unit 'episode' is for tasks made of drawn classes"
        " (form='disjoint'); this plan has "
        + ("no episode" if episode is None else "form='unit'")
        + f": use clip_unit='{nearest}'"
    )
  else:
    clip = 0
  if episode is None:
    return
  if episode.form == "independent":
    raise plan_lib.UnsoundPlanError(
        "form='independent' draws the classes of every task anew, so that"
        " records recur across tasks and the tree of partitions does not hold;"
        " no guarantee is available for it: use form='disjoint'"
    )
  task = primary if episode.form == "unit" else plan_lib.EPISODE
  if unit == task:
    return
  if episode.form == "disjoint" and clip < hierarchy.depth - 1:
    raise plan_lib.UnsoundPlanError(
        f"clip_unit '{unit}' is not what form='disjoint' makes tasks of (groups"
        " of drawn classes); use clip_unit='episode'"
    )
  raise plan_lib.UnsoundPlanError(
      f"clip_unit '{unit}' lies inside an adapted task: clipping per example"
      " there needs the rules of sample-level training, which are not available"
      f" yet; use clip_unit='{task}', or a plan without an episode"
  )
