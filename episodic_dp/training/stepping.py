"""The steps that a process takes until the last, or until one has to stop."""

from collections.abc import Iterator
import contextlib
import time

from episodic_dp.training import processes
from episodic_dp.training import signals
from episodic_dp.training import time_limit


class Stepping:
  """Numbers of the steps to take; all processes of a run end after the same.

  Args:
    done: the steps done before.
    steps: of the whole run.
    stop: the signals that this process was sent.
    limit: of its time, or None.

  Attributes:
    done: the steps done.
    code: by what the run was stopped, or `Code.CONTINUE`.
  """

  def __init__(
      self,
      done: int,
      steps: int,
      stop: signals.StopSignals,
      limit: time_limit.TimeLimit | None,
  ):
    self.done = done
    self.code = processes.Code.CONTINUE
    self._steps = steps
    self._stop = stop
    self._limit = limit
    self._saving = 0.0

  def __iter__(self) -> Iterator[int]:
    while self.done < self._steps:
      self.code = processes.agreed(self._own_code())
      if self.code != processes.Code.CONTINUE:
        return
      began, self._saving = time.monotonic(), 0.0
      yield self.done + 1
      self.done += 1
      if self._limit is not None:
        taken = time.monotonic() - began
        self._limit.saw(step=taken - self._saving, save=self._saving)

  @contextlib.contextmanager
  def saving(self) -> Iterator[None]:
    """What is done behind a step, and once more before the run leaves."""
    began = time.monotonic()
    yield
    self._saving += time.monotonic() - began

  @property
  def stopped(self) -> str:
    """As a `Result` has it, budgets aside."""
    if self.code == processes.Code.CONTINUE:
      return "done"
    return self.code.stopped

  def _own_code(self) -> processes.Code:
    """What this process has to say before a step."""
    if self._stop.code or self._limit is None or not self._limit.reached:
      return self._stop.code
    return processes.Code.TIME_LIMIT
