"""Report the activity of a program on the error stream while it lasts.

Lines have no time of day, and no private step is a phase: the duration of steps
reveals their number of tasks, which must not be logged.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import os
import sys
import threading
import time
from typing import Any

from episodic_dp.output import quoting

_QUIET = contextvars.ContextVar("quiet", default=False)
_SILENT = 1.0  # Seconds before the first line; each pause doubles,
_LONGEST = 30.0  # up to these seconds.


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Report nothing that begins inside, in this thread."""
  token = _QUIET.set(True)
  try:
    yield
  finally:
    _QUIET.reset(token)


def is_quiet() -> bool:
  """Return whether this thread is inside `quiet`."""
  return _QUIET.get()


def has_bars() -> bool:
  """Return whether the error stream is a terminal in which a bar has room."""
  if not sys.stderr.isatty():
    return False
  try:
    return os.get_terminal_size(sys.stderr.fileno()).columns > 0
  except (OSError, ValueError):
    return True  # It does not know its size.


def progress(total: int, unit: str) -> Any:
  """Return a progress bar of tqdm for a terminal; a log does not show it.

  Args:
    total: number of items; a public number.
    unit: name of an item.
  """
  # Lazy import: who only accounts does without it.
  import tqdm

  disable = is_quiet() or not has_bars()
  return tqdm.tqdm(total=total, unit=unit, leave=False, disable=disable)


@contextlib.contextmanager
def phase(what: str, *, at_once: bool = False) -> Iterator[None]:
  """Report that a phase starts, that it is running, and its duration.

  A phase of less than a second prints no line, unless `at_once`.

  Args:
    what: "reading the data"; a part in brackets at its end is printed once.
    at_once: whether to print a line before it starts.
  """
  if is_quiet():
    yield
    return
  ended = threading.Event()
  began = time.monotonic()
  short, said = what.partition(" (")[0], at_once

  def speak() -> None:
    nonlocal said
    pause = _SILENT
    while not ended.wait(pause):
      line = what
      if said:
        line = f"{short}: {time.monotonic() - began:.0f} s so far"
      _say(line)
      said = True
      pause = min(2 * pause, _LONGEST)

  if at_once:
    _say(what)
  speaker = threading.Thread(target=speak, name="phase", daemon=True)
  speaker.start()
  try:
    yield
  finally:
    ended.set()
    speaker.join()
  if said:
    _say(f"{short}: took {time.monotonic() - began:.1f} s")


def _say(line: str) -> None:
  """Print a line; a progress bar moves below it.

  Line and line break are one write: other processes may use the same stream.
  """
  text = f"{quoting.printable(line)}\n"
  if "tqdm" in sys.modules:
    sys.modules["tqdm"].tqdm.write(text, file=sys.stderr, end="")
  else:
    sys.stderr.write(text)
  sys.stderr.flush()
