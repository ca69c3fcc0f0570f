"""Processes that belong together: they hear the same signals and end together.

Each is in a session of its own, so that Ctrl-C reaches it once, through the
launcher, and not a second time from the terminal.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from episodic_dp.cli import exit_status

_POLL = 0.05  # s
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
  """What is started.

  Attributes:
    arguments: the program and its arguments.
    environment: variables beyond those of the launcher.
  """

  arguments: tuple[str, ...]
  environment: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
  """How processes ended.

  Attributes:
    status: what the launcher leaves with, unless it starts them again.
    restart: whether the same command can go on: a peer was lost, or one was
      killed, and nobody asked the launcher to stop.
    reason: which process ended how; "" where all finished.
  """

  status: int
  restart: bool = False
  reason: str = ""


def attend(
    processes: Sequence[Process], signals: "Signals", *, grace: float
) -> Ended:
  """Runs processes to their end.

  When one ends with anything but 0, the others are told to stop (SIGTERM), and
  killed when they have not after `grace` seconds.

  Args:
    processes: the output of the first is the launcher's; that of the others is
      prefixed by their number.
    signals: entered; those to come are handed on to all processes.
    grace: in seconds.
  """
  children: list[subprocess.Popen] = []
  readers: list[threading.Thread] = []
  try:
    for i, process in enumerate(processes):
      children.append(_start(process, piped=i > 0))
      readers += _readers(children[-1], i)
    first = _watch(children, signals, grace)
  finally:
    for child in children:  # None is left behind, by a bug neither.
      if child.poll() is None:
        child.kill()
        child.wait()
    for reader in readers:
      reader.join()
  statuses = [child.returncode for child in children]
  return conclude(statuses, first, signals.received)


def _watch(
    children: Sequence[subprocess.Popen], signals: "Signals", grace: float
) -> int | None:
  """Waits for all; the number of the first that failed, or None."""
  first, deadline, told = None, float("inf"), 0
  while True:
    # Ended ones first: what a failure leads to is not to be taken for it.
    statuses = [child.poll() for child in children]
    for number in signals.received[told:]:
      told += 1
      _send(children, number)
    failed = [i for i, status in enumerate(statuses) if status]
    if failed and first is None:
      first = min(failed, key=lambda i: _blame(statuses[i]))
      deadline = time.monotonic() + grace
      _send(children, signal.SIGTERM)
    if None not in statuses:
      return first
    if time.monotonic() > deadline:
      _send(children, signal.SIGKILL)
      deadline = float("inf")
    time.sleep(_POLL)


def conclude(
    statuses: Sequence[int], first: int | None, received: Sequence[int]
) -> Ended:
  """What the exit statuses of all processes mean together.

  Args:
    statuses: of each; minus the signal's number where one killed it.
    first: the process that failed first, or None.
    received: signals that the launcher handed on.
  """
  if first is None:
    return Ended(status=exit_status.FINISHED)
  if received:
    for status in statuses:
      if _is_error(status):
        return Ended(status=status)
    # Those that were too young to have a handler died of the signal.
    return Ended(status=asked_for(received))
  status = statuses[first]
  if status < 0:
    name = signal.Signals(-status).name
    return Ended(
        status=exit_status.ERROR,
        restart=True,
        reason=f"process {first} was killed by {name}",
    )
  if status == exit_status.REQUEUE:
    return Ended(
        status=status,
        restart=True,
        reason=f"process {first} stopped before the end (status {status})",
    )
  return Ended(
      status=status, reason=f"process {first} ended with status {status}"
  )


def asked_for(received: Sequence[int]) -> int:
  """The exit status of a run that these signals stop."""
  if signal.SIGINT in received:
    return exit_status.INTERRUPTED
  return exit_status.REQUEUE


def _is_error(status: int | None) -> bool:
  """Whether a process ended by itself, other than as it was asked to."""
  asked = (exit_status.REQUEUE, exit_status.INTERRUPTED)
  return status is not None and status > 0 and status not in asked


def _blame(status: int | None) -> int:
  """Which of several that ended between two looks comes first: the lowest.

  An error, and a kill, tell more than what they did to the others.
  """
  if _is_error(status):
    return 0
  return 1 if status == -signal.SIGKILL else 2


def _start(process: Process, *, piped: bool) -> subprocess.Popen:
  output = subprocess.PIPE if piped else None
  return subprocess.Popen(
      process.arguments,
      env=os.environ | process.environment,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=output,
      start_new_session=True,
  )


def _readers(child: subprocess.Popen, number: int) -> list[threading.Thread]:
  """Threads that copy its output, line by line with its number."""

  def copy(source: Any, target: Any) -> None:
    for line in source:
      # One write for a line and its end, which the last line may lack.
      text = line.decode(errors="replace").rstrip("\n")
      target.write(f"[{number}] {text}\n")
      target.flush()

  pairs = ((child.stdout, sys.stdout), (child.stderr, sys.stderr))
  threads = [
      threading.Thread(target=copy, args=pair, daemon=True)
      for pair in pairs
      if pair[0] is not None
  ]
  for thread in threads:
    thread.start()
  return threads


def _send(children: Sequence[subprocess.Popen], number: int) -> None:
  """A signal to those that live; hanging up means to stop."""
  number = signal.SIGTERM if number == signal.SIGHUP else number
  for child in children:
    child.send_signal(number)


class Signals:
  """Remembers, while entered, the signals that are to be handed on.

  Attributes:
    received: their numbers, in order.
  """

  def __init__(self) -> None:
    self.received: list[int] = []
    self._before: dict[int, Any] = {}

  def __enter__(self) -> "Signals":
    for number in _FORWARDED:
      try:
        self._before[number] = signal.signal(
            number, lambda n, _: self.received.append(n)
        )
      except ValueError:  # Not the main thread: signals are the caller's.
        break
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
