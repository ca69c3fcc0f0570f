"""What the folder of a trained run holds: its checkpoint and its guarantees."""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
from typing import Any

from episodic_dp import errors
from episodic_dp.training import checkpoint
from episodic_dp.training import reporting


def latest(workdir: str | os.PathLike) -> tuple[checkpoint.Checkpoints, int]:
  """The checkpoints of a run, read-only, and the step of the last one.

  Raises:
    RunError: there is no checkpoint.
  """
  checkpoints = checkpoint.Checkpoints(workdir, read_only=True)
  step = checkpoints.latest()
  if step is None:
    raise errors.RunError(
        f"{checkpoints.folder} has no checkpoint yet: let episodic-dp train go"
        " on until it has saved one"
    )
  return checkpoints, step


def guarantees(
    workdir: str | os.PathLike, *fields: str
) -> dict[str, Mapping[str, Any]] | None:
  """What the guarantee.json of a run states, None where it has no such file.

  Args:
    workdir: the folder of the run.
    *fields: of `accounting.Guarantee.as_dict`; what is wanted of each level.

  Returns:
    level -> {field: value}; an infinite epsilon is the string "inf".

  Raises:
    RunError: the file is damaged.
  """
  with _readable(workdir) as file:
    if not file.exists():
      return None
    levels = _statement(file)["guarantees"]
    for stated in levels.values():
      float(stated["epsilon"]), float(stated["delta"])
    return {
        level: {field: stated[field] for field in fields}
        for level, stated in levels.items()
    }


def planned_steps(workdir: str | os.PathLike) -> int | None:
  """The steps of the whole run, as its guarantee.json states them.

  They may be fewer than its config asks for, where it has a budget.

  Args:
    workdir: the folder of the run.

  Returns:
    None where it has no such file.

  Raises:
    RunError: the file is damaged.
  """
  with _readable(workdir) as file:
    return int(_statement(file)["planned_steps"]) if file.exists() else None


def _statement(file: pathlib.Path) -> Mapping[str, Any]:
  return json.loads(file.read_text(encoding="utf-8"))


@contextlib.contextmanager
def _readable(workdir: str | os.PathLike) -> Iterator[pathlib.Path]:
  """The guarantee.json of a run; RunError where what is read is not one."""
  file = pathlib.Path(workdir) / reporting.GUARANTEE
  try:
    yield file
  except (
      OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
  ) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e
