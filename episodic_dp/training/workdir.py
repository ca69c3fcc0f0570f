"""The work directory: one run at a time, one configuration, room to write."""

from collections.abc import Iterator, Mapping
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

from episodic_dp.plan.errors import shown
from episodic_dp.training import errors

CONFIG = "config.json"
_LOCK = ".lock"
_ROOM = 64 * 2**20  # bytes: seven small checkpoints and the pictures

# What may differ when a run is resumed. The first group changes neither the
# steps nor what is drawn. The second changes steps that are still to come: it
# is refused while steps after the last checkpoint have left a trace, since
# these would be taken a second time, differently, under the same noise.
_REPORTING = ("delta", "evaluation.test_tasks", "evaluation.seed")
_FUTURE = ("steps", "target_epsilon", "target_level", "compute", "evaluation",
           "fine_tuning", "private_diagnostics")


@contextlib.contextmanager
def opened(workdir: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Makes the folder, checks that it takes files, and locks it.

  Raises:
    RunError: the folder cannot be made or written, its disk is full, or another
      process trains in it.
  """
  folder = pathlib.Path(workdir).absolute()
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
      probe.write(b"\0" * 4096)
      probe.flush()
    room = shutil.disk_usage(folder).free
    lock = open(folder / _LOCK, "w")
  except OSError as e:
    raise errors.RunError(
        f"the work directory {folder} cannot be written"
        f" ({e.strerror or e}): choose another --workdir or mend this one"
    ) from e
  if room < _ROOM:
    lock.close()
    raise errors.RunError(
        f"the disk of the work directory {folder} has {room >> 20} MiB left and"
        f" a run needs {_ROOM >> 20}: make room or choose another --workdir"
    )
  with lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      raise errors.RunError(
          f"another process is training in {folder}: wait for it, stop it, or"
          " choose another --workdir"
      ) from e
    yield folder


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
  """The configuration of the run in this folder.

  Raises:
    RunError: there is none, or it is damaged.
  """
  path = pathlib.Path(folder) / CONFIG
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError as e:
    raise errors.RunError(
        f"{path} does not exist: give the --workdir of a run that was started"
        " with episodic-dp train"
    ) from e
  except (OSError, ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{path} cannot be read ({e}): restore the file, or start a new run in"
        " another --workdir"
    ) from e
  if not isinstance(value, dict):
    raise errors.RunError(
        f"{path} does not hold a configuration: restore the file, or start a"
        " new run in another --workdir"
    )
  return value


def check_config(
    folder: str | os.PathLike, config: Mapping[str, Any], *, clean: bool
) -> None:
  """Refuses to resume a run under another configuration.

  Args:
    folder: the work directory; one without a configuration passes.
    config: nested, JSON-able.
    clean: whether no step after the last checkpoint has left a trace; then
      what shapes only the steps to come may change (more steps, for one).

  Raises:
    RunError: names the field.
  """
  if not (pathlib.Path(folder) / CONFIG).exists():
    return
  old, new = _flat(read_config(folder)), _flat(json.loads(json.dumps(config)))
  for name in sorted({*old, *new}):
    before, after = old.get(name, "absent"), new.get(name, "absent")
    if before == after or _under(name, _REPORTING):
      continue
    if _under(name, _FUTURE):
      if clean:
        continue
      remedy = (
          f"resume once with {name}={before!r}, let it stop at a checkpoint,"
          " then change it"
      )
    else:
      remedy = f"resume with {name}={before!r} or choose another --workdir"
    raise errors.RunError(
        f"the run in {folder} was started with config.{name}={before!r} and is"
        f" resumed with {after!r}, which would draw other steps under the same"
        f" key: {remedy}"
    )


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
