"""Distances: clip units counted along the paths of a tree.

A unit's path is the unit and all units that contain it, primary unit first.
Counts and distances are in clip norms. Distances in profiles, which `averaged`
and `sensitivity` make, are in standard deviations of the noise.

Random numbers. A step may sample a random number of a unit's clip units: for
example users whose examples are clipped one by one and sampled by `Poisson`, at
any depth below the user. Their number is a compound of binomials. Below a
`Poisson` stage children are included independently, below `All` all are, so the
numbers of the children add up. Below `FixedSize(n)` the sum of n of them is at
most, in the stochastic order, that of the n largest.

Two families of a level are of one type if they have equally many children of
each type. A profile grows with the number of clip units. So several types may
be merged into one that has, of every type of children, the largest number among
them. The random number of a type may also be replaced by the smallest number
that is stochastically larger than it and than those of all smaller types.
"""

from collections.abc import Collection, Iterator, Sequence
import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts as counts_lib
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles.amplification import UnitProfile
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import sampler_error


class Paths(NamedTuple):
  """The distinct paths to the units of a level; column j is for level j.

  Attributes:
    rates: float64[paths, level + 1], of the stages.
    exchanged: bool[paths, level + 1], whether another unit replaces the path's
      if that is not sampled.
    own: int64[paths, level + 1], the most clip units sampled under the unit (1
      at the clip level and below).
    others: int64[paths, level + 1], the most under any one of its siblings, or
      -1 without siblings.
    drawn: int64[paths, level + 1], the most under all siblings that can be
      sampled with it; 0 unless requested.
    unit: int64[paths], the number of one of the path's last units.
    filled: float64[paths], an upper bound, above 0, on the probability that the
      last unit, once sampled, contributes: a clip unit or, inside one, an
      example.
  """

  rates: np.ndarray
  exchanged: np.ndarray
  own: np.ndarray
  others: np.ndarray
  drawn: np.ndarray
  unit: np.ndarray
  filled: np.ndarray

  @property
  def instead(self) -> np.ndarray:
    """Return the most clip units of what replaces the unit of a level."""
    return np.where(self.exchanged, np.maximum(self.others, 0), 0)

  def changes(self, clip: int) -> np.ndarray:
    """Bound the change of the sum, in clip norms, without a level's unit.

    Args:
      clip: the level of the clip units; units below lie inside one.

    Returns:
      float64[paths, level + 1].
    """
    found = (self.own + self.instead).astype(float)
    found[:, clip + 1 :] = 2.0
    return found


def clip_units_below(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    clip: int,
    level: int,
) -> np.ndarray:
  """Count the most clip units sampled under each unit of the level.

  Poisson stages count every child, whatever their rate.

  Returns:
    int64[units of the level], or int64[1] for a regular hierarchy, whose units
    are all equal.
  """
  if level >= clip:
    units = 1 if hierarchy.sizes is not None else hierarchy.num_units(level)
    return np.broadcast_to(np.int64(1), units)  # Takes no memory.
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
  """Compute the largest sum over the children in one sample of the stage.

  Args:
    hierarchy: the tree.
    stage: stage of the level; `FixedSize(n)` takes the n largest.
    level: level of the children.
    each: >= 0, of every unit of the level, or one number if all are equal.

  Returns:
    One sum for every unit of the level above, with the dtype of `each`.
  """
  counts = hierarchy.child_counts(level)
  drawn = stage.most(counts)
  if hierarchy.sizes is not None or np.ndim(each) == 0:
    # An empty sample gives 0 even if each value is infinite.
    return drawn * np.where(drawn > 0, each, 0)
  parents, values = hierarchy.parents(level), np.asarray(each)
  if (drawn < counts).any():
    order = np.lexsort((-values, parents))
    rank = np.arange(parents.size) - (np.cumsum(counts) - counts)[parents]
    values = np.where(rank < drawn[parents], values[order], 0)
  return np.bincount(
      parents, weights=values, minlength=counts.size
  ).astype(values.dtype)


