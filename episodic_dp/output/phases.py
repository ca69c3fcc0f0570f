"""Says what a program is doing, on the error stream, while it does it.

Lines have no time of day, and no private step is a phase: how long steps take
tells how many tasks they drew, which a log is not to keep.
"""

from collections.abc import Iterator
import contextlib
import sys
import threading
import time

_SILENT = 1.0  # Seconds of a phase that are not worth a line.
_EVERY = 1.9  # Seconds between two lines: nobody waits for two without one.


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
    while not ended.wait(_EVERY):
      _say(f"{short}: {time.monotonic() - began:.0f} s so far")

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
  print(line, file=sys.stderr, flush=True)
