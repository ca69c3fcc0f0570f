"""Checks that a hierarchy can give the draws of a plan, and their number."""

from collections.abc import Iterable
import math

import numpy as np

from episodic_dp import errors
from episodic_dp.plan import stages
from episodic_dp.plan.hierarchy import Hierarchy


def validate(hierarchy: Hierarchy, plan: stages.SamplingPlan) -> None:
  """Check that every unit can give the draws of the plan.

  Raises:
    PlanError: names the unit at fault and the remedy.
  """
  stages.check_depth(hierarchy, plan)
  episode, levels = plan.episode, hierarchy.levels
  if episode is not None:
    if len(levels) == 1:
      raise errors.PlanError(
          "an episode needs a class level above the examples, and the"
          f" hierarchy has only the level '{levels[0]}'"
      )
    classes = stages.class_level(hierarchy, plan)
    if episode.form == "unit" and classes < 1 and episode.way > 1:
      raise errors.PlanError(
          f"form='unit' makes a task of way {episode.way} of every drawn"
          f" {levels[0]} and needs the classes at a level between it and the"
          f" examples, and the hierarchy has {levels}: name another level as"
          " classes, use form='disjoint' or 'independent', or way=1 for"
          " regression"
      )
  for k, stage in enumerate(plan.stages):
    if isinstance(stage, stages.FixedSize) and not plan.allow_short_units:
      counts = hierarchy.child_counts(k)
      unit = int(np.argmin(counts))
      if counts[unit] < stage.n:
        place = hierarchy.describe(k - 1, unit) if k else "the hierarchy"
        raise errors.PlanError(
            f"{place} has {counts[unit]} of level '{levels[k]}', and stage"
            f" FixedSize({stage.n}) draws {stage.n}: draw at most"
            f" {counts[unit]}, leave out small units by a public rule, or set"
            " allow_short_units=True"
        )
  if episode is not None:
    _validate_episode(hierarchy, plan, episode)


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
    raise errors.PlanError(
        f"shot {episode.shot} + query {episode.query} ="
        f" {episode.shot + episode.query}, and the stages below"
        f" '{hierarchy.levels[level]}' draw {' x '.join(map(str, drawn))} of"
        f" level '{hierarchy.levels[last]}' per class: make them equal"
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
  # How many units of a level are chosen: one by one, or all that are alike.
  chosen = np.ones(1)
  for k, stage in enumerate(plan.stages):
    counts = hierarchy.child_counts(k)
    rates = stage.rate(counts)
    if hierarchy.sizes is not None:
      chosen = chosen * (counts * rates)
    else:
      chosen = np.repeat(chosen * rates, counts)
  return float(chosen.sum())


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
  if plan.repeats:
    return float(plan.repeats[0])
  stage, units = plan.stages[0], hierarchy.num_units(0)
  primary = units * float(stage.rate(np.asarray(units)))
  if isinstance(stage, stages.FixedSize):
    primary = float(min(stage.n, units))
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
) -> tuple[stages.SamplingPlan, Hierarchy]:
  """Plan one task of public data.

  It has a unit of each upper level, `way` classes and shot + query of each.

  Where classes are the first level they come from the whole set, otherwise from
  one unit (one writer's script). Where they are not the level above the
  examples (diagnosis, patient, image), each of their examples is of another
  unit below them. The data are public, so units that are too small for a task
  are left out.

  Args:
    hierarchy: of the data.
    way: classes of a task.
    shot: support examples of a class.
    query: query examples of a class.
    classes: their level; None, or a level that the data do not have, means the
      one above the examples.

  Returns:
    The plan, and the tree of the units that it samples from.

  Raises:
    PlanError: the hierarchy is too small for such a task.
  """
  upper = max(hierarchy.depth - 2, 0)
  if classes not in hierarchy.levels:
    classes = None
  if classes is not None:
    upper = hierarchy.level_index(classes)
  sizes = [1] * upper + [way, shot + query]
  sizes += [1] * (hierarchy.depth - len(sizes))
  plan = stages.SamplingPlan(
      tuple(map(stages.FixedSize, sizes)),
      episode=stages.Episode(
          way=way,
          shot=shot,
          query=query,
          form="unit" if upper else "disjoint",
          classes=classes,
      ),
  )
  fitting = hierarchy.fitting(sizes)
  validate(fitting, plan)
  return plan, fitting
