"""Signals end a run after the step that is running."""

import signal
from types import FrameType
from typing import Any

from episodic_dp.training.processes import Code

_CODES = {
    signal.SIGINT: Code.SIGINT,
    signal.SIGTERM: Code.SIGTERM,
    signal.SIGUSR1: Code.SIGUSR1,
}


class StopSignals:
  """Remembers, while entered, by what the process was asked to stop.

  A SIGINT after another signal does not wait for the step: it goes to whoever
  handled it before, which is Python with its KeyboardInterrupt, or a command
  that leaves. Off the main thread nothing is handled: signals are the caller's
  there, and so is one that was ignored before.

  Attributes:
    code: for `processes.agreed`; that of the first signal.
  """

  def __init__(self) -> None:
    self.code = Code.CONTINUE
    self._before: dict[int, Any] = {}

  def _handle(self, number: int, frame: FrameType | None) -> None:
    before = self._before[number]
    if self.code and number == signal.SIGINT and callable(before):
      before(number, frame)
    self.code = self.code or _CODES[signal.Signals(number)]

  def __enter__(self) -> "StopSignals":
    for number in _CODES:
      before = signal.getsignal(number)
      if before == signal.SIG_IGN:
        continue
      # Before its handler is in place, which looks here.
      self._before[number] = before
      try:
        signal.signal(number, self._handle)
      except ValueError:  # Not the main thread.
        self._before.clear()
        break
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      if handler is not None:  # One that is not of Python.
        signal.signal(number, handler)
