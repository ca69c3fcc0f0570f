"""Checks that a plan fits a hierarchy, and expected sizes of a step."""

from collections.abc import Iterable
import math

import numpy as np

from episodic_dp.errors import PlanError
from episodic_dp.plan import stages
from episodic_dp.plan.hierarchy import Hierarchy


def validate(hierarchy: Hierarchy, plan: stages.SamplingPlan) -> None:
  """Check that every unit has the children that the plan samples.

  Args:
    hierarchy: the public sizes of the data.
    plan: the sampling of a step.

  Raises:
    PlanError: names the unit at fault and the remedy.
  """
  stages.check_depth(hierarchy, plan)
  episode, levels = plan.episode, hierarchy.levels
  if episode is not None:
    if len(levels) == 1:
      raise PlanError(
          "an episode needs a class level above the examples, but the"
          f" hierarchy has only the level '{levels[0]}'"
      )
    classes = stages.class_level(hierarchy, plan)
    if episode.form == "unit" and classes < 1 and episode.way > 1:
      raise PlanError(
          f"form='unit' makes a task of way {episode.way} from every sampled"
          f" {levels[0]}, so the classes must be a level between it and the"
          f" examples, but the levels are {levels}: name another level as"
          " classes, use form='disjoint' or 'independent', or way=1 for"
          " regression"
      )
  for k, stage in enumerate(plan.stages):
    if isinstance(stage, stages.FixedSize) and not plan.allow_short_units:
      counts = hierarchy.child_counts(k)
      unit = int(np.argmin(counts))
      if counts[unit] < stage.n:
        place = "the hierarchy"
        if k > 0:
          place = hierarchy.describe(k - 1, unit)
        most = int(counts[unit])
        if k == 0 and episode is not None and episode.form == "disjoint":
          most -= most % episode.way
        raise PlanError(
            f"{place} has {counts[unit]} of level '{levels[k]}', and stage"
            f" FixedSize({stage.n}) samples {stage.n}: sample at most"
            f" {most}, leave out small units by a public rule, or set"
            " allow_short_units=True (--config.plan.allow_short_units=True)"
        )
  if episode is not None:
    _validate_episode(hierarchy, plan, episode)


def _drawn(
    hierarchy: Hierarchy, plan: stages.SamplingPlan, levels: Iterable[int]
) -> list[int]:
  """Return the number of children that each stage samples of every unit.

  Raises:
    PlanError: units give different numbers, and none may be short.
  """
  drawn = []
  for level in levels:
    stage = plan.stages[level]
    counts = hierarchy.child_counts(level)
    low, high = int(counts.min()), int(counts.max())
    if isinstance(stage, stages.Poisson):
      raise PlanError(
          f"stage {stage} of level '{hierarchy.levels[level]}' samples a random"
          " number, but an episode has a fixed number of classes and examples:"
          " use FixedSize(n)"
      )
    if isinstance(stage, stages.FixedSize):
      high = stage.n  # Short units are checked elsewhere.
    elif low != high and not plan.allow_short_units:
      raise PlanError(
          f"level '{hierarchy.levels[level]}' gives between {low} and {high}"
          f" units with {stage}, but an episode has a fixed number: use"
          f" FixedSize({max(low, 1)})"
      )
    drawn.append(high)
  return drawn


def _validate_episode(
    hierarchy: Hierarchy, plan: stages.SamplingPlan, episode: stages.Episode
) -> None:
  """Check way, shot and query against the numbers that the stages sample."""
  last, level = hierarchy.depth - 1, stages.class_level(hierarchy, plan)
  below = range(level + 1, last + 1)
  drawn = _drawn(hierarchy, plan, below)
  examples = math.prod(drawn)
  if _differs(examples, episode.shot + episode.query, plan, below):
    raise PlanError(
        f"shot {episode.shot} + query {episode.query} ="
        f" {episode.shot + episode.query}, but the stages below"
        f" '{hierarchy.levels[level]}' sample {' x '.join(map(str, drawn))} of"
        f" level '{hierarchy.levels[last]}' per class: make them equal"
    )
  together = math.prod(drawn[1:])
  if episode.shot % together:
    raise PlanError(
        f"each {hierarchy.levels[level + 1]} gives {together} examples of a"
        f" class and shot is {episode.shot}, so one would be in the support and"
        " in the query set: make shot and query multiples of"
        f" {together}, or use FixedSize(1) for level '{hierarchy.levels[last]}'"
    )
  upper = range(level + 1)
  if episode.form == "unit":
    upper = range(1, level + 1)
  classes = math.prod(_drawn(hierarchy, plan, upper))
  if episode.form == "disjoint":
    if classes % episode.way:
      raise PlanError(
          f"the class stages sample {classes} classes, which do not divide into"
          f" tasks of way {episode.way}: sample a multiple of {episode.way}"
      )
    inner = math.prod(_drawn(hierarchy, plan, range(1, level + 1)))
    if inner % episode.way and episode.way % inner:
      raise PlanError(
          f"each {hierarchy.levels[0]} gives {inner} classes and a task has way"
          f" {episode.way}: one must divide the other, or a task would hold"
          " part of one unit and part of the next"
      )
  elif _differs(classes, episode.way, plan, upper):
    raise PlanError(
        f"way {episode.way} differs from the {classes} classes that the class"
        f" stages sample: make them equal (way is their product)"
    )