def _log_empty(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    target: int,
    level: int,
) -> np.ndarray | float:
  """Compute -ln of a lower bound on P(no target unit is sampled below).

  The bound is for a sampled unit of the level. Its children are sampled
  independently, except by `FixedSize`, whose n children are empty together at
  least as often as the n fullest.

  Returns:
    float64[units of the level] (see `clip_units_below`), or one number.
  """
  if level >= target:
    return math.inf
  stage = plan.stages[level + 1]
  below = _log_empty(hierarchy, plan, target, level + 1)
  if stage.coin < 1:
    with np.errstate(divide="ignore"):
      below = -np.log1p(stage.coin * np.expm1(-below))
  return _most(hierarchy, stage, level + 1, below)


def _siblings(
    hierarchy: plan_lib.Hierarchy,
    level: int,
    values: np.ndarray,
    drawn: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Sum the values of every unit's sampled siblings, and find their largest.

  Args:
    hierarchy: a ragged tree.
    level: level of the units.
    values: int64[units].
    drawn: int64[families], the most units that are sampled.

  Returns:
    Two int64[units]: the largest sum over siblings that can be sampled with the
    unit; the largest value of a sibling, or -1.
  """
  parents, family = hierarchy.parents(level), hierarchy.child_counts(level)
  order = np.lexsort((-values, parents))
  starts = np.cumsum(family) - family
  rank = np.empty(values.size, np.int64)
  rank[order] = np.arange(values.size) - starts[parents]
  falling = values[order]
  sums = np.append(0, np.cumsum(falling))
  first, many = starts[parents], drawn[parents]
  own = np.where(rank < many, values, falling[first + many - 1])
  second = falling[np.minimum(first + 1, values.size - 1)]
  second = np.where(family[parents] > 1, second, -1)
  return (
      sums[first + many] - sums[first] - own,
      np.where(rank > 0, falling[first], second),
  )


def tasks_touched(classes: int, way: int) -> int:
  """Count the most tasks that a block of consecutive classes can touch.

  Tasks are [0, way), [way, 2 way), ...; blocks start at multiples of `classes`.
  """
  # The block that begins as late as any in its first task.
  latest = way - math.gcd(classes, way)
  return (latest + classes - 1) // way + 1


def paths(release: plan_lib.Release, level: int) -> Paths:
  """List the distinct paths to the units of a level."""
  hierarchy, plan, clip = release.hierarchy, release.plan, release.clip_level
  if plan.form not in (None, "unit"):
    sizes = hierarchy.size_paths(level)
    drawn = sampler_error.capacities(hierarchy, plan)
    counts = [
        tasks_touched(math.prod(drawn[j + 1 : clip + 1]), plan.task_form.way)
        for j in range(level + 1)
    ]
    own = np.tile(np.asarray(counts, np.int64), (len(sizes), 1))
    # A block of classes is replaced by another one in its own place.
    return _made(plan, sizes, [own, own, 0 * own], np.arange(len(sizes)))
  target = clip if level <= clip else hierarchy.depth - 1
  filled = -np.expm1(
      -np.asarray(_log_empty(hierarchy, plan, target, level), float)
  )
  filled = np.where(filled > 0, filled, 1.0)
  found = _counted_paths(release, level, [filled] if filled.ndim else [])
  if filled.ndim:
    return found._replace(filled=filled[found.unit])
  return found._replace(filled=filled * found.filled)


def _made(
    plan: plan_lib.SamplingPlan,
    sizes: np.ndarray,
    counts: Sequence[np.ndarray],
    unit: np.ndarray,
) -> Paths:
  """Build paths from their family sizes; every last unit contributes."""
  exchanged = np.stack([
      stage.exchanges(size)
      for stage, size in zip(plan.stages, sizes.T, strict=False)
  ], axis=1)
  rates, filled = plan.path_rates(sizes), np.ones(unit.size)
  own, others, drawn = counts
  return Paths(rates, exchanged, own, others, drawn, unit, filled)


def _counted_paths(
    release: plan_lib.Release,
    level: int,
    marks: Sequence[np.ndarray] = (),
    *,
    sums: bool = False,
) -> Paths:
  """Count clip units on the distinct paths to a level.

  Args:
    release: the release of a step.
    level: level of the last units.
    marks: arrays [units] (or [1] for a regular hierarchy) that distinguish the
      last units.
    sums: whether to count the clip units of siblings together.
  """
  hierarchy, plan, clip = release.hierarchy, release.plan, release.clip_level
  table = [np.zeros((1, 0), np.int64) for _ in range(4)]
  ids = np.zeros(1, np.int64)  # The row of each unit of the level above.
  for j, stage in enumerate(plan.stages[: level + 1]):
    counts, extra = hierarchy.child_counts(j), marks if j == level else ()
    below = clip_units_below(hierarchy, plan, clip, j)
    by_unit = hierarchy.sizes is None and (j < clip or bool(extra) or sums)
    if by_unit:
      parents = hierarchy.parents(j)
      drawn, other = _siblings(hierarchy, j, below, stage.most(counts))
    else:  # The units of a family are equal: one row for all of them.
      parents = np.flatnonzero(counts)
      below, family = below[: parents.size], counts[parents]
      drawn = (stage.most(family) - 1) * below
      other = np.where(family > 1, below, -1)
    columns = [counts[parents], below, other, drawn if sums else 0 * drawn]
    first, which = _distinct([ids[parents], *columns, *extra])
    above = ids[parents][first]
    table = [
        np.column_stack([rows[above], column[first]])
        for rows, column in zip(table, columns, strict=True)
    ]
    ids = which
    if not by_unit and hierarchy.sizes is None and j < level:
      ids = np.repeat(which, counts[parents])
  return _made(plan, table[0], table[1:], first)


def _distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Return the first index of each distinct row, and the number of each row."""
  code = np.zeros(columns[0].size, np.int64)
  for column in columns:
    if column.dtype.kind == "f":
      values, inverse = np.unique(column, return_inverse=True)
    else:
      values, inverse = hierarchy_lib.distinct(column - column.min(initial=0))
    code = hierarchy_lib.distinct(code * values.size + inverse)[1]
  first = np.empty(code.max(initial=-1) + 1, np.int64)
  first[code[::-1]] = np.arange(code.size)[::-1]  # The last one written stays.
  return first, code


# More distinct types of units than this are merged into their upper bounds.
MAX_TYPES = 24


class Row(NamedTuple):
  """A type of unit in numbers: where all are larger, so is the profile.

  Attributes:
    rates: of the stages down to the unit's own.
    others: distances, or numbers of clip units, of the stages above.
    own: the same for the unit itself.
  """

  rates: tuple[float, ...]
  others: tuple[float, ...] = ()
  own: tuple[float, ...] = ()


def rows(
    rates: np.ndarray, others: np.ndarray, own: np.ndarray
) -> set[Row]:
  """Return the distinct rows of three arrays [rows, numbers]."""
  parts = rates.tolist(), others.tolist(), own.tolist()
  return {Row(*map(tuple, row)) for row in zip(*parts, strict=True)}


def front(given: Collection[Row], limit: int = MAX_TYPES) -> list[Row]:
  """Find up to `limit` rows such that every given row is below one of them."""
  kept = _undominated(given)
  if len(kept) <= limit:
    return kept
  size = math.ceil(len(kept) / limit)
  merged = [
      Row(*(
          tuple(np.max(part, axis=0).tolist())
          for part in zip(*kept[i : i + size], strict=True)
      ))
      for i in range(0, len(kept), size)
  ]
  return _undominated(merged)


def _undominated(given: Collection[Row]) -> list[Row]:
  """List the rows that no other row equals or exceeds in every number."""
  kept: list[Row] = []
  ranked = sorted(set(given), reverse=True)  # Only an earlier row dominates.
  above = np.zeros((len(ranked), sum(map(len, ranked[0]))))
  for row in ranked:
    flat = np.concatenate(row)
    if not (above[: len(kept)] >= flat).all(axis=1).any():
      above[len(kept)] = flat
      kept.append(row)
  return kept


def tree(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[amplification.Amplification, ...]:
  """Find the units of a tree of partitions.

  The own stage of a replaced unit is one more outer stage: if it does not
  sample the unit, both neighbours are equal.
  """
  clip, z = release.clip_level, float(release.mechanism.noise_multiplier)
  found = paths(release, k)
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
  for row in front(rows(rates, outer, own)):
    (last,) = row.own
    kinds.append(amplification.Amplification(
        row.rates[:-1],
        row.rates[-1],
        tuple(d if math.isfinite(d) else last for d in row.others),
        last,
    ))
  return tuple(kinds)


# Random numbers of clip units ------------------------------------------------

# More types of units than the first are merged if they sample random numbers,
# and more values of a number than the second are rounded up.
_MAX_ROWS, _MAX_NUMBERS = 6, 320


def has_random_number(
    release: plan_lib.Release, k: int, *, own: bool = False
) -> bool:
  """Return whether units on the path to level k sample random counts.

  The counts are of clip units. Also false if another proof applies: one pass
  over the units, tasks, and units inside one clip unit.

  Args:
    release: the release of a step.
    k: the level.
    own: whether to check the units only.
  """
  plan, clip = release.plan, release.clip_level
  drawn = plan.stages[k + 1 if own else 1 : clip + 1]
  return (
      plan.episode is None
      and k <= clip
      and plan.pass_steps is None
      and any(stage.random_count for stage in drawn)
  )


@dataclasses.dataclass(frozen=True)
class RandomPath:
  """One type of unit of a level, in clip norms.

  Attributes:
    rates: rates of the stages down to the unit's own.
    others: for each stage above, the most clip units that differ if the path
      breaks there, without those of the unit and of the replacing unit.
    number: number of clip units sampled under the unit.
    instead: number of clip units under the replacing unit.
  """

  rates: tuple[float, ...]
  others: tuple[float, ...]
  number: counts_lib.Counts
  instead: counts_lib.Counts

  @property
  def is_constant(self) -> bool:
    """Return whether the unit always samples the same number."""
    return self.number.values.size == self.instead.values.size == 1


class _Families(NamedTuple):
  """The clip units that are sampled under the units of a level.

  Attributes:
    kind: int64[units], or int64[1] for a regular hierarchy.
    numbers: number for each type, each stochastically larger than the previous.
  """

  kind: np.ndarray
  numbers: list[counts_lib.Counts]


def averaged(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[UnitProfile, ...]:
  """Describe units for which their own or their siblings' numbers are random.

  The numbers of the siblings on the path, and of the units that are sampled if
  the path breaks, do not depend on the unit. So they may be assumed known, and
  the profile is the average over them.
  """
  z = float(release.mechanism.noise_multiplier)
  found: list[UnitProfile] = []
  for path in random_paths(release, k):
    chances = {path.others: 0.0, **_chances(release, k, path)}
    parts: list[tuple[float, UnitProfile]] = []
    for counted, chance in sorted(chances.items()):
      kind = random_count.RandomCount(
          outer_rates=path.rates[:-1],
          rate=path.rates[-1],
          outer_distances=tuple(count / z for count in counted),
          number=path.number,
          instead=path.instead,
          distance=1 / z,
          replaced=replaced,
      )
      parts.append((chance, kind.at_most if path.is_constant else kind))
    found.append(
        random_count.RandomType(tuple(parts)) if len(parts) > 1 else parts[0][1]
    )
  return tuple(found)


def _chances(
    release: plan_lib.Release, k: int, path: RandomPath
) -> dict[tuple[float, ...], float]:
  """Compute the probabilities of the others' numbers if a path breaks.

  Returns:
    Counts of other clip units that differ, stage by stage -> probability; {} if
    the path never breaks.
  """
  chances: dict[tuple[float, ...], float] = {}
  if any(rate < 1 for rate in path.rates[:-1]):
    limit = 40 if path.is_constant else 10
    for chance, counted in _other_numbers(release, k, limit):
      # At most the number of all on this path.
      found = tuple(map(min, counted, path.others))
      chances[found] = chances.get(found, 0.0) + chance
  return chances


def _other_numbers(
    release: plan_lib.Release, k: int, limit: int
) -> Iterator[tuple[float, tuple[float, ...]]]:
  """Yield (probability, counts of other clip units that differ, by stage).

  The counts are as in `RandomPath.others`, but random. They are those of the
  largest families of each level, rounded up to about `limit` cases.
  """
  siblings, instead = [], []
  for j in range(k + 1):
    stage, families = release.plan.stages[j], _families(release, j)
    sizes = release.hierarchy.child_counts(j)
    instead.append(counts_lib.constant(0))
    if stage.exchanges(sizes).any():
      instead[j] = families.numbers[-1]
    if j == 0:  # These are sampled wherever the path breaks.
      continue
    table = _children(release.hierarchy, j, families).max(axis=0)
    table[np.flatnonzero(table)[0]] -= 1  # The path's own unit, if the least.
    siblings.append(_drawn(stage, table, families.numbers, certain=1))
  parts = siblings + instead[:k]
  random = max(sum(part.values.size > 1 for part in parts), 1)
  each = max(int(limit ** (1 / random)), 2)
  parts = [
      counts_lib.by_chance(counts_lib.without_tail(part, 1e-15), each)
      for part in parts
  ]
  for case in itertools.product(*(
      zip(*part, strict=True) for part in parts
  )):
    values = [float(value) for value, _ in case]
    yield math.prod(float(chance) for _, chance in case), tuple(
        sum(values[j:k]) + values[k + j] for j in range(k)
    )


def random_paths(release: plan_lib.Release, k: int) -> list[RandomPath]:
  """List a few random paths such that every unit is below one of them."""
  hierarchy, families = release.hierarchy, _families(release, k)
  sizes = hierarchy.child_counts(k)
  # The replacing unit is of the largest type among the unit's siblings.
  if hierarchy.sizes is None:
    _, largest = _siblings(hierarchy, k, families.kind, sizes)
  else:
    largest = np.where(sizes > 1, families.kind, -1)
  found = _counted_paths(release, k, [families.kind, largest], sums=True)
  # If the path breaks, the siblings of all stages below differ too.
  below = found.drawn.sum(axis=1, keepdims=True) - found.drawn.cumsum(axis=1)
  others = (below + found.instead)[:, :k]
  own = [
      families.kind[found.unit],
      np.where(found.exchanged[:, k], largest[found.unit], -1),
  ]
  # A row of larger rates, counts and types has the larger profile.
  merged = front(
      front(rows(found.rates, others, np.stack(own, axis=1))), _MAX_ROWS
  )
  numbers = [
      counts_lib.coarser(number, _MAX_NUMBERS) for number in families.numbers
  ]
  numbers.append(counts_lib.constant(0))  # Type -1.
  return [
      RandomPath(
          row.rates, row.others, *(numbers[int(kind)] for kind in row.own)
      )
      for row in merged
  ]


@functools.lru_cache(maxsize=16)  # Each level needs those below it.
def _families(release: plan_lib.Release, level: int) -> _Families:
  """Compute the law of the clip units sampled under each unit of a level."""
  hierarchy = release.hierarchy
  units = 1 if hierarchy.sizes is not None else hierarchy.num_units(level)
  if level == release.clip_level:
    return _Families(np.zeros(units, np.int64), [counts_lib.constant(1)])
  below = _families(release, level + 1)
  table = _children(hierarchy, level + 1, below)
  distinct, of = np.unique(table, axis=0, return_inverse=True)
  means = np.asarray([float(n.values @ n.probs) for n in below.numbers])
  order = np.argsort(distinct @ means, kind="stable")
  groups = np.array_split(order, min(MAX_TYPES, order.size))
  group_of = np.empty(order.size, np.int64)
  numbers: list[counts_lib.Counts] = []
  for i, group in enumerate(groups):
    group_of[group] = i
    number = _drawn(
        release.plan.stages[level + 1],
        distinct[group].max(axis=0),
        below.numbers,
    )
    if numbers:
      number = counts_lib.larger(numbers[-1], number)
    numbers.append(number)
  return _Families(group_of[of.ravel()], numbers)


def _children(
    hierarchy: plan_lib.Hierarchy, level: int, families: _Families
) -> np.ndarray:
  """Count the units of each type in every family: int64[families, types]."""
  if hierarchy.sizes is not None:
    return np.asarray([[hierarchy.sizes[level]]], np.int64)
  width, many = len(families.numbers), hierarchy.child_counts(level).size
  return np.bincount(
      hierarchy.parents(level) * width + families.kind, minlength=many * width
  ).reshape(many, width)


def _drawn(
    stage: plan_lib.Stage,
    children: np.ndarray,
    numbers: list[counts_lib.Counts],
    certain: int = 0,
) -> counts_lib.Counts:
  """Compute the law of the number sampled from a family.

  Args:
    stage: the stage that samples them.
    children: int64[types].
    numbers: numbers of the types.
    certain: number of others that are always sampled.
  """
  total = counts_lib.constant(0)
  left = int(stage.most(children.sum() + certain)) - certain
  for size, number in zip(
      children[::-1].tolist(), numbers[::-1], strict=True
  ):
    many = min(size, left)
    left -= many
    part = counts_lib.chosen(number, many, stage.coin)
    total = counts_lib.added(total, part)
  return total
