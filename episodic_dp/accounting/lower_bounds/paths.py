"""The path from the root to one unit, read off hierarchy and plan alone.

For every level of the path: how many children the unit above has, and what the
unit's siblings can be made to contribute. A data set may give any gradient to
any clip unit, zero where nothing was drawn inside it, so siblings whose numbers
of clip units differ but are sure are scaled down to the least of them, and
those whose numbers differ at random are given zero gradients.
"""

from collections.abc import Iterator
import dataclasses

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.lower_bounds import laws

# So many units of a ragged level are looked at, the most exposed ones.
_MOST_PATHS = 6
# Number of clip units below that is not sure, or not known.
_RANDOM = -1


@dataclasses.dataclass(frozen=True)
class Stage:
  """One level of a path.

  Attributes:
    stage: how it is sampled.
    children: N, the children of the unit above, that of the path included.
    sibling: the law of how many clip units one drawn sibling contributes;
      None where it can only be made to contribute nothing.
    seen: the probability that something is drawn inside a drawn sibling; None
      where siblings differ: then the data set does not look at them.
  """

  stage: plan_lib.Stage
  children: int
  sibling: laws.Law | None
  seen: float | None

  @property
  def rate(self) -> float:
    """The probability that a child is drawn."""
    return float(self.stage.rate(np.asarray(self.children)))

  def drawn(self, others: int, taken: int) -> int | None:
    """How many of the other children are drawn; None where it is random.

    Args:
      others: how many there are.
      taken: places that the path's child takes, 0 or 1.
    """
    if isinstance(self.stage, plan_lib.FixedSize):
      return min(self.stage.n - taken, others)
    return others if self.rate == 1 else None

  def contributed(self, others: int, taken: int) -> laws.Law:
    """The law of the clip units that the other children contribute."""
    if self.sibling is None:
      return laws.point(0)
    count = self.drawn(others, taken)
    if count is not None:
      return laws.power(self.sibling, count)
    return laws.power(laws.thinned(self.sibling, self.rate), others)

  def unseen(self, others: int, taken: int) -> float:
    """The probability that nothing is drawn inside the other children."""
    count = self.drawn(others, taken)
    if count == 0 or others == 0 or self.seen is None:
      return 1.0
    if count is not None:
      return (1 - self.seen) ** count
    return (1 - self.rate * self.seen) ** others


@dataclasses.dataclass(frozen=True)
class Path:
  """The path to one unit.

  Attributes:
    stages: from the primary level to that of the unit.
    own: the law of the clip units that are drawn inside the unit, if it lies
      above them or is one.
    seen: the probability that something is drawn inside it.
    unit: its number.
  """

  stages: tuple[Stage, ...]
  own: laws.Law
  seen: float
  unit: int


class _Regular:
  """Units of a hierarchy whose units of a level are all alike."""

  def __init__(self, release: plan_lib.Release, clip: int):
    assert release.hierarchy.sizes is not None
    self._sizes, self._clip = release.hierarchy.sizes, clip
    self._stages = release.plan.stages
    # Of every level: the probability that something is drawn inside a unit,
    # and the law of how many clip units are, or None.
    self._seen = [1.0]
    self._own: list[laws.Law | None] = [laws.point(1)]
    for level in range(len(self._sizes) - 1, 0, -1):
      below = Stage(
          self._stages[level], self._sizes[level], self._own[0], self._seen[0]
      )
      self._seen.insert(0, 1 - below.unseen(below.children, 0))
      own: laws.Law | None = laws.coin(self._seen[0])
      if level - 1 < clip:
        try:
          own = below.contributed(below.children, 0) if below.sibling else None
        except laws.TooWideError:
          own = None
      self._own.insert(0, own)

  def children(self, level: int, unit: int) -> int:
    """Count the children, on a level, of a unit of the level above."""
    del unit
    return self._sizes[level]

  def own(self, level: int, unit: int) -> laws.Law:
    """The law of the clip units that are drawn inside a unit."""
    del unit
    return self._own[level] or laws.point(0)

  def seen(self, level: int, unit: int) -> float:
    """The probability that something is drawn inside a unit."""
    del unit
    return self._seen[level]

  def sibling(self, level: int, unit: int) -> laws.Law | None:
    """What a sibling of the unit can contribute."""
    del unit
    return None if level > self._clip else self._own[level]

  def siblings_seen(self, level: int, unit: int) -> float | None:
    """The probability that something is drawn inside a drawn sibling."""
    del unit
    return self._seen[level]


