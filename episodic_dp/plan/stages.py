"""How every level of a hierarchy is sampled, and how often a unit is included.

Algorithm 1 of Tombs, Kotevska and Young, "Privacy Amplification for Episodic
Training Methods" (2022) is the plan whose stages are all `FixedSize`.
"""

from collections.abc import Iterable
import dataclasses
import functools
import math
from typing import Literal

import numpy as np

from episodic_dp.plan import errors
from episodic_dp.plan import hierarchy as hierarchy_lib


def _whole(name: str, value: object, low: int) -> None:
  if (
      not isinstance(value, (int, np.integer))
      or isinstance(value, bool)
      or value < low
  ):
    raise errors.PlanError(
        f"{name} is {value!r}: it must be a whole number of at least {low}"
    )


@dataclasses.dataclass(frozen=True)
class FixedSize:
  """n children of every chosen unit, uniformly without replacement."""

  n: int

  def __post_init__(self) -> None:
    _whole("FixedSize(n)", self.n, 1)

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability min(1, n / N) of each of N children.

    It is 1 where there are none.
    """
    return np.minimum(1.0, self.n / np.maximum(children, 1))


@dataclasses.dataclass(frozen=True)
class Poisson:
  """Every child of a chosen unit independently, with probability p."""

  p: float

  def __post_init__(self) -> None:
    if not (isinstance(self.p, (int, float)) and 0 < self.p <= 1):
      raise errors.PlanError(
          f"Poisson(p) is {self.p!r}: p must lie above 0 and be at most 1"
      )

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability p of each child."""
    return np.full(np.shape(children), float(self.p))


@dataclasses.dataclass(frozen=True)
class All:
  """Every child of every chosen unit."""

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give float64 ones."""
    return np.ones(np.shape(children))


@dataclasses.dataclass(frozen=True)
class RandomAllocation:
  """Every unit in exactly one of T steps: balls into bins, first stage only.

  Steps 0 .. T - 1 are one pass: each primary unit is assigned to one of them,
  uniformly and independently of all others, and a step draws the units assigned
  to it. The next T steps are another pass with a new, independent assignment.
  Within one step the draw looks like `Poisson(1 / T)`, but steps of one pass
  depend on each other, and their guarantee is that of a whole pass: Feldman and
  Shenfeld, "Privacy amplification by random allocation" (2025); Chua et al.,
  "Balls-and-Bins Sampling for DP-SGD" (2025).

  Attributes:
    steps: T, the steps of one pass.
  """

  steps: int

  def __post_init__(self) -> None:
    _whole("RandomAllocation(steps)", self.steps, 1)

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability 1 / T that one step draws a given child."""
    return np.full(np.shape(children), 1 / self.steps)


Stage = FixedSize | Poisson | All | RandomAllocation


@dataclasses.dataclass(frozen=True)
class Episode:
  """How drawn examples form tasks.

  Attributes:
    way: classes per task; 1 for regression, whose tasks have no classes.
    shot: support examples per class.
    query: query examples per class.
    form: "unit": one sampled primary unit is one task, and way is the product
      of its class stages (1 where there is none); "disjoint": the classes
      drawn are cut, in their random order, into tasks of `way`; "independent":
      the class tree is drawn `tasks` times over, so that records recur across
      the tasks of a step.
    tasks: tasks per step, for form "independent" only.
  """

  way: int
  shot: int
  query: int
  form: Literal["unit", "disjoint", "independent"] = "unit"
  tasks: int | None = None

  def __post_init__(self) -> None:
    for name in ("way", "shot", "query"):
      _whole(name, getattr(self, name), 1)
    if self.form not in ("unit", "disjoint", "independent"):
      raise errors.PlanError(
          f"form {self.form!r} must be 'unit', 'disjoint' or 'independent'"
      )
    if self.form == "independent":
      _whole("tasks", self.tasks, 1)
    elif self.tasks is not None:
      raise errors.PlanError(
          f"tasks={self.tasks} is only for form='independent'; the stages of"
          f" form='{self.form}' already say how many tasks a step has"
      )


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
  """One stage per level, and how the drawn examples form episodes.

  Attributes:
    stages: one stage per level of the hierarchy, primary level first.
    episode: None where there are no tasks: each example is by itself.
    allow_short_units: accept units with fewer children than their stage is to
      draw: they are taken whole, with rate 1, and a task that cannot be filled
      contributes zero. Whether it is set changes nothing for data that have no
      such units.
  """

  stages: tuple[Stage, ...]
  episode: Episode | None = None
  allow_short_units: bool = False

  def __post_init__(self) -> None:
    object.__setattr__(self, "stages", tuple(self.stages))
    if not self.stages:
      raise errors.PlanError("a plan needs at least one stage")
    for stage in self.stages:
      if not isinstance(stage, Stage):
        raise errors.PlanError(
            f"{stage!r} is not a stage: use FixedSize(n), Poisson(p), All() or,"
            " first, RandomAllocation(steps)"
        )
    for stage in self.stages[1:]:
      if isinstance(stage, RandomAllocation):
        raise errors.PlanError(
            f"{stage} must be the first stage: a pass goes over the primary"
            " units, so use FixedSize(n), Poisson(p) or All() below"
        )


