"""The training loop: steps, validations, checkpoints.

All randomness of a step follows from the run's secret key and the step's
number. So a run that is killed at any time and resumed ends with the same
parameters bit for bit, and no step is charged twice (see `resume`). The loop
counts steps and writes public numbers; a `Program` defines the step and its
cost.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import math
import os
import pathlib
import secrets
import sys
import time
from typing import Any, Protocol, TypeAlias

from absl import logging
from etils import epath
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from episodic_dp import private
from episodic_dp.accounting import report
from episodic_dp.errors import RunError
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import metrics
from episodic_dp.training import processes
from episodic_dp.training import resume as resume_lib
from episodic_dp.training import settings
from episodic_dp.training import stopping
from episodic_dp.training import workdir as workdir_lib
from episodic_dp.training.checkpoint import Arrays

# Receives the public line of a step.
State: TypeAlias = Any  # The state of a program, which alone reads its parts.
Callback: TypeAlias = Callable[[Mapping[str, Any]], None]
# Values to write, their quality (see `Program.validate`) and the score as text.
Validated: TypeAlias = tuple[dict[str, Any], float | None, str]
NOT_VALIDATED: Validated = ({}, None, "")
_LINES = 100  # Most lines for steps in a log,
_LEAST_SECONDS = 1.0  # and the mean time between them.


class Program(Protocol):
  """A run as the loop uses it: steps of a state, and their cost.

  Attributes:
    spec: has `evaluate_every` (steps between validations, each with a
      checkpoint), `checkpoint_every`, `private_seed` (None for a secret key)
      and `config` (a JSON-able description).
    unit: "step" or "round".
    steps: number of steps of the whole run.
    diagnostics: whether a step returns values "private/...".
    remembers: whether the state holds more than was released. Its checkpoints
      are then in private/.
  """

  spec: Any
  unit: str
  steps: int
  diagnostics: bool
  remembers: bool

  @property
  def privacy_unit(self) -> str | None:
    """Return the level whose epsilon is shown; None without any guarantee."""

  def init(self) -> State:
    """Return the state before the first step, with an arbitrary key."""

  def parts(self, state: State) -> dict[str, str]:
    """Return the parts that determine the steps; see `resume.fingerprint`."""

  def saved(self, state: State) -> tuple[Arrays, Arrays]:
    """Return (released model, all other state but keys): trees of arrays."""

  def restored(
      self, state: State, params: Arrays, rest: Arrays, key: jax.Array
  ) -> State:
    """Return the state with the trees of `saved` and a key."""

  def charge(self, ranges: Sequence[range], done: int) -> None:
    """Account for the steps of other keys and, last, of this key.

    Afterwards `steps` is the number that the budget allows.

    Args:
      ranges: all steps that may have been released.
      done: the steps done. Later ones of the last range may have been released
        before a kill; they are repeated at no cost, and count in a statement.
    """

  def compile(self, state: State) -> None:
    """Compile the step, without taking it."""

  def step(self, state: State) -> tuple[Any, dict[str, Any]]:
    """Take a step and charge it; return the state and the values to write."""

  def spent(self) -> dict[str, float]:
    """Return "epsilon" so far, and other costs that a line shows."""

  def ledger(self) -> dict[str, Any]:
    """Return all charges as plain data."""

  def validate(self, state: State) -> Validated:
    """Return values to write, their quality and text; none without tasks.

    Higher quality is better; it is NaN or infinite for a model that failed.
    """

  def write(
      self, folder: epath.Path, lineage: Sequence[str], *, ended: bool
  ) -> None:
    """Write statements: of the whole run, or at its end of the steps done."""

  def result(
      self, state: State, done: int, stopped: str, seconds: float
  ) -> Any:
    """Return the result of the run."""


def run(
    program: Program,
    workdir: str | os.PathLike,
    *,
    resume: str = "same",
    key_file: str | os.PathLike | None = None,
    deadline: float | None = None,
    callbacks: Sequence[Callback] = (),
) -> Any:
  """Run a program in a work directory, from its last checkpoint if any.

  With several processes (`jax.distributed.initialize`) all of them call it with
  the same program, and only the first uses the folder. A signal to one of them
  stops all after the same step.

  Args:
    program: the run.
    workdir: receives config.json, metrics.jsonl, statements, checkpoints/,
      pictures, tensorboard/ and private/.
    resume: "same", "fork" or "auto"; see `resume.begin`.
    key_file: path of the secret key; see `workdir.key_path`.
    deadline: time (`time.monotonic`) by which the last step is saved.
    callbacks: called with the public line of every step, after the step's
      checkpoint if it has one; only in the first of several processes. Steps
      that are repeated are reported again. The times of these calls reveal the
      number of sampled tasks: publish no times.

  Returns:
    The result of the program.

  Raises:
    PlanError, UnsoundPlanError: the parts of the run do not fit together, or no
      proof covers them.
    RunError: the folder cannot be used, or holds another run.
  """
  began = time.monotonic()
  with contextlib.ExitStack() as opened:
    with phases.phase("preparing the run"):
      state = program.init()
      parts = program.parts(state)
      described = resume_lib.json_digest([parts, program.spec.config])
      if len(set(_gathered(described))) > 1:
        raise RunError(
            "the configuration, data or code of the processes differ: start"
            " all processes of a run with the same command, data and versions"
        )
      held = _gathered(resume_lib.json_digest(settings.present()))
      writer: _Writer | None = None

      def begin() -> Any:
        nonlocal writer
        place = opened.enter_context(
            workdir_lib.locked(workdir, key_file=key_file)
        )
        found = resume_lib.fingerprint(
            parts, program.spec.config, program.spec.private_seed, held
        )
        writer, *sent = _begin(program, state, found, place, resume)
        opened.callback(writer.close)
        return sent

      like = [np.zeros(2, np.uint32), np.int64(0), program.saved(state)]
      words, done, saved = processes.from_first(begin, like)
    key = private.secret_key(words.astype(">u4").tobytes())
    # Copies: the state's arrays are donated.
    params, rest = jax.tree.map(jnp.array, saved)
    state = program.restored(state, params, rest, key)
    state, steps, stopped = _take_steps(
        program, state, int(done), writer, deadline, callbacks
    )
    return program.result(state, steps, stopped, time.monotonic() - began)


def _gathered(digest: str) -> list[str]:
  """Return the digests of all processes."""
  own = np.frombuffer(digest.encode(), np.uint8)
  return [bytes(one).decode() for one in processes.gathered(own)]


def _begin(
    program: Program,
    state: State,
    found: dict[str, str],
    place: workdir_lib.WorkDirectory,
    mode: str,
) -> tuple["_Writer", np.ndarray, np.int64, Any]:
  """Return the writer of a run; and its key, steps done and saved arrays."""
  home = place.folder
  if program.remembers:
    home /= workdir_lib.PRIVATE
    if workdir_lib.is_remote(place.folder):
      raise RunError(
          f"{place.folder} is not on this machine, where everything but what is"
          " released has to stay: name a workdir on this machine"
      )
  checkpoints = checkpoint_lib.Checkpoints(home)
  key, done = resume_lib.begin(place, checkpoints, found, mode=mode)
  if done > program.steps:
    raise RunError(
        f"the run in {place.folder} has already done {done} {program.unit}s and"
        f" the configuration allows {program.steps}: evaluate it, or resume"
        " with more steps"
    )
  saved = program.saved(state)
  lineage: list[str] = []
  if done:
    saved = checkpoints.restore(done, *saved)
    lineage = list(checkpoints.about(done)["lineage"])
    logging.info("resumed from %s %d in %s", program.unit, done, place.folder)
  program.charge(key.ranges(), done)
  lineage.append(secrets.token_hex(8))
  # Written only now: a refused run changes nothing in the folder.
  key.write()
  if program.remembers:
    workdir_lib.make_private(pathlib.Path(home))
  files.write_json(place.folder / workdir_lib.CONFIG, dict(program.spec.config))
  program.write(place.folder, lineage, ended=False)
  writer = _Writer(program, place, checkpoints, key, done, lineage)
  words = np.asarray(jax.random.key_data(key.jax_key()))
  return writer, words, np.int64(done), saved


def _take_steps(
    program: Program,
    state: State,
    done: int,
    writer: "_Writer | None",
    deadline: float | None,
    callbacks: Sequence[Callback],
) -> tuple[Any, int, str]:
  """Take the remaining steps, or those until a stop.

  Returns:
    the state, the steps done, and one of `stopping.REASONS`.
  """
  if done < program.steps:
    with phases.phase("compiling the step", at_once=True):
      program.compile(state)
  if writer is not None:
    writer.start(state)
  stop, longest = 0, 0.0
  with stopping.StopSignals() as signals:
    while done < program.steps:
      began = time.monotonic()
      own = signals.stop
      if not own and deadline is not None and began + longest > deadline:
        own = stopping.TIME_LIMIT
      stop = int(processes.gathered(own).max())
      if stop:
        break
      if writer is not None:
        writer.allow(done)
      state, values = program.step(state)
      done += 1
      if writer is not None:
        seconds = round(time.monotonic() - began, 4)
        line = writer.record(done, state, values, seconds)
        for callback in callbacks:
          callback(dict(line))
      longest = max(longest, time.monotonic() - began)
    if writer is not None:
      writer.finish(done, state)
    processes.gathered(0)  # The others wait until the first process has saved.
  return state, done, stopping.REASONS[stop]


class _Writer:
  """The files of a run, and the progress line in a terminal."""

  def __init__(
      self,
      program: Program,
      place: workdir_lib.WorkDirectory,
      checkpoints: checkpoint_lib.Checkpoints,
      key: resume_lib.RunKey,
      done: int,
      lineage: Sequence[str],
  ):
    # Lazy import: a fit without a work directory writes no events.
    from episodic_dp.training import board

    self._program, self._place, self._key = program, place, key
    self._released = key.segments[-1].last
    self._checkpoints, self._lineage = checkpoints, list(lineage)
    self._logs: list[metrics.Lines | board.Board] = [
        metrics.Lines(place.folder / metrics.FILE, keep=done),
        board.Board(place.folder / board.FOLDER, done=done),
    ]
    self._private_logs = []
    if program.diagnostics:
      self._private_logs = [
          metrics.Lines(place.diagnostics, keep=done, private=True)
      ]
    self._bar = _ProgressBar(program, done)

  def start(self, state: State) -> None:
    """Write the line of step 0: the score of the initial parameters."""
    written = metrics.read(self._place.folder / metrics.FILE)
    if written or self._bar.done:
      return
    with self._bar.phase("validating"):
      numbers, *_ = self._program.validate(state)
    if numbers:
      self._write({"step": 0} | self._program.spent() | numbers)

  def allow(self, done: int) -> None:
    """Raise the number of steps that may be started, before one starts."""
    self._place.check()
    if done == self._key.segments[-1].last:
      every = self._program.spec.checkpoint_every
      ahead = min(done - done % every + every, self._program.steps)
      self._key = self._key.raised(ahead)

  def record(
      self, done: int, state: State, values: Mapping[str, Any], seconds: float
  ) -> dict[str, Any]:
    """Write the lines of a step, its validation and its checkpoint."""
    program = self._program
    public = {
        k: v for k, v in values.items() if not k.startswith(metrics.PRIVATE)
    }
    public |= {"step": done} | program.spent()
    numbers, quality, score = NOT_VALIDATED
    if done == program.steps or done % program.spec.evaluate_every == 0:
      with self._bar.phase("validating"):
        numbers, quality, score = program.validate(state)
    public |= numbers
    # Before the checkpoint: a resumed run drops lines after its checkpoint, so
    # it never lacks one.
    self._write(public)
    hidden = {k: v for k, v in values.items() if k not in public}
    hidden |= {"step": done, metrics.PRIVATE + "seconds": seconds}
    for log in self._private_logs:
      log.add(hidden)
    if numbers or done % program.spec.checkpoint_every == 0:
      with self._bar.phase("saving a checkpoint"):
        self._save(done, state, quality)
    self._bar.show(done, public["epsilon"], score)
    return public

  def finish(self, done: int, state: State) -> None:
    """Write the last checkpoint, the statements and the pictures."""
    self._bar.close()
    self._place.check()
    if done:
      with phases.phase("saving a checkpoint"):
        self._save(done, state, None)
    # This process started no later step, and earlier ones none later than that.
    self._key = self._key.raised(max(done, self._released))
    with phases.phase("writing the privacy statement"):
      self._program.write(self._place.folder, self._lineage, ended=True)
    self._place.check()

  def close(self) -> None:
    """Close all files."""
    self._bar.close()
    for log in (*self._logs, *self._private_logs):
      log.close()

  def _write(self, line: Mapping[str, Any]) -> None:
    for log in self._logs:
      log.add({**line, metrics.KEY: self._key.name()})

  def _save(self, done: int, state: State, quality: float | None) -> None:
    for log in self._logs:
      log.flush()
    self._checkpoints.save(
        done,
        *self._program.saved(state),
        seal=self._key.seal,
        quality=quality,
        lineage=self._lineage,
        ledger=self._program.ledger(),
    )


class _ProgressBar:
  """A terminal's progress line; elsewhere lines of steps.

  The duration of a step reveals its number of tasks. So a line shows no other
  time than the remaining minutes to one digit, from the mean of all steps so
  far. By this mean, lines of steps are at least a second apart, and there are
  at most 100; a new score has its own.
  """

  def __init__(self, program: Program, done: int):
    self.done, self._program = done, program
    self._first = (done, 0.0)
    self._last = done  # Step of the last line.
    self._quiet = phases.is_quiet()
    self._bar = tqdm.tqdm(
        total=program.steps, initial=done, unit=program.unit,
        disable=self._quiet or not phases.has_bars(),
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}",
    )
    self.close = self._bar.close

  def show(self, step: int, epsilon: float, score: str) -> None:
    """Count a step, and show epsilon and a new score."""
    unit = self._program.privacy_unit
    text = "no guarantee"
    if not math.isinf(epsilon):
      text = f"epsilon≤{report.rounded_up(epsilon)} of one {unit}"
    if score:
      text += f", {score}"
    seconds = self._seconds_a_step(step)
    text += self._left(step, seconds)
    self._bar.set_description_str("", refresh=False)
    self._bar.set_postfix_str(text, refresh=False)
    self._bar.update()
    if self._quiet or not self._bar.disable:
      return
    steps = self._program.steps
    apart = max(steps / _LINES, _LEAST_SECONDS / max(seconds, 1e-9), 1)
    # A power of ten: the number of steps tells the mean time no closer.
    apart = 10 ** math.ceil(math.log10(apart))
    if score or not seconds or step - self._last >= apart:
      line = f"{self._program.unit} {step} of {steps}: {text}"
      print(line, file=sys.stderr, flush=True)
      self._last = step

  def _seconds_a_step(self, step: int) -> float:
    """Return the mean since a first step, which may compile; 0 after it."""
    now, (first, began) = time.monotonic(), self._first
    if not began:
      self._first = (step, now)
      return 0.0
    return (now - began) / (step - first)

  def _left(self, step: int, seconds: float) -> str:
    """Return the remaining minutes to one digit, "" if they are not known."""
    seconds *= self._program.steps - step
    if not seconds:
      return ""
    if seconds < 60:
      return ", less than a minute left"
    return f", about {float(f'{seconds / 60:.1g}'):g} minutes left"

  def phase(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Show the current activity between two steps if it takes long."""
    if self._bar.disable:
      return phases.phase(what)
    self._bar.set_description_str(what)
    return contextlib.nullcontext()
