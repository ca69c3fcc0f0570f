"""Whether a config goes on with the run that a work directory holds."""

from collections.abc import Mapping, Sequence
import json
import os
import pathlib
import shlex
from typing import Any

from absl import logging

from episodic_dp import errors
from episodic_dp.errors import shown
from episodic_dp.training import workdir

# What may differ when a run is resumed. The first group changes neither the
# steps nor what is drawn. The second changes how the sum of a step's tasks is
# laid out, and so its rounding alone: samples and noise are the same bits (see
# `binding`). The third changes steps that are still to come: it is refused
# while steps after the last checkpoint have left a trace, since these would be
# taken a second time, differently, under the same noise.
# What a path names is compared by its digest, and code by what it computes
# (`binding`).
_REPORTING = ("delta", "evaluation.test_tasks", "evaluation.seed",
              "model.start", "model.source_digest")
_REMEDIES = {
    "model.start_digest": (
        "give --config.model.start the file of weights that it was started with"
    ),
    "model.shapes_digest": (
        "give the network of config.model.name the parameters that it had"
    ),
}
# Of the model: what is known once its network is made.
_RECORDED = ("start_digest", "source_digest", "shapes_digest")
_SIZES = ("hierarchy",)  # Of the data.
_OF_DATA = "with the data that it was started with"
_OF_ANOTHER = "with the --config that it was started with"
_FEW = 3  # Fields that a sentence names.
_LAYOUT = ("compute.devices", "compute.microbatch_size", "compute.resident")
_FUTURE = ("steps", "target_epsilon", "privacy_unit", "compute", "evaluation",
           "fine_tuning", "private_diagnostics")


def check_config(
    folder: str | os.PathLike, config: Mapping[str, Any], *, clean: bool
) -> list[str]:
  """Refuses to resume a run under another configuration.

  Args:
    folder: the work directory; one without a configuration passes.
    config: nested, JSON-able.
    clean: whether no step after the last checkpoint has left a trace; then
      what shapes only the steps to come may change (more steps, for one).

  Returns:
    What differs of how sums are laid out, each as "name before -> now".

  Raises:
    RunError: names the field, the data before all others.
  """
  if not (pathlib.Path(folder) / workdir.CONFIG).exists():
    return []
  relaid, refused = [], []
  old = _flat(workdir.saved_config(folder))
  new = _flat(json.loads(json.dumps(config)))
  for name in sorted({*old, *new}, key=_telling):
    before, after = old.get(name, "absent"), new.get(name, "absent")
    if before != after and name == "model.source_digest":
      logging.warning(
          "the file of config.model.name=%r has changed since the run in %s"
          " began: it goes on if the network computes what it did",
          new.get("model.name"),
          folder,
      )
    if before == after or _under(name, _REPORTING):
      continue
    if {str(before), str(after)} == {"absent", "None"}:
      continue  # A field that earlier versions did not have, and is not set.
    if _under(name, _LAYOUT):
      if before != "absent":  # Earlier versions wrote fewer of them.
        relaid.append(f"{name.partition('.')[2]} '{before}' -> '{after}'")
      continue
    if _under(name, _FUTURE) and clean:
      continue
    refused.append((name, before, after))
  if refused:
    raise errors.RunError(_differs(pathlib.Path(folder), refused))
  return relaid


def _differs(
    folder: pathlib.Path, refused: Sequence[tuple[str, Any, Any]]
) -> str:
  """The sentence about fields that a run cannot be resumed with: the first."""
  name, before, after = refused[0]
  as_before = _all_as_before(refused)
  if _under(name, _FUTURE):
    remedy = (
        f"resume once {as_before}, let it stop at a checkpoint, then change it"
    )
  else:
    remedy = _REMEDIES.get(name, f"resume {as_before}")
    remedy += " or choose another --workdir"
  began, resumed = f"with config.{name}={before!r}", f"with {after!r}"
  if _under(name, _SIZES):
    began, resumed = "on data of other sizes", "on these"
  elif before == "absent":
    began = f"without config.{name}"
  elif after == "absent":
    resumed = "without it"
  if any("absent" in r[1:] for r in refused if not _under(r[0], _SIZES)):
    remedy += (
        f"; if {folder / workdir.CONFIG} is damaged, move it away and run the"
        " same command again"
    )
  return (
      f"the run in {folder} was started {began} and is resumed {resumed}, which"
      f" would draw other steps under the same key: {remedy}"
  )


