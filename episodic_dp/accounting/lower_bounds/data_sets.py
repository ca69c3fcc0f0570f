"""What a step releases under one data set, with and without a unit t.

A data set is described by the gradients that it gives to clip units, in clip
norms: +1 to those that hold t or lie in it, and -1, 0 or +1 to the others,
according to where their path leaves that of t. A task that is short of an
example, and a clip unit in which nothing was drawn, gives zero. So the released
sum is a whole number times C, and its law follows by going up the path.

Outcomes within one clip unit that may hold t are told apart by the deepest unit
of t's path of which anything was drawn: the data set sees no more than that.
"""

from collections.abc import Iterator, Mapping, Sequence
import itertools
from typing import NamedTuple

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.lower_bounds import laws
from episodic_dp.accounting.lower_bounds import paths

# Outcomes within a clip unit beside the levels of the path.
NOTHING, SHORT = -2, -3


class Values(NamedTuple):
  """The gradients of a data set.

  Attributes:
    beside: for each level of the path down to the clip units, those of clip
      units in siblings of the path's unit.
    within: for each level below, down to that above t's, those of the clip unit
      of which that level is the deepest that was seen.
    own: those that hold t: 1, or -1 for what takes its place.
  """

  beside: tuple[int, ...]
  within: tuple[int, ...]
  own: int = 1


class Sums(NamedTuple):
  """The law of the released sum, in clip norms, with the unit and without."""

  larger: laws.Law
  smaller: laws.Law


def choices(path: paths.Path, clip: int) -> Iterator[Values]:
  """Yield the data sets that are worth trying for a path.

  Where a stage draws independently, siblings at the top add nothing but noise:
  zero is best.

  Args:
    path: to the unit.
    clip: the level of the clip units; -1 where the whole step is inside one.
  """
  depth = len(path.stages)
  outer = min(clip + 1, depth)
  beside = []
  for j, stage in enumerate(path.stages[:outer]):
    fixed = isinstance(stage.stage, plan_lib.FixedSize) and stage.rate < 1
    some = stage.sibling is not None and stage.children > 1
    beside.append((-1, 0, 1) if some and (fixed or j) else (0,))
  within: list[tuple[int, ...]] = [
      (-1, 0, 1) for _ in range(max(clip, -1), depth - 1)
  ]
  if within:
    within[-1] = (-1, 0)
  for values in itertools.product(*beside, *within):
    yield Values(values[: len(beside)], values[len(beside) :])


def outcomes(
    stages: Sequence[paths.Stage], seen: float, first: int, *, present: bool,
    tasks: bool
) -> Mapping[int, float]:
  """The deepest unit of the path that is seen in a clip unit that is drawn.

  Args:
    stages: below the clip unit, down to t's.
    seen: the probability that something is drawn inside t.
    first: the level of the clip unit.
    present: whether there is t.
    tasks: clip units are tasks, for which a unit with too few children is
      short.

  Returns:
    Level -> probability: t's own if it was seen, `NOTHING`, or `SHORT`.
  """
  last = first + len(stages)
  found: dict[int, float] = {last: seen, NOTHING: 1 - seen}
  for level, stage in zip(range(last, first, -1), reversed(stages)):
    rate = stage.rate
    others = stage.children - 1
    above: dict[int, float] = {}

    def add(outcome: int, probability: float, into: dict[int, float]) -> None:
      into[outcome] = into.get(outcome, 0.0) + probability

    if level == last and not present:
      if tasks and stage.drawn(others, 0) != stage.drawn(others + 1, 0):
        add(SHORT, 1.0, above)
      else:
        unseen = stage.unseen(others, 0)
        add(NOTHING, unseen, above)
        add(level - 1, 1 - unseen, above)
      found = above
      continue
    for outcome, probability in found.items():
      if outcome == NOTHING:
        unseen = stage.unseen(others, 1)
        add(NOTHING, rate * probability * unseen, above)
        add(level - 1, rate * probability * (1 - unseen), above)
      else:
        add(outcome, rate * probability, above)
    unseen = stage.unseen(others, 0)
    add(NOTHING, (1 - rate) * unseen, above)
    add(level - 1, (1 - rate) * (1 - unseen), above)
    found = above
  return found


def clip_unit_law(
    found: Mapping[int, float], values: Values, first: int, last: int
) -> laws.Law:
  """The law of the gradient of the clip unit that may hold t."""

  def value(outcome: int) -> int:
    if outcome in (NOTHING, SHORT):
      return 0
    if outcome == last:
      return values.own
    return values.within[outcome - first]

  return laws.mix(
      (probability, laws.point(value(outcome)))
      for outcome, probability in found.items()
  )


def sums(
    path: paths.Path, clip: int, values: Values, *, tasks: bool
) -> Sums:
  """The law of a step's sum over a tree, for both neighbours.

  Args:
    path: to t, all of its stages drawing every step afresh.
    clip: the level of the clip units.
    values: the data set.
    tasks: see `outcomes`.
  """
  first = sums_in_primary(path, clip, values, tasks=tasks)
  if len(path.stages) == 1 and clip >= 0:
    return first
  return Sums(*(_up(path.stages[0], law, values.beside[0]) for law in first))


def sums_in_primary(
    path: paths.Path, clip: int, values: Values, *, tasks: bool
) -> Sums:
  """The law of what t's primary unit contributes where it is drawn.

  For t itself a primary unit, that of the whole step.
  """
  depth = len(path.stages)
  if depth - 1 <= clip:
    larger, smaller = _own_stage(path, values)
    level = depth - 1
  else:
    below = path.stages[clip + 1 :]
    larger, smaller = (
        clip_unit_law(
            outcomes(below, path.seen, clip, present=present, tasks=tasks),
            values, clip, depth - 1,
        )
        for present in (True, False)
    )
    level = clip + 1
  for j in range(level - 1, 0, -1):
    larger, smaller = (
        _up(path.stages[j], law, values.beside[j])
        for law in (larger, smaller)
    )
  return Sums(larger, smaller)


def _own_stage(path: paths.Path, values: Values) -> Sums:
  """t's parent is drawn, and t's own stage is at or above the clip level."""
  stage = path.stages[-1]
  others, rate = stage.children - 1, stage.rate
  own = laws.times(path.own, values.own)

  def beside(taken: int) -> laws.Law:
    if not values.beside[-1]:
      return laws.point(0)
    return laws.times(stage.contributed(others, taken), values.beside[-1])

  larger = laws.mix((
      (rate, laws.add(own, beside(1))),
      (1 - rate, beside(0)),
  ))
  return Sums(larger, beside(0))


def _up(stage: paths.Stage, law: laws.Law, value: int) -> laws.Law:
  """From what a unit contributes if drawn to what its family contributes."""
  others, rate = stage.children - 1, stage.rate
  if not value:
    return laws.thinned(law, rate)
  beside = [
      laws.times(stage.contributed(others, taken), value) for taken in (0, 1)
  ]
  return laws.mix(((rate, laws.add(law, beside[1])), (1 - rate, beside[0])))
