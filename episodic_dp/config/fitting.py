"""Tasks that own data are large enough for, as flags that can be typed.

The errors of a plan say what is missing; here it is computed which smaller
tasks, or which other division, the very data at hand would allow.
"""

from collections.abc import Iterator, Mapping
import copy
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.config import release
from episodic_dp.data.own_data import load as own_data_lib

_EQUAL = (1, 1, 1)
_DIVISION = ("by", "crossing", "seed")  # Options, beside the shares.


def refused(
    found: own_data_lib.Survey,
    config: Mapping[str, Any],
    part: str,
    error: plan_lib.PlanError,
) -> plan_lib.PlanError:
  """The error of a part that is too small, with flags that mend it.

  Where nothing is too small, and the plan contradicts itself, its own error.

  Args:
    found: the data.
    config: nested plain values.
    part: one of `data.PARTS`.
    error: of the plan of that part; its own remedy is left where nothing that
      is known here fits the data.
  """
  if not _lacks(found.hierarchies[part], release.plan_of(config), part):
    return error
  source = found.listing.source
  where = f"the {part} part of {source} is too small for its tasks"
  problem, _, _ = str(error).rpartition(": ")
  flags = _flags(found, config)
  if flags:
    return plan_lib.PlanError(
        f"{where} ({problem}): add {' '.join(flags)} to the command"
    )
  plan = release.plan_of(config)
  level = _class_level(found.hierarchies["train"], plan)
  if level is None:
    return plan_lib.PlanError(f"{where}: {error}")
  name, below = found.listing.levels[level : level + 2]
  return plan_lib.PlanError(
      f"{where} ({problem}), and no smaller ones were found that fit: give each"
      f" of training, validation and test at least two of level '{name}' for a"
      f" task with at least two of level '{below}' each, or take those out that"
      " have fewer"
  )


def _lacks(
    tree: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, part: str
) -> bool:
  """Whether a stage draws more than some unit has; of a public part, a task."""
  return part != "train" or any(
      isinstance(stage, plan_lib.FixedSize)
      and stage.n > tree.child_counts(level).min()
      for level, stage in enumerate(plan.stages[: tree.depth])
  )


def _flags(
    found: own_data_lib.Survey, config: Mapping[str, Any]
) -> list[str]:
  """What to add to a command so that all parts are large enough, or nothing."""
  for survey, changes in _candidates(found, config):
    changed = _with(config, changes)
    if _fits(survey, changed):
      return [f"--config.{name}={_typed(v)}" for name, v in changes.items()]
  return []


def _candidates(
    found: own_data_lib.Survey, config: Mapping[str, Any]
) -> Iterator[tuple[own_data_lib.Survey, dict[str, Any]]]:
  """Data and changes of the config, those that change least first."""
  divisions: list[tuple[own_data_lib.Survey, dict[str, Any]]] = [(found, {})]
  if all(c.part is None for c in found.listing.classes):
    chosen = (config.get("data") or {}).get("options") or {}
    how = {k: chosen[k] for k in _DIVISION if chosen.get(k) is not None}
    other = {"data.options.shares": _EQUAL}
    try:
      equal = own_data_lib.divided(found.listing, shares=_EQUAL, **how)
    except ValueError:  # Too few units, or empty ones alone in a part.
      pass
    else:
      divisions.append((equal, other))
  short = {"plan.allow_short_units": True}
  if not _least(found, len(found.listing.levels) - 1)["train"]:
    # An empty unit fits no task, and is no reason to make more units public.
    yield found, _fewer_classes(found, config) | short
    yield found, short
  yield from divisions[1:]
  for survey, changes in divisions:
    smaller = _smaller(survey, config)
    if smaller is not None:
      yield survey, changes | smaller
  for survey, changes in divisions:
    yield survey, changes | _fewer_classes(survey, config) | short
    yield survey, changes | short


def _fewer_classes(
    found: own_data_lib.Survey, config: Mapping[str, Any]
) -> dict[str, Any]:
  """Fewer classes a step, in the same tasks, where it would draw all of them.

  A class that every step draws has no guarantee.
  """
  plan, train = release.plan_of(config), found.hierarchies["train"]
  episode, stage = plan.episode, plan.stages[0]
  if (
      _class_level(train, plan) != 0
      or episode is None
      or episode.form != "disjoint"
      or not isinstance(stage, plan_lib.FixedSize)
  ):
    return {}
  classes = train.num_units(0)
  drawn = (classes - 1) // episode.way * episode.way
  if classes > stage.n or not drawn:
    return {}
  stages = tuple(config["plan"]["stages"])
  return {"plan.stages": (f"FixedSize({drawn})", *stages[1:])}