def _all_as_before(refused: Sequence[tuple[str, Any, Any]]) -> str:
  """How to resume with the values that all fields had."""
  # What is computed of the others is not typed.
  computed = (*_REMEDIES, *_SIZES)
  named = [field for field in refused if not _under(field[0], computed)]
  ways = [_as_before(*field) for field in named]
  if len(ways) > _FEW or _OF_ANOTHER in ways:
    return _OF_ANOTHER
  names = [name for name, _, _ in refused]
  if any(_under(name, _SIZES) for name in names) and not any(
      _under(name, ("data",)) for name in names
  ):
    ways.append(_OF_DATA)
  return " and ".join(ways)


def _as_before(name: str, before: Any, after: Any) -> str:
  """How to resume with the value that a field had, as flags."""
  if before in ("absent", None):
    return f"without --config.{name}"
  if after == "absent" or name == "data.name":  # Of another preset or file.
    return _OF_ANOTHER
  if isinstance(before, list):
    return f'with --config.{name}="{tuple(before)}"'
  return f"with --config.{name}={shlex.quote(str(before))}"


def first_difference(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[str, str, str] | None:
  """The name and the two values of the first field that differs, or None.

  Args:
    old: nested, of objects and lists.
    new: likewise.
  """
  before, after = (_flat(value, lists=True) for value in (old, new))
  for name in sorted({*before, *after}):
    values = before.get(name, "absent"), after.get(name, "absent")
    if values[0] != values[1]:
      return name, shown(values[0]), shown(values[1])
  return None


def check_before_data(
    folder: str | os.PathLike, config: Mapping[str, Any]
) -> None:
  """Refuses what `check_config` will, as far as that needs no data.

  Args:
    folder: the work directory; one without a configuration passes.
    config: nested, JSON-able; what a run records of its network may be absent.

  Raises:
    RunError: names the field.
  """
  if not (pathlib.Path(folder) / workdir.CONFIG).exists():
    return
  model = dict(config.get("model") or {})
  before = workdir.saved_config(folder).get("model")
  if isinstance(before, dict):
    for name in _RECORDED:
      if model.get(name) is None and name in before:
        model[name] = before[name]
  check_config(folder, dict(config) | {"model": model}, clean=True)
  done, steps = _steps_done(pathlib.Path(folder)), config.get("steps")
  if isinstance(steps, int) and done > steps:
    raise too_few_steps(folder, done, steps)


def _steps_done(folder: pathlib.Path) -> int:
  """The step of the last checkpoint, by its name; 0 where there is none."""
  names = (path.name for path in (folder / workdir.CHECKPOINTS).glob("*"))
  return max((int(name) for name in names if name.isdigit()), default=0)


def too_few_steps(
    folder: str | os.PathLike, done: int, steps: int, *, budget: bool = False
) -> errors.RunError:
  """The sentence about a run that has done more steps than it may.

  Args:
    folder: its work directory.
    done: its steps.
    steps: what the configuration allows.
    budget: whether it is the target ε that allows no more.
  """
  remedy = f"resume with --config.steps={done} or more"
  if budget:
    remedy = "resume without --config.target_epsilon"
  return errors.RunError(
      f"the run in {folder} has done {done} steps already and the configuration"
      f" allows {steps}: {remedy}, or evaluate what is there with episodic-dp"
      f" evaluate --workdir={folder} (and the --data_dir of this call, where it"
      " has one)"
  )


def _telling(name: str) -> tuple[bool, bool, str]:
  """To sort names by: what a run is of, and last what may change in it."""
  return _under(name, _FUTURE), not _under(name, ("data",)), name


def _under(name: str, groups: tuple[str, ...]) -> bool:
  return any(name == g or name.startswith(g + ".") for g in groups)


def _flat(
    value: Any, prefix: str = "", *, lists: bool = False
) -> dict[str, Any]:
  """Dotted name -> value; with `lists`, of the items of lists as well."""
  if lists and isinstance(value, list):
    value = {str(i): child for i, child in enumerate(value)}
  if not isinstance(value, dict) or not value:
    return {prefix: value}
  result = {}
  for key, child in value.items():
    name = f"{prefix}.{key}" if prefix else key
    result.update(_flat(child, name, lists=lists))
  return result
