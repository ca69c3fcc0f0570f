"""Signals end a command with one line and a status, from its first moment on.

Imports, reading of data and compiling have nothing to save, so that a signal
ends them at once: files are replaced whole, and are whole after any kill. While
a run takes steps it handles signals itself (`training.signals`) and saves. What
is native code does not come back to Python for minutes, and what is Python may
turn a KeyboardInterrupt into anything: so nothing is raised. Python writes each
signal to a pipe as it arrives, and a thread that reads the pipe ends the
process.

Only the standard library is imported here, since it comes before all else.
"""

from collections.abc import Callable
import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

from episodic_dp.cli import exit_status

BEGAN = time.monotonic()  # The process, but for tens of milliseconds.

_ENDS = {
    signal.SIGINT: (exit_status.INTERRUPTED, "Ctrl-C"),
    signal.SIGTERM: (exit_status.REQUEUE, "SIGTERM"),
    signal.SIGUSR1: (exit_status.REQUEUE, "SIGUSR1"),
}
_leaving = threading.Lock()  # Taken by the first to leave, for good.
_farewells: list[Callable[[], None]] = []
_PATIENCE = 2.0  # Seconds for them: a disk that is gone must not hold us.


def install() -> None:
  """Handles signals from here on; the second call, and other threads' none."""
  if threading.current_thread() is not threading.main_thread():
    return
  ours = [number for number in _ENDS if _is_open(number)]
  if not ours:
    return
  reading, writing = os.pipe()
  os.set_blocking(writing, False)
  threading.Thread(
      target=_watch, args=(reading,), name="signals", daemon=True
  ).start()
  signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
  for number in ours:
    signal.signal(number, _handle)
  os.register_at_fork(
      before=_hold, after_in_parent=_release, after_in_child=_forget
  )


def before_leaving(farewell: Callable[[], None]) -> None:
  """Has a signal that ends the process call this first, from any thread.

  Args:
    farewell: ends within two seconds, or is not waited for.
  """
  if farewell not in _farewells:
    _farewells.append(farewell)


def ignore() -> None:
  """From here on: what was to be done is done, and says how it ended."""
  for number in _ENDS:
    if signal.getsignal(number) is _handle:
      signal.signal(number, signal.SIG_IGN)


def leave(
    status: int, line: str, *, last: Callable[[], None] | None = None
) -> None:
  """Ends the process at once, whatever its other threads do.

  It returns where another call is about to end it.

  Args:
    status: with which it ends.
    line: for the error stream; nothing where it is empty.
    last: called behind the line; what it raises is passed over.
  """
  if not _leaving.acquire(blocking=False):
    return
  # Below Python's streams: the main thread may be writing to them.
  if line:
    start = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):
      os.write(2, f"{start}{' '.join(line.split())}\n".encode())
  if last is not None:
    with contextlib.suppress(Exception):
      last()
  os._exit(status)


def _is_open(number: int) -> bool:
  """Whether nobody handles the signal, and it was not ignored on purpose."""
  return signal.getsignal(number) in (
      signal.SIG_DFL, signal.default_int_handler
  )


def _hold() -> None:
  """While a process forks, until the child no longer writes to its pipe."""
  signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)


def _release() -> None:
  signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def _forget() -> None:
  """In a child, whose signals are not its parent's."""
  signal.set_wakeup_fd(-1)
  for number in _ENDS:
    if signal.getsignal(number) is _handle:
      usual = number == signal.SIGINT
      signal.signal(
          number, signal.default_int_handler if usual else signal.SIG_DFL
      )
  _release()


def _handle(number: int, frame: FrameType | None) -> None:
  """Python's handler: for a signal that the thread has yet to read."""
  del frame
  _end(number)


def _end(number: int) -> None:
  status, name = _ENDS[signal.Signals(number)]
  leave(
      status,
      f"stopped by {name}: the same command begins again, from its last"
      " checkpoint where it has saved one",
      last=_say_farewell,
  )


def _say_farewell() -> None:
  for farewell in _farewells:
    speaker = threading.Thread(target=farewell, daemon=True)
    speaker.start()
    speaker.join(_PATIENCE)


def _watch(pipe: int) -> None:
  """Ends the process on a signal that no run handles, or on a second Ctrl-C."""
  before = 0
  while True:
    for number in os.read(pipe, 64):
      if number not in _ENDS:
        continue
      again = number == signal.SIGINT and before
      if again or signal.getsignal(number) is _handle:
        _end(number)
      before += 1