@functools.lru_cache(maxsize=64)  # of the objects: a ledger asks every step
def inclusion_rate(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: str
) -> float:
  """Compute the largest probability that a step draws one unit of the level.

  This is eta, the true inclusion probability: the product over the path of
  n_j / (children of the unit above), *including* the number of primary units,
  maximised over units. The printed theorem of "Privacy Amplification for
  Episodic Training Methods" leaves that first denominator out when read
  literally, and says "min" where the smallest product of sizes is meant.

  For form "independent" this is the rate inside one of the tasks.
  """
  k = hierarchy.level_index(level)
  check_depth(hierarchy, plan)
  return float(np.prod(rate_paths(hierarchy, plan, k), axis=1).max())


def rate_paths(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: int
) -> np.ndarray:
  """List the rates on the units' paths: float64[distinct, level + 1]."""
  sizes = hierarchy.size_paths(level)
  columns = [plan.stages[j].rate(sizes[:, j]) for j in range(level + 1)]
  return np.unique(np.stack(columns, axis=1), axis=0)


def check_depth(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> None:
  """Raise PlanError unless the plan has one stage per level."""
  if len(plan.stages) != hierarchy.depth:
    raise errors.PlanError(
        f"the plan has {len(plan.stages)} stages and the hierarchy"
        f" {hierarchy.depth} levels {hierarchy.levels}: give one stage a level"
    )


def validate(hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan) -> None:
  """Check that every unit can give what the plan draws from it.

  Raises:
    PlanError: names the unit at fault and the remedy.
  """
  check_depth(hierarchy, plan)
  episode, last = plan.episode, hierarchy.depth - 1
  if episode is not None:
    if last == 0:
      raise errors.PlanError(
          "an episode needs a class level above the examples, and the"
          f" hierarchy has only the level '{hierarchy.levels[0]}'"
      )
    if episode.form == "unit" and last < 2 and episode.way > 1:
      raise errors.PlanError(
          f"form='unit' with way {episode.way} needs three levels or more (a"
          " task unit, its classes, their examples), and the hierarchy has"
          f" {hierarchy.levels}; use form='disjoint' or 'independent', or way=1"
          " for regression"
      )
  for k, stage in enumerate(plan.stages):
    if isinstance(stage, FixedSize) and not plan.allow_short_units:
      counts = hierarchy.child_counts(k)
      unit = int(np.argmin(counts))
      if counts[unit] < stage.n:
        raise errors.PlanError(
            _too_few(hierarchy, plan, k, unit, int(counts[unit]), stage.n)
        )
  if episode is not None:
    _validate_episode(hierarchy, plan, episode)


def _too_few(
    hierarchy: hierarchy_lib.Hierarchy,
    plan: SamplingPlan,
    level: int,
    unit: int,
    has: int,
    wants: int,
) -> str:
  """One sentence about the unit that has too few children."""
  name = hierarchy.levels[level]
  if level == 0:
    where = f"the hierarchy has {has} units of level '{name}'"
  elif hierarchy.sizes is not None:
    where = f"every {hierarchy.levels[level - 1]} has {has} of level '{name}'"
  else:
    where = f"{hierarchy.describe(level - 1, unit)} has {has} of level '{name}'"
  what = f"stage FixedSize({wants}) draws {wants}"
  if plan.episode is not None and level == hierarchy.depth - 1:
    what += f" (shot {plan.episode.shot} + query {plan.episode.query})"
  elif plan.episode is not None and level > 0:
    what += f" (way {plan.episode.way})"
  return (
      f"{where}, and {what}: draw at most {has}, leave out small units by a"
      " public rule, or set allow_short_units=True"
  )


def _drawn(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: int
) -> int:
  """How many children the stage is to draw of every unit.

  Raises:
    PlanError: units have different numbers and none may be short.
  """
  stage = plan.stages[level]
  counts = hierarchy.child_counts(level)
  if isinstance(stage, Poisson):
    raise errors.PlanError(
        f"stage {stage} of level '{hierarchy.levels[level]}' draws a random"
        " number, and an episode has a fixed number of classes and examples:"
        " use FixedSize(n)"
    )
  if isinstance(stage, FixedSize):  # No unit is short, or all may be.
    return stage.n
  low, high = int(counts.min()), int(counts.max())
  if low != high and not plan.allow_short_units:
    raise errors.PlanError(
        f"level '{hierarchy.levels[level]}' gives between {low} and {high}"
        f" units with {stage}, and an episode has a fixed number: use"
        f" FixedSize({max(low, 1)})"
    )
  return high


def _validate_episode(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, episode: Episode
) -> None:
  """Check way, shot and query against what the stages draw."""
  last = hierarchy.depth - 1
  examples = _drawn(hierarchy, plan, last)
  if _differs(examples, episode.shot + episode.query, plan, (last,)):
    raise errors.PlanError(
        f"shot {episode.shot} + query {episode.query} ="
        f" {episode.shot + episode.query}, and the last stage draws {examples}"
        f" of level '{hierarchy.levels[last]}' per class: make them equal"
    )
  first = 1 if episode.form == "unit" else 0
  stages = range(first, last)
  classes = math.prod(_drawn(hierarchy, plan, k) for k in stages)
  if episode.form == "disjoint":
    if classes % episode.way:
      raise errors.PlanError(
          f"the class stages draw {classes} classes, which do not divide into"
          f" tasks of way {episode.way}: draw a multiple of {episode.way}"
      )
    inner = math.prod(_drawn(hierarchy, plan, k) for k in range(1, last))
    if inner % episode.way and episode.way % inner:
      raise errors.PlanError(
          f"each {hierarchy.levels[0]} gives {inner} classes and a task has way"
          f" {episode.way}: one must divide the other, or a task would hold"
          " part of one unit and part of the next"
      )
  elif _differs(classes, episode.way, plan, stages):
    raise errors.PlanError(
        f"way {episode.way} differs from the {classes} classes that the class"
        f" stages draw: make them equal (way is their product)"
    )


def _differs(
    drawn: int, wanted: int, plan: SamplingPlan, levels: Iterable[int]
) -> bool:
  """Whether stages draw another number than a task holds.

  Data that lack one unit may lack it where `All` drew just enough: with short
  units allowed fewer will do, and no task is filled.
  """
  short = plan.allow_short_units and any(
      isinstance(plan.stages[k], All) for k in levels
  )
  return drawn > wanted if short else drawn != wanted


def examples_per_step(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> float:
  """Compute the expected examples a step, a public constant of the plan."""
  check_depth(hierarchy, plan)
  if hierarchy.sizes is not None:
    rates = [
        size * float(stage.rate(np.asarray(size)))
        for size, stage in zip(hierarchy.sizes, plan.stages)
    ]
    return math.prod(rates)
  # The probability of every unit of a level, from the top down.
  reached = np.ones(1)
  for k, stage in enumerate(plan.stages):
    counts = np.broadcast_to(hierarchy.child_counts(k), reached.shape)
    reached = np.repeat(reached * stage.rate(counts), counts)
  return float(reached.sum())


def tasks_per_step(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> float:
  """Compute the expected tasks a step, a public constant of the plan."""
  episode = plan.episode
  if episode is None:
    raise errors.PlanError("a plan without an episode has no tasks")
  if episode.form == "independent":
    assert episode.tasks is not None
    return float(episode.tasks)
  stage, units = plan.stages[0], hierarchy.num_units(0)
  primary = float(units)
  if isinstance(stage, FixedSize):
    primary = float(min(stage.n, units))
  elif isinstance(stage, (Poisson, RandomAllocation)):
    primary *= float(stage.rate(np.asarray(units)))
  if episode.form == "unit":
    return primary
  inner = math.prod(
      _drawn(hierarchy, plan, k) for k in range(1, hierarchy.depth - 1)
  )
  return primary * inner / episode.way
