"""Reasons to stop a run between two steps: signals and a deadline."""

import re
import signal
import threading
from types import FrameType
from typing import Any

from episodic_dp.errors import RunError

# Names in a `Result`. If processes have different reasons, the last one counts.
REASONS = ("done", "time limit", "SIGUSR1", "SIGTERM", "SIGINT")
TIME_LIMIT = REASONS.index("time limit")
_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MARGIN = 30.0  # Seconds for the last pictures and the end of the process.


class StopSignals:
  """Record, while entered, the first signal that asks to stop.

  A SIGINT after another signal goes to the previous handler. Outside the main
  thread, and for signals that are ignored or handled outside Python, nothing
  changes.

  Attributes:
    stop: index in `REASONS` of the first signal; 0 without one.
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
          # Stored before the handler, which reads it, is installed.
          self._before[number] = before
          signal.signal(number, self._handle)
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)


def deadline(time_limit: str, began: float) -> float:
  """Return the time by which the last step must be saved.

  Args:
    time_limit: "90s", "55m", "11h" or "1h30m", counted from `began`.
    began: a time of `time.monotonic`.

  Raises:
    RunError: the text has another form.
  """
  found = _PARTS.fullmatch(time_limit)
  total = 0.0
  if found:
    hours, minutes, seconds = map(int, found.groups(0))
    total = 3600.0 * hours + 60.0 * minutes + seconds
  if not total:
    raise RunError(
        f"--time_limit={time_limit}: expected a time such as 90s, 55m, 11h or"
        " 1h30m"
    )
  return began + total - min(_MARGIN, 0.1 * total)
