"""Units below which a step draws a random number of clip units.

Users whose examples are clipped one by one and drawn by `Poisson`, at any depth
below the user: the number of drawn clip units is a compound of binomials. Below
a `Poisson` stage children come in independently, below `All` every one, so that
the numbers of the children add up; below `FixedSize(n)` the sum of n of them is
at most, in the stochastic order, that of the n largest.

Families are told apart by how many children they have of each kind of family
below. A profile grows with the number, so several kinds of families may be
merged into one with as many children of every kind as any of them, and a kind's
number may be replaced by the least that is stochastically larger than it and
than those of the smaller kinds.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import unit_profile

# More kinds of families in a level, or of units, than these are merged.
_MAX_KINDS, _MAX_ROWS = 24, 6


def is_random(release: plan_lib.Release, k: int, *, own: bool = False) -> bool:
  """Return whether units on the path to level k draw a random number.

  Of clip units. False too where the proof is another one: one pass over the
  units, tasks, and units inside one clip unit.

  Args:
    release: what a step samples and releases.
    k: the level.
    own: ask of the units alone.
  """
  stages, clip = release.plan.stages, release.clip_level
  drawn = stages[k + 1 if own else 1 : clip + 1]
  return (
      release.plan.episode is None
      and k <= clip
      and not isinstance(stages[0], plan_lib.RandomAllocation)
      and any(isinstance(stage, plan_lib.Poisson) for stage in drawn)
  )


@dataclasses.dataclass(frozen=True)
class Row:
  """One kind of units of a level, in clip norms.

  Attributes:
    rates: of the stages down to the unit's own.
    others: for each stage above, how many clip units at most differ, beside
      those of the unit and of what takes its place, where the path breaks.
    number: of the clip units drawn under the unit.
    instead: the same for what takes its place.
  """

  rates: tuple[float, ...]
  others: tuple[float, ...]
  number: random_count.Number
  instead: random_count.Number


class _Families(NamedTuple):
  """The clip units that are drawn under the units of a level.

  Attributes:
    kind: int64[units], or int64[1] for a regular hierarchy.
    numbers: of each kind, every one stochastically larger than those before.
  """

  kind: np.ndarray
  numbers: list[counts.Counts]


def unit_profiles(
    release: plan_lib.Release, k: int
) -> unit_profile.UnitProfiles:
  """The kinds of units of a level; `is_random` holds.

  What the siblings on the path draw, and what is drawn where the path breaks,
  does not depend on the unit, so it may be taken as known: each kind is the
  average over these numbers.
  """
  return tuple(_averaged(release, k, row) for row in rows(release, k))


def _averaged(
    release: plan_lib.Release, k: int, row: Row
) -> unit_profile.UnitProfile:
  """One kind of unit, on the average over what else is drawn."""
  z = float(release.mechanism.noise_multiplier)
  whole = random_count.RandomCount(
      outer_rates=row.rates[:-1],
      rate=row.rates[-1],
      outer_distances=tuple(count / z for count in row.others),
      number=row.number,
      instead=row.instead,
      distance=1 / z,
  )
  known = len(row.number.values) == len(row.instead.values) == 1
  kind: random_count.Part = whole.at_most if known else whole
  if all(rate == 1 for rate in row.rates[:-1]):  # The path never breaks.
    return kind
  own = kind.outer_distances[0] - whole.outer_distances[0]
  chances: dict[tuple[float, ...], float] = {}
  for chance, counted in _others(release, k, 40 if known else 10):
    # No more than all there are on this path.
    found = tuple(min(a, b) for a, b in zip(counted, row.others))
    chances[found] = chances.get(found, 0.0) + chance
  if len(chances) == 1:
    return kind
  chances.setdefault(row.others, 0.0)
  return random_count.Averaged(tuple(
      (chance, dataclasses.replace(
          kind, outer_distances=tuple(own + count / z for count in counted)
      ))
      for counted, chance in sorted(chances.items())
  ))


def _others(
    release: plan_lib.Release, k: int, limit: int
) -> Iterator[tuple[float, tuple[float, ...]]]:
  """Yield (chance, counts of other clip units that differ, stage by stage).

  As `Row.others` has them, but drawn; of the largest families of each level,
  and rounded up to about `limit` cases.
  """
  siblings, instead = [], []
  for j in range(k + 1):
    stage, families = release.plan.stages[j], _families(release, j)
    sizes = release.hierarchy.child_counts(j)
    exchanged = isinstance(stage, plan_lib.FixedSize) and sizes.max() > stage.n
    instead.append(families.numbers[-1] if exchanged else counts.constant(0))
    if j == 0:  # They are drawn wherever the path breaks.
      continue
    table = _children(release.hierarchy, j, families).max(axis=0)
    table[np.flatnonzero(table)[0]] -= 1  # The path's own unit, if the least.
    siblings.append(_drawn(stage, table, families.numbers, beside=1))
  parts = siblings + instead[:k]
  random = max(sum(part.values.size > 1 for part in parts), 1)
  each = max(int(limit ** (1 / random)), 2)
  parts = [
      counts.by_chance(counts.without_tail(part, 1e-15), each)
      for part in parts
  ]
  for case in itertools.product(*(zip(*part) for part in parts)):
    values = [float(value) for value, _ in case]
    yield math.prod(float(chance) for _, chance in case), tuple(
        sum(values[j:k]) + values[k + j] for j in range(k)
    )


def rows(release: plan_lib.Release, k: int) -> list[Row]:
  """The kinds of units of a level, none below another, a few at most."""
  families = _families(release, k)
  numbers = [random_count.Number.of(number) for number in families.numbers]
  sizes, others, own, instead = _columns(release, k, families.kind)
  rates = np.stack(
      [release.plan.stages[j].rate(sizes[:, j]) for j in range(k + 1)], axis=1
  )
  table = np.unique(
      np.column_stack([rates, others, own, instead]), axis=0
  ).tolist()
  # A row of larger rates, counts and kinds has the larger profile.
  kept = distances.front([tuple(row) for row in table])
  merged = distances.merge(kept, _MAX_ROWS)
  return [
      Row(
          rates=row[: k + 1],
          others=row[k + 1 : -2],
          number=numbers[int(row[-2])],
          instead=(
              numbers[int(row[-1])] if row[-1] >= 0 else random_count.NOTHING
          ),
      )
      for row in merged
  ]


@functools.lru_cache(maxsize=16)  # Each level asks for those below it.
def _families(release: plan_lib.Release, level: int) -> _Families:
  """The number of clip units drawn under each unit of a level."""
  hierarchy = release.hierarchy
  units = 1 if hierarchy.sizes is not None else hierarchy.num_units(level)
  if level == release.clip_level:
    return _Families(np.zeros(units, np.int64), [counts.constant(1)])
  below = _families(release, level + 1)
  table = _children(hierarchy, level + 1, below)
  distinct, of = np.unique(table, axis=0, return_inverse=True)
  means = np.asarray([float(n.values @ n.probs) for n in below.numbers])
  order = np.argsort(distinct @ means, kind="stable")
  groups = np.array_split(order, min(_MAX_KINDS, order.size))
  group_of = np.empty(order.size, np.int64)
  numbers: list[counts.Counts] = []
  for i, group in enumerate(groups):
    group_of[group] = i
    number = _drawn(
        release.plan.stages[level + 1],
        distinct[group].max(axis=0),
        below.numbers,
    )
    numbers.append(counts.larger(numbers[-1], number) if numbers else number)
  return _Families(group_of[of.ravel()], numbers)


def _children(
    hierarchy: plan_lib.Hierarchy, level: int, families: _Families
) -> np.ndarray:
  """Count the units of each kind in every family: int64[families, kinds]."""
  if hierarchy.sizes is not None:
    return np.asarray([[hierarchy.sizes[level]]], np.int64)
  width, many = len(families.numbers), hierarchy.child_counts(level).size
  places = hierarchy.parents(level) * width + families.kind
  return np.bincount(places, minlength=many * width).reshape(many, width)


def _drawn(
    stage: plan_lib.Stage,
    children: np.ndarray,
    numbers: list[counts.Counts],
    beside: int = 0,
) -> counts.Counts:
  """The number drawn of so many units of each kind of a family.

  Args:
    stage: that draws them.
    children: int64[kinds].
    numbers: of the kinds.
    beside: how many others are drawn for certain.
  """
  total = counts.constant(0)
  left = math.inf
  if isinstance(stage, plan_lib.FixedSize):
    left = stage.n - beside
  for many, number in zip(children[::-1].tolist(), numbers[::-1]):
    many = int(min(many, left))
    left -= many
    if isinstance(stage, plan_lib.Poisson):
      part = counts.chosen(number, many, float(stage.p))
    else:
      part = counts.times(number, many)
    total = counts.added(total, part)
  return total


def _columns(
    release: plan_lib.Release, k: int, kind: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Compute the columns of every unit of level k (one, if all are alike).

  Returns:
    float64[units, k + 1] sizes of the families on the path; float64[units, k]
    counts of other clip units that differ where the path breaks; the kind of
    the unit's own family; the largest of what may take its place, or -1.
  """
  hierarchy, plan = release.hierarchy, release.plan
  sizes, others = np.zeros((1, 0)), np.zeros((1, 0))
  for j in range(k + 1):
    stage, family = plan.stages[j], hierarchy.child_counts(j)
    most = distances.clip_units_below(hierarchy, plan, release.clip_level, j)
    drawn, largest = _siblings(hierarchy, stage, j, most)
    if hierarchy.sizes is None:
      sizes, others = (
          np.repeat(part, family, axis=0) for part in (sizes, others)
      )
      family = np.repeat(family, family)
    # Where the path breaks above, this unit's siblings differ too.
    others = others + drawn[:, None]
    sizes = np.column_stack([sizes, family])
    if j < k:
      replaced = np.zeros(family.size)
      if isinstance(stage, plan_lib.FixedSize):
        replaced = np.where(family > stage.n, largest, 0.0)
      others = np.column_stack([others, replaced])
  instead = np.full(len(sizes), -1.0)
  own = plan.stages[k]
  if isinstance(own, plan_lib.FixedSize):
    _, largest = _siblings(hierarchy, own, k, kind)
    instead = np.where(sizes[:, -1] > own.n, largest, -1.0)
  return sizes, others, kind.astype(float), instead


