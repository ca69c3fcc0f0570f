"""Checks that a hierarchy can give the draws of a plan, and their number."""

from collections.abc import Iterable
import math

import numpy as np

from episodic_dp import errors
from episodic_dp.plan import stages
from episodic_dp.plan.hierarchy import Hierarchy


def validate(
    hierarchy: Hierarchy, plan: stages.SamplingPlan, *, public: bool = False
) -> None:
  """Check that every unit can give what the plan draws from it.

  Args:
    hierarchy: of the data.
    plan: what is drawn.
    public: whether it is a `task_plan`, where no unit may be short.

  Raises:
    PlanError: names the unit at fault and the remedy.
  """
  stages.check_depth(hierarchy, plan)
  episode, last = plan.episode, hierarchy.depth - 1
  if episode is not None:
    if last == 0:
      raise errors.PlanError(
          "an episode needs a class level above the examples, and the"
          f" hierarchy has only the level '{hierarchy.levels[0]}'"
      )
    classes = stages.class_level(hierarchy, plan)
    if episode.form == "unit" and classes < 1 and episode.way > 1:
      raise errors.PlanError(_no_classes(hierarchy, episode))
  for k, stage in enumerate(plan.stages):
    if isinstance(stage, stages.FixedSize) and not plan.allow_short_units:
      counts = hierarchy.child_counts(k)
      unit = int(np.argmin(counts))
      if counts[unit] < stage.n:
        has = int(counts[unit])
        remedy = (
            f"or give data that have {stage.n}"
            if public
            else "leave out small units by a public rule, or set"
            " allow_short_units=True"
        )
        problem = _too_few(hierarchy, plan, k, unit, has, stage.n)
        raise errors.PlanError(f"{problem}: draw at most {has}, {remedy}")
  if episode is not None:
    _validate_episode(hierarchy, plan, episode)


def _no_classes(hierarchy: Hierarchy, episode: stages.Episode) -> str:
  """One sentence: the task unit of form "unit" cannot be the class."""
  levels = hierarchy.levels
  if len(levels) < 3:
    return (
        f"form='unit' with way {episode.way} needs three levels or more (a"
        " task unit, its classes, their examples), and the hierarchy has"
        f" {levels}; use form='disjoint' or 'independent', or way=1 for"
        " regression"
    )
  return (
      f"form='unit' makes one task of every drawn {levels[0]}, whose classes"
      f" lie below it, and classes='{levels[0]}': use form='independent' (tasks"
      f" across the {levels[0]} units), or classes='{levels[1]}'"
  )


def _too_few(
    hierarchy: Hierarchy,
    plan: stages.SamplingPlan,
    level: int,
    unit: int,
    has: int,
    wants: int,
) -> str:
  """Return the sentence for a unit that has too few children."""
  name = hierarchy.levels[level]
  if level == 0:
    where = f"the hierarchy has {has} units of level '{name}'"
  elif hierarchy.sizes is not None:
    where = f"every {hierarchy.levels[level - 1]} has {has} of level '{name}'"
  else:
    where = f"{hierarchy.describe(level - 1, unit)} has {has} of level '{name}'"
  what = f"stage FixedSize({wants}) draws {wants}"
  episode = plan.episode
  if episode is not None and wants == episode.shot + episode.query and (
      level > stages.class_level(hierarchy, plan)
  ):
    what += f" (shot {episode.shot} + query {episode.query})"
  elif episode is not None and level > 0 and wants == episode.way:
    what += f" (way {episode.way})"
  return f"{where}, and {what}"


