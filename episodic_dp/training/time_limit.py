"""A run leaves before its time is over, with what it has done saved."""

import re
import time

from episodic_dp import errors

_MARGIN = 30.0  # Seconds for the last pictures and the end of the process.
_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class TimeLimit:
  """Says when a run has to stop, from what its steps took so far.

  Args:
    seconds: that the process may take.
    began: when it began (`time.monotonic`); None for now.

  Raises:
    RunError: not a positive number of seconds.
  """

  def __init__(self, seconds: float, *, began: float | None = None):
    if not seconds > 0:
      raise errors.RunError(
          f"the time limit of {seconds} s must be more than 0 s"
      )
    began = time.monotonic() if began is None else began
    self._ends = began + seconds
    self._margin = min(_MARGIN, 0.1 * seconds)
    self._step = self._save = 0.0

  def saw(self, *, step: float, save: float = 0.0) -> None:
    """Learns how long things take.

    Args:
      step: seconds of a step.
      save: of the validation and the checkpoint behind it, where they were due.
    """
    self._step = max(self._step, step)
    self._save = max(self._save, save)

  @property
  def reached(self) -> bool:
    """Whether another step, saved, could end after the limit."""
    ahead = self._step + self._save + self._margin
    return time.monotonic() + ahead > self._ends


def parse(text: str) -> float:
  """Seconds of "90s", "55m", "11h" or "1h30m".

  Raises:
    RunError: it is none of these.
  """
  found = _PARTS.fullmatch(text)
  hours, minutes, seconds = (
      int(part or 0) for part in (found.groups() if found else (0, 0, 0))
  )
  total = 3600 * hours + 60 * minutes + seconds
  if not total:
    raise errors.RunError(
        f"--time_limit={text} is no time: write it as 90s, 55m, 11h or 1h30m"
    )
  return float(total)
