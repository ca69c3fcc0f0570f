"""Distances: clip units counted along the paths of a tree.

A unit's path is itself and what it lies in, primary unit first. All counts and
distances are in clip norms; `sensitivity` divides by the noise multiplier.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.plan import sampler_error


class Paths(NamedTuple):
  """The distinct paths to the units of a level; column j is of level j.

  Attributes:
    sizes: int64[paths, level + 1], the children that share the unit's parent.
    own: int64[paths, level + 1], the most clip units that are drawn under the
      unit (1 at the clip level and below).
    others: int64[paths, level + 1], the most under any one of its siblings.
    filled: float64[paths], the probability that the last unit, once drawn,
      brings anything: a clip unit or, inside one, an example. An upper bound,
      above 0.
  """

  sizes: np.ndarray
  own: np.ndarray
  others: np.ndarray
  filled: np.ndarray


def exchanges(stage: plan_lib.Stage, size: int) -> bool:
  """Return whether another unit replaces one that is not drawn."""
  return isinstance(stage, plan_lib.FixedSize) and size > stage.n


def moved(
    stage: plan_lib.Stage, size: int, own: int, others: int, *, inside: bool
) -> float:
  """Bound how far the sum moves, in clip norms, without the stage's unit.

  Args:
    stage: that draws the unit.
    size: the children it draws from, the unit among them.
    own: the most clip units under the unit.
    others: the most under any one of its siblings.
    inside: whether the unit lies inside one clip unit.
  """
  if inside:
    return 2.0
  return float(own + (others if exchanges(stage, size) else 0))


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
  below: np.ndarray | int = 1
  if level + 1 < clip:
    below = clip_units_below(hierarchy, plan, clip, level + 1)
  return _most(hierarchy, plan.stages[level + 1], level + 1, below)


def _most(
    hierarchy: plan_lib.Hierarchy,
    stage: plan_lib.Stage,
    level: int,
    each: np.ndarray | float,
) -> np.ndarray:
  """The largest sum over the children that one draw of the stage can hold.

  Args:
    hierarchy: the tree.
    stage: of the level; `FixedSize(n)` draws the n largest.
    level: of the children.
    each: >= 0, of every unit of the level, or one number where all are alike.

  Returns:
    One of every unit of the level above, of the dtype of `each`.
  """
  counts = hierarchy.child_counts(level)
  most = stage.n if isinstance(stage, plan_lib.FixedSize) else None
  if hierarchy.sizes is not None or not isinstance(each, np.ndarray):
    drawn = counts if most is None else np.minimum(counts, most)
    # Nothing drawn is 0 even where each is infinite.
    return drawn * np.where(drawn > 0, each, 0)
  parents = hierarchy.parents(level)
  if most is not None:
    order = np.lexsort((-each, parents))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)[:-1]])
    rank = np.arange(parents.size) - starts[parents]
    each = np.where(rank < most, each[order], 0)
  return np.bincount(
      parents, weights=each, minlength=counts.size
  ).astype(each.dtype)


def _log_empty(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    target: int,
    level: int,
) -> np.ndarray | float:
  """-ln of a lower bound on P(no unit of the target level is drawn below).

  Of a drawn unit of the level. Its children are drawn independently but for
  `FixedSize`, whose n are empty together at least as often as the n fullest.

  Returns:
    float64[units of the level] (see `clip_units_below`), or one number.
  """
  if level >= target:
    return math.inf
  stage = plan.stages[level + 1]
  below = _log_empty(hierarchy, plan, target, level + 1)
  if isinstance(stage, plan_lib.Poisson):
    with np.errstate(divide="ignore"):
      below = -np.log1p(stage.p * np.expm1(-below))
  return _most(hierarchy, stage, level + 1, below)


def _largest_other(
    hierarchy: plan_lib.Hierarchy, level: int, below: np.ndarray
) -> np.ndarray:
  """The largest value among each unit's siblings, 0 where it has none.

  Args:
    hierarchy: a ragged one.
    level: of the units.
    below: int64[units of the level], >= 0.
  """
  parents = hierarchy.parents(level)
  order = np.lexsort((-below, parents))
  families, first = np.unique(parents, return_index=True)
  top = np.zeros(hierarchy.child_counts(level).size, np.int64)
  at_top = np.zeros_like(top)
  second = np.zeros_like(top)
  at_top[families], top[families] = order[first], below[order[first]]
  several = np.append(first[1:], parents.size) - first > 1
  second[families[several]] = below[order[first[several] + 1]]
  is_top = np.arange(parents.size) == at_top[parents]
  return np.where(is_top, second[parents], top[parents])


def tasks_touched(classes: int, way: int) -> int:
  """Count the most tasks that a block of consecutive classes can touch.

  Tasks are [0, way), [way, 2 way), ...; blocks start at multiples of `classes`.
  """
  return max(
      ((m + 1) * classes - 1) // way - (m * classes) // way + 1
      for m in range(min(way, 10_000))
  )


def paths(release: plan_lib.Release, level: int) -> Paths:
  """The distinct paths to a level's units, by what they count for."""
  hierarchy, plan, clip = release.hierarchy, release.plan, release.clip_level
  episode = plan.episode
  if episode is not None and episode.form != "unit":
    sizes = hierarchy.size_paths(level)
    drawn = sampler_error.capacities(hierarchy, plan)
    counts = [
        tasks_touched(math.prod(drawn[j + 1 : clip + 1]), episode.way)
        for j in range(level + 1)
    ]
    own = np.tile(np.asarray(counts, np.int64), (len(sizes), 1))
    # A block of classes is exchanged for another in its own place.
    return Paths(sizes, own, own, np.ones(len(sizes)))
  target = clip if level <= clip else hierarchy.depth - 1
  filled = -np.expm1(
      -np.asarray(_log_empty(hierarchy, plan, target, level), float)
  )
  filled = np.where(filled > 0, filled, 1.0)
  if hierarchy.sizes is not None:
    counts = [
        int(clip_units_below(hierarchy, plan, clip, j)[0])
        for j in range(level + 1)
    ]
    sizes = hierarchy.size_paths(level)
    own = np.asarray([counts], np.int64)
    return Paths(sizes, own, own * (sizes > 1), filled.reshape(1))
  return _ragged_paths(release, level, filled)