def _siblings(
    hierarchy: plan_lib.Hierarchy,
    stage: plan_lib.Stage,
    level: int,
    values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Sum the values of every unit's drawn siblings, and find their largest.

  Args:
    hierarchy: the tree.
    stage: of the level.
    level: the units'.
    values: int64[units], or int64[1] for a regular hierarchy.

  Returns:
    Two float64 arrays of the shape of `values`: the largest sum over siblings
    that can be drawn with the unit; the largest value of a sibling, or -1.
  """
  family = hierarchy.child_counts(level)
  drawn = family
  if isinstance(stage, plan_lib.FixedSize):
    drawn = np.minimum(family, stage.n)
  if hierarchy.sizes is not None:
    largest = np.where(family > 1, values, -1)
    return (drawn - 1.0) * values, largest.astype(float)
  parents = hierarchy.parents(level)
  order = np.lexsort((-values, parents))
  starts = np.cumsum(family) - family
  rank = np.empty(values.size, np.int64)
  rank[order] = np.arange(values.size) - starts[parents]
  falling = values[order].astype(float)
  sums = np.concatenate([[0.0], np.cumsum(falling)])
  first, many = starts[parents], drawn[parents]
  own = np.where(rank < many, values, falling[first + many - 1])
  second = falling[np.minimum(first + 1, values.size - 1)]
  return (
      sums[first + many] - sums[first] - own,
      np.where(
          rank > 0,
          falling[first],
          np.where(family[parents] > 1, second, -1.0),
      ),
  )