def _drawn(
    hierarchy: Hierarchy, plan: stages.SamplingPlan, level: int
) -> int:
  """Return the number of children that the stage draws of every unit.

  Raises:
    PlanError: units have different numbers and none may be short.
  """
  stage = plan.stages[level]
  counts = hierarchy.child_counts(level)
  if isinstance(stage, stages.Poisson):
    raise errors.PlanError(
        f"stage {stage} of level '{hierarchy.levels[level]}' draws a random"
        " number, and an episode has a fixed number of classes and examples:"
        " use FixedSize(n)"
    )
  if isinstance(stage, stages.FixedSize):  # No unit is short, or all may be.
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
    hierarchy: Hierarchy, plan: stages.SamplingPlan, episode: stages.Episode
) -> None:
  """Check way, shot and query against what the stages draw."""
  last, level = hierarchy.depth - 1, stages.class_level(hierarchy, plan)
  below = range(level + 1, last + 1)
  drawn = [_drawn(hierarchy, plan, k) for k in below]
  examples = math.prod(drawn)
  if _differs(examples, episode.shot + episode.query, plan, below):
    name = hierarchy.levels[last]
    raise errors.PlanError(
        f"shot {episode.shot} + query {episode.query} ="
        f" {episode.shot + episode.query}, and "
        + (
            f"the last stage draws {examples} of level '{name}' per class"
            if len(drawn) == 1
            else f"the stages below '{hierarchy.levels[level]}' draw"
            f" {' x '.join(map(str, drawn))} of level '{name}' per class"
        )
        + ": make them equal"
    )
  together = math.prod(drawn[1:])
  if episode.shot % together:
    raise errors.PlanError(
        f"each {hierarchy.levels[level + 1]} gives {together} examples of a"
        f" class and shot is {episode.shot}: one of them would be in the"
        " support and in the query, so make shot and query multiples of"
        f" {together}, or draw FixedSize(1) of level '{hierarchy.levels[last]}'"
    )
  first = 1 if episode.form == "unit" else 0
  upper = range(first, level + 1)
  classes = math.prod(_drawn(hierarchy, plan, k) for k in upper)
  if episode.form == "disjoint":
    if classes % episode.way:
      raise errors.PlanError(
          f"the class stages draw {classes} classes, which do not divide into"
          f" tasks of way {episode.way}: draw a multiple of {episode.way}"
      )
    inner = math.prod(_drawn(hierarchy, plan, k) for k in range(1, level + 1))
    if inner % episode.way and episode.way % inner:
      raise errors.PlanError(
          f"each {hierarchy.levels[0]} gives {inner} classes and a task has way"
          f" {episode.way}: one must divide the other, or a task would hold"
          " part of one unit and part of the next"
      )
  elif _differs(classes, episode.way, plan, upper):
    raise errors.PlanError(
        f"way {episode.way} differs from the {classes} classes that the class"
        f" stages draw: make them equal (way is their product)"
    )


def _differs(
    drawn: int, wanted: int, plan: stages.SamplingPlan, levels: Iterable[int]
) -> bool:
  """Return whether stages draw another number than a task holds.

  Data that lack one unit may lack it where `All` drew just enough: with short
  units allowed fewer will do, and no task is filled.
  """
  short = plan.allow_short_units and any(
      isinstance(plan.stages[k], stages.All) for k in levels
  )
  return drawn > wanted if short else drawn != wanted


def examples_per_step(
    hierarchy: Hierarchy, plan: stages.SamplingPlan
) -> float:
  """Compute the expected examples a step, a public constant of the plan."""
  stages.check_depth(hierarchy, plan)
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
    hierarchy: Hierarchy, plan: stages.SamplingPlan
) -> float:
  """Compute the expected tasks a step, a public constant of the plan.

  A last task of form "disjoint" that too few classes are left for counts by
  their share, so that the number is never 0: sums are divided by it.
  """
  episode = plan.episode
  if episode is None:
    raise errors.PlanError("a plan without an episode has no tasks")
  if episode.form == "independent":
    assert episode.tasks is not None
    return float(episode.tasks)
  stage, units = plan.stages[0], hierarchy.num_units(0)
  primary = float(units)
  if isinstance(stage, stages.FixedSize):
    primary = float(min(stage.n, units))
  elif isinstance(stage, (stages.Poisson, stages.RandomAllocation)):
    primary *= float(stage.rate(np.asarray(units)))
  if episode.form == "unit":
    return primary
  inner = math.prod(
      _drawn(hierarchy, plan, k)
      for k in range(1, stages.class_level(hierarchy, plan) + 1)
  )
  return primary * inner / episode.way


def task_plan(
    hierarchy: Hierarchy,
    *,
    way: int,
    shot: int,
    query: int,
    classes: str | None = None,
) -> stages.SamplingPlan:
  """Plan one task of public data.

  It has a unit of each upper level, `way` classes and shot + query of each.

  Where classes are the first level they come from the whole set, otherwise from
  one unit (one writer's script). Where they are not the level above the
  examples (diagnosis, patient, image), each of their examples is of another
  unit below them. The data are public, so empty units are left out.

  Args:
    hierarchy: of the data.
    way: classes of a task.
    shot: support examples of a class.
    query: query examples of a class.
    classes: their level; None means the one above the examples.

  Raises:
    PlanError: the hierarchy is too small for such a task.
  """
  upper = max(hierarchy.depth - 2, 0)
  if classes is not None:
    upper = hierarchy.level_index(classes)
  plan = stages.SamplingPlan(
      (
          *[stages.FixedSize(1)] * upper,
          stages.FixedSize(way),
          stages.FixedSize(shot + query),
          *[stages.FixedSize(1)] * (hierarchy.depth - upper - 2),
      ),
      episode=stages.Episode(
          way=way,
          shot=shot,
          query=query,
          form="unit" if upper else "disjoint",
          classes=classes,
      ),
  )
  validate(hierarchy.occupied(), plan, public=True)
  return plan
