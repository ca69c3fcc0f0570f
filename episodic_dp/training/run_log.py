"""What a run says while it goes: metrics, TensorBoard, the progress bar."""

from collections.abc import Iterator, Mapping
import contextlib
import math
import pathlib
import sys
from typing import Any

from absl import logging
import tqdm

from episodic_dp.accounting import report
from episodic_dp.output import phases
from episodic_dp.training import board
from episodic_dp.training import compilation
from episodic_dp.training import keys
from episodic_dp.training import metrics as metrics_lib

DIAGNOSTICS = "diagnostics.jsonl"
TENSORBOARD = "tensorboard"
_PRIVATE = "private/"
_LINES = 100  # Of steps, in a log.


class RunLog:
  """Writes the numbers of every step, public and private ones apart.

  Args:
    folder: the work directory.
    steps: the steps done; what is there of later ones is dropped.
    diagnostics: whether the steps return private diagnostics.
  """

  def __init__(self, folder: pathlib.Path, *, steps: int, diagnostics: bool):
    with contextlib.ExitStack() as opened:
      self._metrics = opened.enter_context(
          contextlib.closing(
              metrics_lib.Lines(folder / metrics_lib.FILE, keep=steps)
          )
      )
      self._diagnostics: metrics_lib.Lines | None = None
      if diagnostics:
        path = keys.private_folder(folder) / DIAGNOSTICS
        self._diagnostics = opened.enter_context(
            contextlib.closing(metrics_lib.Lines(path, keep=steps))
        )
      self._board = opened.enter_context(
          contextlib.closing(board.Board(folder / TENSORBOARD, done=steps))
      )
      self._opened = opened.pop_all()

  def add_start(self, public: Mapping[str, Any]) -> None:
    """Writes what was measured before the first step, as that of step 0."""
    self._metrics.add(public)
    self._board.add(public["step"], public)

  def add(
      self,
      public: Mapping[str, Any],
      private: Mapping[str, Any],
      *,
      seconds: float,
  ) -> None:
    """Writes the numbers of a step.

    Args:
      public: "step" and what may be published.
      private: what a step returned under names "private/...".
      seconds: how long the step took, which tells how many tasks it drew.
    """
    self._metrics.add(public)
    step = public["step"]
    if self._diagnostics is not None:
      self._diagnostics.add(
          {"step": step, **private, _PRIVATE + "seconds": seconds}
      )
    self._board.add(step, public)

  def close(self) -> None:
    """Closes all files."""
    self._opened.close()


def split_private(
    values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """What a step returned, as (public, private) numbers."""
  public = {k: v for k, v in values.items() if not k.startswith(_PRIVATE)}
  private = {k: v for k, v in values.items() if k.startswith(_PRIVATE)}
  return public, private


def log_compiled(compiled: compilation.Compilations, step: int) -> None:
  """Logs what a step compiled, if anything."""
  if compiled.count:
    logging.info(
        "step %d: %d %s compiled in %.1f s",
        step,
        compiled.count,
        "program" if compiled.count == 1 else "programs",
        compiled.seconds,
    )


class ProgressBar:
  """The line that a terminal shows; without one, up to 100 lines of steps.

  These lines have no time, which a log would keep, and come after numbers of
  steps: how long steps take tells how many tasks they drew.
  """

  def __init__(self, *, done: int, steps: int, unit: str = "step"):
    self._steps, self._unit = steps, unit
    self._every = -(-steps // _LINES)
    self._bar = tqdm.tqdm(total=steps, initial=done, unit=unit, disable=None)

  def show(
      self,
      step: int,
      *,
      epsilon: float,
      score: str,
      validated: bool,
  ) -> None:
    """Counts a step and shows where the run stands."""
    bound = f"epsilon≤{report.rounded_up(epsilon)}"
    text = "no guarantee" if math.isinf(epsilon) else bound
    if score:
      text += f", {score}"
    self._bar.set_postfix_str(text, refresh=False)
    self._bar.update()
    if self._bar.disable and (validated or step % self._every == 0):
      line = f"{self._unit} {step} of {self._steps}: {text}"
      print(line, file=sys.stderr, flush=True)

  @contextlib.contextmanager
  def phase(self, what: str) -> Iterator[None]:
    """Says what is done between two steps, where that takes long."""
    if self._bar.disable:
      with phases.phase(what):
        yield
      return
    self._bar.set_description_str(what)
    yield
    self._bar.set_description_str("", refresh=False)

  def __enter__(self) -> "ProgressBar":
    return self

  def __exit__(self, *unused: object) -> None:
    self._bar.close()
