"""Says what a program is doing, on the error stream, while it does it.

Lines have no time of day, and no private step is a phase: how long steps take
tells how many tasks they drew, which a log is not to keep.
"""

from collections.abc import Iterator
import contextlib
import sys
import threading
import time

import tqdm

from episodic_dp.output import quoting

_SILENT = 1.0  # Seconds of a phase that are not worth a line.
_EVERY = 1.9  # Seconds between two lines: nobody waits for two without one.
_LONGEST = 30.0  # Likewise in a log, where they become rarer.
_RARER = 1.5  # From line to line.


class Progress:
  """How much of a phase is done: a bar on a terminal, else in its lines.

  Attributes:
    total: how many there are.
    unit: what they are.
    done: how many of them are.
  """

  def __init__(self, total: int, unit: str):
    self.total, self.unit, self.done = total, unit, 0
    # None: only where someone watches.
    self._bar = tqdm.tqdm(total=total, unit=unit, leave=False, disable=None)

  @property
  def on_terminal(self) -> bool:
    """Whether a bar shows it."""
    return not self._bar.disable

  def update(self, count: int = 1) -> None:
    """Counts what was done."""
    self.done += count
    self._bar.update(count)

  def describe(self, what: str) -> None:
    """Says on the bar what is done now."""
    self._bar.set_description_str(what, refresh=False)

  def close(self) -> None:
    """Removes the bar."""
    self._bar.close()


_running: list[Progress] = []  # The innermost last.


@contextlib.contextmanager
def progress(total: int, unit: str) -> Iterator[Progress]:
  """Counts what is done in the phase around it.

  Args:
    total: how many there are; a public number.
    unit: what one is called.
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
  """Says what begins, that it goes on, and how long it took.

  A phase of less than a second leaves no line, unless it speaks at once.

  Args:
    what: "reading the data"; what stands in brackets behind is said once.
    at_once: whether to say so before it begins; else only if it takes a second.
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
  """Prints a line; a bar that is there moves below it.

  Line and end are one write: other processes may write to the same stream.
  """
  tqdm.tqdm.write(f"{quoting.printable(line)}\n", file=sys.stderr, end="")
  sys.stderr.flush()
