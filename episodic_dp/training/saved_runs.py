"""Content of the folder of a trained run: its checkpoint, its guarantees."""

from collections.abc import Mapping
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
  checkpoints = checkpoint_lib.Checkpoints(workdir)
  step = checkpoints.latest()
  if step is None:
    raise errors.RunError(
        f"{checkpoints.folder} has no checkpoint yet: let episodic-dp train go"
        " on until it has saved one"
    )
  return checkpoints, step


def statement(workdir: str | os.PathLike) -> Any:
  """Return the privacy statement of a run, None if it has none.

  Raises:
    RunError: the file is damaged.
  """
  file = workdir_lib.folder_of(workdir) / reporting.GUARANTEE
  if not file.exists():
    return None
  try:
    found = json.loads(file.read_text(encoding="utf-8"))
    int(found["planned_steps"])
    for stated in found["guarantees"].values():
      float(stated["epsilon"]), float(stated["delta"])
  except (
      OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
  ) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e
  return found


def guarantees(
    workdir: str | os.PathLike, *fields: str
) -> dict[str, Mapping[str, Any]]:
  """Return level -> fields of its stated guarantee; {} without a statement.

  An infinite epsilon is the string "inf".

  Args:
    workdir: the folder of the run.
    *fields: of `accounting.Guarantee.as_dict`.
  """
  levels = (statement(workdir) or {"guarantees": {}})["guarantees"]
  return {
      level: {field: stated[field] for field in fields}
      for level, stated in levels.items()
  }
