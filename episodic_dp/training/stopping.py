"""Reasons to stop a run between two steps: signals and a deadline."""

import re
import signal
import threading
from types import FrameType
from typing import Any

from episodic_dp import errors

# As a `Result` names them. Of several processes the last reason counts.
REASONS = ("done", "time limit", "SIGUSR1", "SIGTERM", "SIGINT")
TIME_LIMIT = REASONS.index("time limit")
_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MARGIN = 30.0  # Seconds for the last pictures and the end of the process.


class StopSignals:
  """Remember, while entered, the first signal that asked to stop.

  A SIGINT after another signal goes to the handler that was there before. Off
  the main thread, and for signals that are ignored or handled outside Python,
  nothing changes.

  Attributes:
    stop: index in `REASONS` of the first signal; 0 before one came.
  """

  def __init__(self) -> None:
    self.stop = 0
    self._before: dict[int, Any] = {}

  def _handle(self, number: int, frame: FrameType | None) -> None:
    before = self._before[number]
    if self.stop and number == signal.SIGINT and callable(before):
      before(number, frame)
    self.stop = self.stop or REASONS.index(signal.Signals(number).name)

  def __enter__(self) -> "StopSignals":
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        before = signal.getsignal(number)
        if before not in (signal.SIG_IGN, None):
          # Stored before the handler is in place, which reads it.
          self._before[number] = before
          signal.signal(number, self._handle)
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)


def deadline(time_limit: str, began: float) -> float:
  """Return when the last step has to be saved.

  Args:
    time_limit: "90s", "55m", "11h" or "1h30m", from `began` on.
    began: a time of `time.monotonic`.

  Raises:
    RunError: the text is none of these.
  """
  found = _PARTS.fullmatch(time_limit)
  hours, minutes, seconds = map(int, found.groups(0) if found else (0, 0, 0))
  total = 3600.0 * hours + 60.0 * minutes + seconds
  if not total:
    raise errors.RunError(
        f"--time_limit={time_limit} is no time: write it as 90s, 55m, 11h or"
        " 1h30m"
    )
  return began + total - min(_MARGIN, 0.1 * total)