class _Ragged:
  """Units of a ragged hierarchy."""

  def __init__(self, release: plan_lib.Release, clip: int):
    self._hierarchy, self._plan = release.hierarchy, release.plan
    self._clip = clip
    last = self._hierarchy.depth - 1
    self._all_seen = [np.ones(self._hierarchy.num_units(last))]
    self._sure = [np.ones(self._hierarchy.num_units(last), np.int64)]
    for level in range(last - 1, -1, -1):
      seen = self._seen_above(level, self._all_seen[0])
      self._sure.insert(
          0,
          self._sure_above(level, self._sure[0])
          if level < clip
          else np.where(seen >= 1, 1, np.where(seen == 0, 0, _RANDOM)),
      )
      self._all_seen.insert(0, seen)

  def children(self, level: int, unit: int) -> int:
    """Count the children, on a level, of a unit of the level above."""
    return int(self._hierarchy.child_counts(level)[unit])

  def _seen_above(self, level: int, below: np.ndarray) -> np.ndarray:
    """float64[units]: the probability that something is drawn inside each.

    -1 where it is not computed: children drawn by `FixedSize` that differ.
    """
    counts = self._hierarchy.child_counts(level + 1)
    starts, some = _families(counts)
    stage = self._plan.stages[level + 1]
    result = np.zeros(counts.size)
    least = np.minimum.reduceat(below, starts)
    if isinstance(stage, plan_lib.FixedSize):
      drawn = np.minimum(counts[some], stage.n)
      even = least == np.maximum.reduceat(below, starts)
      found = np.where(even, 1 - (1 - np.maximum(least, 0.0)) ** drawn, -1.0)
    else:
      rate = float(stage.rate(np.asarray(1)))
      found = 1 - np.multiply.reduceat(1 - rate * below, starts)
    result[some] = np.where(least < 0, -1.0, found)
    return result

  def _sure_above(self, level: int, below: np.ndarray) -> np.ndarray:
    """int64[units]: clip units drawn inside each if that is sure, else -1."""
    counts = self._hierarchy.child_counts(level + 1)
    starts, some = _families(counts)
    stage = self._plan.stages[level + 1]
    result = np.zeros(counts.size, np.int64)
    least = np.minimum.reduceat(below, starts)
    most = np.maximum.reduceat(below, starts)
    found = np.add.reduceat(below, starts)
    known = least >= 0
    if isinstance(stage, plan_lib.FixedSize):
      # Of unequal children each is scaled down to the least.
      found = np.where(counts[some] <= stage.n, found, stage.n * least)
    elif _is_random(stage):
      known = known & (most == 0)
    result[some] = np.where(known, found, _RANDOM)
    return result

  def own(self, level: int, unit: int) -> laws.Law:
    """The law of the clip units that are drawn inside a unit.

    0 for those of units whose children differ too much to be computed: the data
    set gives them no gradient.
    """
    try:
      return self._law(level, unit)
    except laws.TooWideError:
      return laws.point(0)

  def _law(self, level: int, unit: int) -> laws.Law:
    sure = int(self._sure[level][unit])
    if sure != _RANDOM:
      return laws.point(sure)
    if level >= self._clip:
      return laws.coin(self.seen(level, unit))
    stage = self._plan.stages[level + 1]
    first = int(self._offsets(level + 1)[unit])
    children = range(first, first + self.children(level + 1, unit))
    if isinstance(stage, plan_lib.FixedSize):
      return laws.power(
          self._alike(level + 1, children), min(stage.n, len(children))
      )
    rate = float(stage.rate(np.asarray(1)))
    counted: dict[tuple[int, bytes], tuple[laws.Law, int]] = {}
    for child in children:
      law = self._law(level + 1, child)
      key = (law.first, law.probs.tobytes())
      counted[key] = law, counted.get(key, (law, 0))[1] + 1
    total = laws.point(0)
    for law, times in counted.values():
      total = laws.add(total, laws.power(laws.thinned(law, rate), times))
    return total

  def seen(self, level: int, unit: int) -> float:
    """The probability that something is drawn inside a unit; 0 if not known."""
    return max(float(self._all_seen[level][unit]), 0.0)

  def sibling(self, level: int, unit: int) -> laws.Law | None:
    """What every sibling of the unit can be made to contribute."""
    if level > self._clip:
      return None
    others = self._sure[level][self._others(level, unit)]
    if not others.size or others.min() <= 0:
      return None
    return laws.point(int(others.min()))

  def siblings_seen(self, level: int, unit: int) -> float | None:
    """The probability that something is drawn inside any drawn sibling."""
    others = self._all_seen[level][self._others(level, unit)]
    if not others.size or others.min() < 0:
      return None
    stage = self._plan.stages[level]
    if _is_random(stage) and not isinstance(stage, plan_lib.FixedSize):
      # Of units drawn one by one: a mean that leaves them as seldom unseen.
      rate = float(stage.rate(np.asarray(1)))
      return float(-np.expm1(np.log1p(-rate * others).mean()) / rate)
    return float(others[0]) if others.min() == others.max() else None

  def _others(self, level: int, unit: int) -> np.ndarray:
    offsets = self._offsets(level)
    above = int(np.searchsorted(offsets, unit, "right")) - 1
    family = np.arange(offsets[above], offsets[above + 1])
    return family[family != unit]

  def _alike(self, level: int, units: range) -> laws.Law:
    """The law of all units, where it is one; else TooWideError."""
    own = [self._law(level, unit) for unit in units]
    first = own[0]
    same = all(
        law.first == first.first and np.array_equal(law.probs, first.probs)
        for law in own
    )
    if not same:
      raise laws.TooWideError
    return first

  def _offsets(self, level: int) -> np.ndarray:
    assert self._hierarchy.offsets is not None
    return self._hierarchy.offsets[level]


