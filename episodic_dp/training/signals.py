"""SIGTERM and SIGINT end a run after the step that is running."""

import signal
from typing import Any

from episodic_dp.training import processes


class StopSignals:
  """Remembers, while entered, that the process was asked to stop.

  A second SIGINT does not wait for the step and raises KeyboardInterrupt. Off
  the main thread nothing is handled: signals are the caller's there.
  """

  def __init__(self) -> None:
    self._received = False
    self._before: dict[int, Any] = {}

  @property
  def code(self) -> int:
    """STOP or CONTINUE, for `processes.agreed`."""
    return processes.STOP if self._received else processes.CONTINUE

  def _handle(self, number: int, frame: object) -> None:
    del frame
    if self._received and number == signal.SIGINT:
      raise KeyboardInterrupt
    self._received = True

  def __enter__(self) -> "StopSignals":
    for number in (signal.SIGTERM, signal.SIGINT):
      try:
        self._before[number] = signal.signal(number, self._handle)
      except ValueError:  # Not the main thread.
        break
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