def _ragged_paths(
    release: plan_lib.Release, level: int, filled: np.ndarray
) -> Paths:
  """The paths of a ragged hierarchy; filled: float64[units] or a number."""
  hierarchy, plan, clip = release.hierarchy, release.plan, release.clip_level
  sizes, own, others = (np.zeros((1, 0), np.int64) for _ in range(3))
  ids = np.zeros(1, np.int64)  # The row of each unit of the level above.
  for j in range(level + 1):
    counts = hierarchy.child_counts(j)
    by_unit = j < clip or (j == level and filled.ndim > 0)
    if by_unit:
      parents = hierarchy.parents(j)
      below = clip_units_below(hierarchy, plan, clip, j)
      other = _largest_other(hierarchy, j, below)
    else:  # The units of a family are alike: one row for all of them.
      parents = np.flatnonzero(counts)
      below = np.ones(parents.size, np.int64)
      other = (counts[parents] > 1).astype(np.int64)
    columns = [ids[parents], counts[parents], below, other]
    if j == level and filled.ndim > 0:
      columns.append(filled)
    first, which = _distinct(columns)
    above, size, below, other = (c[first] for c in columns[:4])
    sizes = np.column_stack([sizes[above], size])
    own = np.column_stack([own[above], below])
    others = np.column_stack([others[above], other])
    ids = which if by_unit else np.repeat(which, counts[parents])
  last = columns[4][first] if filled.ndim > 0 else np.full(len(sizes), filled)
  return Paths(sizes, own, others, last)


def _distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Find the first place of each distinct row, and the number of every row."""
  code = np.zeros(columns[0].size, np.int64)
  for column in columns:
    values, inverse = np.unique(column, return_inverse=True)
    code = np.unique(code * values.size + inverse, return_inverse=True)[1]
  _, first, which = np.unique(code, return_index=True, return_inverse=True)
  return first, which


# More distinct kinds of units than this are merged into their upper bounds.
MAX_KINDS = 24


def front(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """Rows that between them are above all, `MAX_KINDS` at most."""
  return merge(_undominated(sorted(set(rows), reverse=True)), MAX_KINDS)


def _undominated(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """The rows that no other row equals or exceeds in every column."""
  kept: list[tuple[float, ...]] = []
  above = np.zeros((len(rows), len(rows[0]) if rows else 0))
  for row in rows:  # Sorted downwards: only an earlier row can dominate.
    if not (above[: len(kept)] >= row).all(axis=1).any():
      above[len(kept)] = row
      kept.append(row)
  return kept


def merge(
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
