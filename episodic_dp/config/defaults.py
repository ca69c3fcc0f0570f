"""Building blocks of config files: default fields, sections and arguments.

A config file starts with `base` and states the differences of its experiment:

  arg = defaults.arguments(text, private=True, width=8)
  c = defaults.base(steps=60, plan=dict(stages=("Poisson(0.02)", ...)), ...)
  c.model.width = arg.width
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import ml_collections

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.config import run_config
from episodic_dp.plan import release as release_lib


def base(
    kind: Any = run_config.RunConfig, **values: Any
) -> ml_collections.ConfigDict:
  """Return the default fields of a config, with some values changed.

  Args:
    kind: dataclass of the config.
    **values: field -> value; a mapping for a section.
  """
  c = ml_collections.ConfigDict(plain.defaults(kind), type_safe=False)
  c.update(values)
  return c


def supervised(
    way: int, classes: int, **values: Any
) -> ml_collections.ConfigDict:
  """Return `base` for example-level training of one network for all classes.

  Args:
    way: number of classes of a validation or test task, which trains a new
      head.
    classes: number of classes of the training data.
    **values: as of `base`.
  """
  c = base(**values)
  c.learner.name = "supervised"
  # Single examples are clipped: batch normalisation would mix them.
  c.model.norm = "group"
  c.model.outputs = classes
  c.evaluation.way = way
  c.compute.microbatch_size = 16  # Examples whose gradients are in memory.
  return c


def participants(
    arg: ml_collections.ConfigDict,
    *,
    data: str,
    options: Mapping[str, Any] | None = None,
    most_copies: Mapping[str, int] | None = None,
    **values: Any,
) -> ml_collections.ConfigDict:
  """Return `base` for synthetic participants as in DP-MAML.

  A step samples participants by Poisson sampling, and each is one task.

  Args:
    arg: private, way, shot, query, width, participants, inner_steps, steps and
      rate, by `arguments`.
    data: name of the data set.
    options: further options of the data set.
    most_copies: level -> the largest number of participants that hold the same
      unit.
    **values: as of `base`.
  """
  per_class = arg.shot + arg.query
  sizes = dict(participants=arg.participants, way=arg.way, per_class=per_class)
  return base(
      steps=arg.steps,
      delta=1e-6,
      plan=dict(stages=(
          f"Poisson({arg.rate})", f"FixedSize({arg.way})",
          f"FixedSize({per_class})",
      )),
      episode=dict(way=arg.way, shot=arg.shot, query=arg.query),
      hierarchy=hierarchy(plan_lib.Hierarchy.regular(
          tuple(sizes.values()), levels=("participant", "class", "image"),
          copies=True, most_copies=most_copies or None,
      )),
      mechanism=mechanism(
          arg.private,
          clip_unit="participant",
          # Far below the norms at the start (15 to 20 for Omniglot), so that
          # tasks are clipped and the noise shrinks with the norm; not tuned.
          clip_norm=0.25,
          noise_multiplier=1.0,
      ),
      data=dict(name=data, options=dict(options or {}, **sizes, seed=0)),
      checkpoint_every=5,
      model=dict(width=arg.width),
      learner=dict(inner_steps=arg.inner_steps),
      **values,
  )


def hierarchy(tree: plan_lib.Hierarchy) -> dict[str, Any]:
  """Return a section `hierarchy` with the levels and sizes of a tree."""
  return dataclasses.asdict(release_lib.Tree.of(tree))


def mechanism(private: bool, **values: Any) -> dict[str, Any]:
  """Return a section `mechanism`; without privacy, no clipping and no noise.

  Args:
    private: whether to clip and add noise.
    **values: field of `plan.Mechanism` -> value.
  """
  if private:
    return values
  return values | dict(clip_norm=math.inf, noise_multiplier=0.0)


def arguments(text: str | None, **known: Any) -> ml_collections.ConfigDict:
  """Parse "name=value,name=value", the text after the colon of --config.

  Args:
    text: such as "private=0,width=16".
    **known: name -> default, of the type of the value. Whole numbers are at
      least 1, or 0 if the default is 0; `rate` is a probability.

  Raises:
    ValueError: an unknown name, or a value of another type or out of range.
  """
  result = dict(known)
  for part in filter(None, (text or "").split(",")):
    name, equals, value = part.partition("=")
    if name not in known or not equals:
      names = ", ".join(f"{k}={v}" for k, v in known.items())
      raise ValueError(
          f"config argument '{part}' is not known: after the colon write some"
          f" of {names}, separated by commas"
      )
    result[name] = _convert(name, value, known[name])
  return ml_collections.ConfigDict(result)


def _convert(name: str, value: str, default: Any) -> Any:
  name = f"config argument {name}"
  if isinstance(default, bool):
    words = ("0", "false", "1", "true")
    return words.index(_validate.one_of(name, value.lower(), words)) > 1
  try:
    found = type(default)(value)
  except ValueError as e:
    raise _validate.refusal(name, value, f"a value such as {default}") from e
  if isinstance(default, int):
    return _validate.count(name, found, least=min(default, 1))
  if isinstance(default, float):
    rate = name.endswith(" rate")
    found = _validate.positive(name, found, zero=not rate)
    return _validate.probability(name, found) if rate else found
  return found
