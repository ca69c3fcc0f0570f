"""Content of the folder of a trained run: its checkpoint, its guarantees."""

from collections.abc import Callable, Mapping
import json
import os
from typing import Any

from episodic_dp import errors
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib


def latest(
    workdir: str | os.PathLike,
) -> tuple[checkpoint_lib.Checkpoints, int]:
  """Return the checkpoints of a run, read-only, and the last one's step.

  Raises:
    RunError: there is no checkpoint.
  """
  checkpoints = checkpoint_lib.Checkpoints(workdir, read_only=True)
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
  """Return what the guarantee.json of a run states, None if it has none.

  Args:
    workdir: the folder of the run.
    *fields: of `accounting.Guarantee.as_dict`; those wanted of each level.

  Returns:
    level -> {field: value}; an infinite epsilon is the string "inf".

  Raises:
    RunError: the file is damaged.
  """

  def read(statement: Any) -> dict[str, Mapping[str, Any]]:
    levels = statement["guarantees"]
    for stated in levels.values():
      float(stated["epsilon"]), float(stated["delta"])
    return {
        level: {field: stated[field] for field in fields}
        for level, stated in levels.items()
    }

  return _stated(workdir, read)


def planned_steps(workdir: str | os.PathLike) -> int | None:
  """Return the steps of the whole run, as its guarantee.json states them.

  They may be fewer than its config asks for, where it has a budget.

  Args:
    workdir: the folder of the run.

  Returns:
    None if it has no such file.

  Raises:
    RunError: the file is damaged.
  """
  return _stated(workdir, lambda statement: int(statement["planned_steps"]))


def _stated(workdir: str | os.PathLike, read: Callable[[Any], Any]) -> Any:
  """Return what `read` finds in the guarantee.json of a run, or None."""
  file = workdir_lib.folder_of(workdir) / reporting.GUARANTEE
  if not file.exists():
    return None
  try:
    return read(json.loads(file.read_text(encoding="utf-8")))
  except (
      OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
  ) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e
