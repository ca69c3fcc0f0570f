"""How long the processes of a run took: WORKDIR/private/times.jsonl.

How long steps take tells how many tasks they drew, so no file that may be
published holds a time (docs/work_directories.md). This one is beside the
secret key and readable by its owner only; a copy of a work directory without
`private/` is without it. It has a line for every process that took the run on,
with the time of all its steps together.
"""

import json
import math
import os
import pathlib
import time

from episodic_dp.output import files
from episodic_dp.training import keys

FILE = "times.jsonl"


class ProcessTimes:
  """The line of this process, behind those of earlier ones.

  Args:
    folder: the work directory, which this process alone uses.
    step: the steps done when this process began.
  """

  def __init__(self, folder: pathlib.Path, step: int):
    self._began = time.monotonic()
    self._folder = folder
    self._from = step
    self._earlier = _lines(folder)

  def write(self, step: int) -> None:
    """Writes the line as of now, with which a process that is killed ends."""
    line = {
        "from_step": self._from,
        "to_step": step,
        "seconds": round(time.monotonic() - self._began, 1),
    }
    files.write_text(
        keys.private_folder(self._folder) / FILE,
        "".join(f"{text}\n" for text in (*self._earlier, json.dumps(line))),
        private=True,
    )


def total(workdir: str | os.PathLike) -> float | None:
  """Seconds of all processes together, None where this is not known.

  A process that was killed counts up to its last checkpoint.

  Args:
    workdir: the folder of a run.
  """
  seconds = []
  for text in _lines(pathlib.Path(workdir)):
    try:
      seconds.append(float(json.loads(text)["seconds"]))
    except (ValueError, KeyError, TypeError, RecursionError):
      return None  # Damaged: what is left would be too little.
  known = seconds and all(math.isfinite(s) and s >= 0 for s in seconds)
  return sum(seconds) if known else None


def _lines(folder: pathlib.Path) -> list[str]:
  """The lines that are there; none where the file cannot be read."""
  try:
    text = (folder / keys.FOLDER / FILE).read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError):
    return []
  return text.splitlines()