def paths(
    release: plan_lib.Release, level: int, clip: int
) -> Iterator[Path]:
  """Yield the paths to some units of a level, the most exposed ones.

  Args:
    release: what a step samples and releases.
    level: that of the units (from 0).
    clip: the level of the clip units (from 0).
  """
  hierarchy = release.hierarchy
  units = (_Regular if hierarchy.sizes is not None else _Ragged)(release, clip)
  found = set()
  for last in _exposed(release, level):
    stages = []
    unit = last
    for j in range(level, -1, -1):
      above = 0
      if j and hierarchy.offsets is not None:
        above = int(np.searchsorted(hierarchy.offsets[j], unit, "right")) - 1
      stages.append(Stage(
          release.plan.stages[j], units.children(j, above),
          units.sibling(j, unit), units.siblings_seen(j, unit),
      ))
      unit = above
    path = Path(
        tuple(stages[::-1]), units.own(level, last), units.seen(level, last),
        last,
    )
    key = repr(path).rpartition("unit=")[0]
    if key not in found:
      found.add(key)
      yield path


def _exposed(release: plan_lib.Release, level: int) -> list[int]:
  """Units that are drawn often, or bring much."""
  hierarchy, plan = release.hierarchy, release.plan
  if hierarchy.sizes is not None:
    return [0]
  rates: np.ndarray = np.ones(1)
  leaves: np.ndarray = np.ones(hierarchy.num_leaves)
  for j in range(level + 1):
    counts = hierarchy.child_counts(j)
    rates = np.repeat(rates * plan.stages[j].rate(counts), counts)
  for j in range(hierarchy.depth - 1, level, -1):
    counts = hierarchy.child_counts(j)
    owners = np.repeat(np.arange(counts.size), counts)
    leaves = np.bincount(owners, leaves, counts.size)
  parents = np.repeat(
      hierarchy.child_counts(level), hierarchy.child_counts(level)
  )
  scores = (
      rates, leaves, rates * leaves, rates * leaves**2, rates / parents,
      rates * parents,
  )
  found = dict.fromkeys(int(np.argmax(score)) for score in scores)
  return list(found)[:_MOST_PATHS]


def _families(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """(Where the families with children start, which these are)."""
  some = counts > 0
  return np.concatenate([[0], np.cumsum(counts)[:-1]])[some], some


def _is_random(stage: plan_lib.Stage) -> bool:
  return float(stage.rate(np.asarray(1))) < 1