def _smaller(
    found: own_data_lib.Survey, config: Mapping[str, Any]
) -> dict[str, Any] | None:
  """Fields of the largest tasks of this kind; None where it is another kind."""
  plan, train = release.plan_of(config), found.hierarchies["train"]
  level, episode = _class_level(train, plan), plan.episode
  if level is None or episode is None:
    return None
  classes = _least(found, level)
  examples = _least(found, level + 1)
  if episode.form == "disjoint" and classes["train"] > 2:
    classes["train"] -= 1  # One that every step draws has no guarantee.
  way = drawn = min(episode.way, *classes.values())
  shot, query = _within(episode.shot, episode.query, examples["train"])
  if episode.form == "disjoint":  # Several tasks are cut from one draw.
    stage = plan.stages[level]
    assert isinstance(stage, plan_lib.FixedSize)
    most = classes["train"] // max(way, 1)
    drawn = way * max(1, min(stage.n // episode.way, most))
  stages = list(config["plan"]["stages"])
  stages[level : level + 2] = [
      f"FixedSize({drawn})", f"FixedSize({shot + query})"
  ]
  wanted = {
      "plan.stages": tuple(stages),
      "episode.way": way,
      "episode.shot": shot,
      "episode.query": query,
  }
  evaluation = config.get("evaluation") or {}
  if evaluation.get("shot") and evaluation.get("query"):
    most = min(examples["validation"], examples["test"])
    shot, query = _within(evaluation["shot"], evaluation["query"], most)
    wanted |= {"evaluation.shot": shot, "evaluation.query": query}
  changes: dict[str, Any] = {}
  for name, value in wanted.items():
    section, field = name.split(".")
    given = config[section][field]
    if value != (tuple(given) if field == "stages" else given):
      changes[name] = value
  return changes


def _class_level(
    train: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> int | None:
  """The level whose stage draws `way`, where the next draws shot and query.

  None where the classes or the examples of a task come of several stages.
  """
  if plan.episode is None or len(plan.stages) != train.depth:
    return None
  level = plan_lib.class_level(train, plan)
  one_each = all(
      isinstance(stage, plan_lib.FixedSize) and stage.n == 1
      for stage in plan.stages[level + 2 :]
  )
  both = all(
      isinstance(stage, plan_lib.FixedSize)
      for stage in plan.stages[level : level + 2]
  )
  alone = level == (1 if plan.episode.form == "unit" else 0)
  return level if alone and both and one_each else None


def _least(found: own_data_lib.Survey, level: int) -> dict[str, int]:
  """part -> the fewest units of a level in one family; of public data, held."""
  return {
      part: int(
          (tree if part == "train" else tree.occupied())
          .child_counts(level)
          .min()
      )
      for part, tree in found.hierarchies.items()
  }


def _within(shot: int, query: int, most: int) -> tuple[int, int]:
  """Shot and query of at most so many examples, the shot lowered first."""
  query = min(query, max(1, most - 1))
  return max(1, min(shot, most - query)), query


def _with(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
  """A copy with other values at dotted names."""
  result = copy.deepcopy(dict(config))
  for name, value in changes.items():
    *sections, last = name.split(".")
    where = result
    for section in sections:
      where = where.setdefault(section, {})
    where[last] = value
  return result


def _fits(found: own_data_lib.Survey, config: Mapping[str, Any]) -> bool:
  """Whether all parts are large enough."""
  try:
    plan = release.plan_of(config)
    plan_lib.validate(found.hierarchies["train"], plan)
  except plan_lib.PlanError:
    return False
  episode, evaluation = plan.episode, config.get("evaluation") or {}
  if episode is None or episode.way < 2:
    return False
  shot = evaluation.get("shot") or episode.shot
  query = evaluation.get("query") or episode.query
  for part in ("validation", "test"):
    try:
      plan_lib.task_plan(
          found.hierarchies[part],
          way=episode.way,
          shot=shot,
          query=query,
          classes=episode.classes,
      )
    except plan_lib.PlanError:
      return False
  return True


def _typed(value: Any) -> str:
  """A value as a shell takes it."""
  return f'"{value}"' if isinstance(value, tuple) else str(value)
