"""How far a unit moves the sum: clip units counted along a path of the tree.

All counts and distances are in clip norms; `sensitivity` divides them by the
noise multiplier.
"""

import math

import numpy as np

from episodic_dp import plan as plan_lib


def moved(stage: plan_lib.Stage, count: int, inside: bool) -> float:
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


def paths(
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
