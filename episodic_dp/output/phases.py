"""Report on the error stream what a program is doing, while it does it.

Lines have no time of day, and no private step is a phase: the duration of steps
reveals how many tasks they drew, which must not be logged.
"""

from collections.abc import Iterator
import contextlib
import sys
import threading
import time

import tqdm

from episodic_dp.output import quoting

_SILENT = 1.0  # Seconds of a phase without a line.
_EVERY = 1.9  # Seconds between two lines.
_LONGEST = 30.0  # The most seconds between two lines of a log.
_RARER = 1.5  # Growth of these pauses, from line to line.


class Progress:
  """Progress of a phase: a bar on a terminal, else a count in its lines.

  Attributes:
    total: number of items.
    unit: name of an item.
    done: number of items that are done.
  """

  def __init__(self, total: int, unit: str):
    self.total, self.unit, self.done = total, unit, 0
    # None: no bar where the stream is no terminal.
    self._bar = tqdm.tqdm(total=total, unit=unit, leave=False, disable=None)

  @property
  def on_terminal(self) -> bool:
    """Tell whether a bar shows it."""
    return not self._bar.disable

  def update(self, count: int = 1) -> None:
    """Count done items."""
    self.done += count
    self._bar.update(count)

  def close(self) -> None:
    """Remove the bar."""
    self._bar.close()


_running: list[Progress] = []  # The innermost last.


@contextlib.contextmanager
def progress(total: int, unit: str) -> Iterator[Progress]:
  """Count items in the phase around it.

  Args:
    total: number of items; a public number.
    unit: name of an item.
  """
  counted = Progress(total, unit)
  _running.append(counted)
  try:
    yield counted
  finally:
    _running.remove(counted)
    counted.close()


@contextlib.contextmanager
def phase(what: str, *, at_once: bool = False) -> Iterator[None]:
  """Report that a phase begins, that it is running, and its duration.

  A phase of less than a second prints no line, unless `at_once`.

  Args:
    what: "reading the data"; a part in brackets behind it is printed once.
    at_once: whether to print a line before it begins.
  """
  ended = threading.Event()
  began = time.monotonic()
  short, said = what.partition(" (")[0], at_once

  def go_on() -> None:
    nonlocal said
    if not said:
      if ended.wait(_SILENT):
        return
      said = True
      _say(what)
    pause = _EVERY
    while not ended.wait(pause):
      if not sys.stderr.isatty():
        pause = min(_RARER * pause, _LONGEST)
      counted = _running[-1] if _running else None
      if counted is None:
        _say(f"{short}: {time.monotonic() - began:.0f} s so far")
      elif not counted.on_terminal:
        _say(
            f"{short}: {time.monotonic() - began:.0f} s so far,"
            f" {counted.unit} {counted.done} of {counted.total}"
        )

  if at_once:
    _say(what)
  speaker = threading.Thread(target=go_on, name="phase", daemon=True)
  speaker.start()
  try:
    yield
  finally:
    ended.set()
    speaker.join()
  if said:
    _say(f"{short}: took {time.monotonic() - began:.1f} s")


def _say(line: str) -> None:
  """Print a line; a bar moves below it.

  Line and end are one write: other processes may write to the same stream.
  """
  tqdm.tqdm.write(f"{quoting.printable(line)}\n", file=sys.stderr, end="")
  sys.stderr.flush()
