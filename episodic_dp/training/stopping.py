"""Reasons to stop a run between two steps: signals and a deadline."""

import enum
import re
import signal
from types import FrameType
from typing import Any

from episodic_dp import errors

_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MARGIN = 30.0  # Seconds for the last pictures and the end of the process.


class Stop(enum.IntEnum):
  """Reason that a process gives before a step; the largest of all counts."""

  NONE = 0
  TIME_LIMIT = 1
  SIGUSR1 = 2
  SIGTERM = 3
  SIGINT = 4

  @property
  def reason(self) -> str:
    """Name the reason as a `Result` has it, such as "SIGTERM"."""
    if self == Stop.NONE:
      return "done"
    return "time limit" if self == Stop.TIME_LIMIT else self.name


class StopSignals:
  """Remember, while entered, the first signal that asked to stop.

  A SIGINT after another signal goes to the handler that was there before. Off
  the main thread, and for signals that were ignored, nothing is handled.

  Attributes:
    stop: the first signal, or `Stop.NONE`.
  """

  def __init__(self) -> None:
    self.stop = Stop.NONE
    self._before: dict[int, Any] = {}

  def _handle(self, number: int, frame: FrameType | None) -> None:
    before = self._before[number]
    if self.stop and number == signal.SIGINT and callable(before):
      before(number, frame)
    self.stop = self.stop or Stop[signal.Signals(number).name]

  def __enter__(self) -> "StopSignals":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
      before = signal.getsignal(number)
      if before == signal.SIG_IGN:
        continue
      # Stored before the handler is in place, which reads it.
      self._before[number] = before
      try:
        signal.signal(number, self._handle)
      except ValueError:  # Not the main thread.
        self._before.clear()
        break
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      if handler is not None:  # Not set from Python.
        signal.signal(number, handler)


def time_limit(text: str) -> float:
  """Return the seconds of "90s", "55m", "11h" or "1h30m".

  Raises:
    RunError: the text is none of these.
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


def deadline(began: float, seconds: float) -> float:
  """Return when the last step has to be saved, before `began + seconds`."""
  return began + seconds - min(_MARGIN, 0.1 * seconds)
