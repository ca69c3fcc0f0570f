"""Signals end a command with one line and a status, from its start.

Imports, reading of data and compiling have nothing to save, so a signal ends
them at once. Files are replaced in one operation, and are valid after any kill.
While a run takes steps it handles signals itself (`training.stopping`) and
saves. Native code may not return to Python for minutes, and Python code may
convert a KeyboardInterrupt into any error, so nothing is raised. Python writes
each signal to a pipe as it arrives, and a thread that reads the pipe ends the
process.

Only the standard library is imported here, since this module is imported first.
"""

import contextlib
import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from episodic_dp.cli import exit_status

BEGAN = time.monotonic()  # The start of the process, within about 50 ms.

_ENDS: dict[int, tuple[int, str]] = {
    signal.SIGINT: (exit_status.INTERRUPTED, "Ctrl-C"),
    signal.SIGTERM: (exit_status.REQUEUE, "SIGTERM"),
    signal.SIGUSR1: (exit_status.REQUEUE, "SIGUSR1"),
}


def install() -> None:
  """Handle signals from here on; does nothing in other threads."""
  if threading.current_thread() is not threading.main_thread():
    return
  usual = (signal.SIG_DFL, signal.default_int_handler)  # Not ignored.
  reading, writing = os.pipe()
  os.set_blocking(writing, False)
  threading.Thread(
      target=_watch, args=(reading,), name="signals", daemon=True
  ).start()
  signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
  for number in _ENDS:
    if signal.getsignal(number) in usual:
      signal.signal(number, _handle)


def end_at(deadline: float) -> None:
  """End the process at a time of `time.monotonic` unless a run takes steps."""

  def end() -> None:
    if _handle in map(signal.getsignal, _ENDS):
      leave(
          exit_status.REQUEUE,
          "stopped by its time limit, before the first step of this process:"
          " give a longer --time_limit",
      )

  timer = threading.Timer(deadline - time.monotonic(), end)
  timer.daemon = True
  timer.start()


def ignore() -> None:
  """Ignore signals from here on: the command has finished."""
  for number in _ENDS:
    if signal.getsignal(number) is _handle:
      signal.signal(number, signal.SIG_IGN)


def leave(status: int, line: str) -> NoReturn:
  """End the process at once, whatever its other threads do.

  Args:
    status: exit status.
    line: line for the error stream, or "".
  """
  # Below Python's streams: the main thread may be writing to them.
  if line:
    with contextlib.suppress(OSError):
      os.write(2, f"{' '.join(line.split())}\n".encode())
  os._exit(status)


def _handle(number: int, frame: FrameType | None) -> None:
  """Leave a signal to the thread, which reads it at the same time."""


def _watch(pipe: int) -> None:
  """End the process on a signal that no run handles, or a second Ctrl-C."""
  again = False
  while True:
    for number in os.read(pipe, 64):
      if number not in _ENDS:
        continue
      if signal.getsignal(number) is _handle or (
          again and number == signal.SIGINT
      ):
        status, name = _ENDS[number]
        leave(
            status,
            f"stopped by {name}: the same command starts again, from its last"
            " checkpoint if it has saved one",
        )
      again = True