def _differs(
    drawn: int, wanted: int, plan: stages.SamplingPlan, levels: Iterable[int]
) -> bool:
  """Return whether stages sample another number than a task holds.

  With short units allowed, fewer are accepted for `All`: a neighbour of sound
  data may lack one unit of exactly enough, and then fills no task.
  """
  for k in levels:
    if plan.allow_short_units and isinstance(plan.stages[k], stages.All):
      return drawn > wanted
  return drawn != wanted


def examples_per_step(
    hierarchy: Hierarchy, plan: stages.SamplingPlan
) -> float:
  """Compute the expected examples of a step, a public constant of the plan."""
  stages.check_depth(hierarchy, plan)
  # Number of sampled units of a level: per unit, or one number for all.
  chosen = np.ones(1)
  for k, stage in enumerate(plan.stages):
    counts = hierarchy.child_counts(k)
    rates = stage.rate(counts)
    if hierarchy.sizes is None:
      chosen = np.repeat(chosen * rates, counts)
    else:
      chosen = chosen * (counts * rates)
  return float(chosen.sum())


def tasks_per_step(
    hierarchy: Hierarchy, plan: stages.SamplingPlan
) -> float:
  """Compute the expected tasks of a step, a public constant of the plan.

  In form "disjoint" a last task with too few classes counts by its share, so
  that the result is never 0: sums are divided by it.

  Args:
    hierarchy: the public sizes of the data.
    plan: the sampling of a step, with an episode.

  Raises:
    PlanError: the plan has no episode.
  """
  episode = plan.episode
  if episode is None:
    raise PlanError("a plan without an episode has no tasks")
  if plan.repeats:
    return float(plan.repeats[0])
  stage, units = plan.stages[0], hierarchy.num_units(0)
  primary = units * float(stage.rate(units))
  if isinstance(stage, stages.FixedSize):
    primary = float(min(stage.n, units))
  if episode.form == "unit":
    return primary
  below = range(1, stages.class_level(hierarchy, plan) + 1)
  return primary * math.prod(_drawn(hierarchy, plan, below)) / episode.way


def filled(hierarchy: Hierarchy, plan: stages.SamplingPlan) -> float:
  """Return the share of the sampled tasks that lack no class and no example.

  It follows from the numbers of examples of each class, which are public. The
  other tasks contribute nothing.

  Args:
    hierarchy: the public sizes of the data.
    plan: the sampling of a step; 1 without an episode.
  """
  if plan.episode is None or not plan.allow_short_units:
    return 1.0
  classes = stages.class_level(hierarchy, plan)
  if hierarchy.sizes is not None or classes != hierarchy.depth - 2:
    return 1.0
  episode = plan.episode
  enough = hierarchy.child_counts(classes + 1) >= episode.shot + episode.query
  # Classes of each unit above: those with enough examples, and all.
  above, units = hierarchy.parents(classes), hierarchy.num_units(classes - 1)
  able = np.bincount(above, enough, units)
  held = np.bincount(above, minlength=units)
  chances = np.ones(units)
  for k in range(episode.way):
    chances *= np.maximum(able - k, 0) / np.maximum(held - k, 1)
  return float(chances.mean())


def lacking(filled: float) -> str:
  """Say which share of the sampled tasks nobody can fill; see `filled`."""
  return (
      f"{100 * (1 - filled):.3g} % of the sampled tasks lack classes or"
      " examples and contribute nothing"
  )


def task_plan(
    hierarchy: Hierarchy,
    *,
    way: int,
    shot: int,
    query: int,
    classes: str | None = None,
) -> tuple[stages.SamplingPlan, Hierarchy]:
  """Make the plan of one task of public data.

  The task has one unit of each upper level, `way` classes, and shot + query
  examples of each class. If classes are the first level, they come from the
  whole set, otherwise from one unit (one writer's script). If levels lie
  between class and example (diagnosis, patient, image), each example of a class
  is from another of their units. The data are public, so units that are too
  small for a task are left out.

  Args:
    hierarchy: the sizes of the data.
    way: classes of a task.
    shot: support examples of a class.
    query: query examples of a class.
    classes: the level of the classes; None, or a level that the data do not
      have, is the level above the examples.

  Returns:
    The plan, and the tree of the units that it samples from.

  Raises:
    PlanError: the hierarchy is too small for such a task.
  """
  upper = max(hierarchy.depth - 2, 0)
  if classes in hierarchy.levels:
    upper = hierarchy.levels.index(classes)
  else:
    classes = None
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
