"""The training loop: steps, validations, checkpoints.

A step is one jitted call (`private.make_meta_step`); the loop only counts, and
writes down what is public: the parameters after each step are the release, and
accuracy (in regression the squared error) is measured on public validation
tasks. All randomness of a step follows from the run's secret key and the step's
number, so a run that is killed at any time and resumed gives the same
parameters bit for bit, and no step is paid for twice.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import math
import os
import time
from typing import Any, TypeAlias

from absl import logging
import numpy as np

from episodic_dp import backends
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.private import state as state_lib
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import compilation
from episodic_dp.training import disk as disk_lib
from episodic_dp.training import evaluation
from episodic_dp.training import followers
from episodic_dp.training import keys
from episodic_dp.training import live
from episodic_dp.training import memory
from episodic_dp.training import metrics as metrics_lib
from episodic_dp.training import opening
from episodic_dp.training import plots
from episodic_dp.training import process_times
from episodic_dp.training import processes
from episodic_dp.training import reporting
from episodic_dp.training import resume
from episodic_dp.training import run_log
from episodic_dp.training import signals
from episodic_dp.training import spec as spec_lib
from episodic_dp.training import spending as spending_lib
from episodic_dp.training import stepping as stepping_lib
from episodic_dp.training import time_limit
from episodic_dp.training import workdir as workdir_lib

# Takes the line of a step that metrics.jsonl has.
Callback: TypeAlias = Callable[[Mapping[str, Any]], None]


def train(
    spec: spec_lib.TrainingSpec,
    workdir: str | os.PathLike | opening.Opened,
    *,
    limit: time_limit.TimeLimit | None = None,
    callbacks: Sequence[Callback] = (),
) -> spec_lib.Result:
  """Trains in a work directory, from its last checkpoint where it has one.

  Over several processes (`jax.distributed.initialize`) all call it with the
  same spec; the first alone uses the folder, and its result has the guarantees.
  A signal to one of them ends them all after the same step.

  A plan that is refused, or data that cannot be read, leave nothing behind that
  was not there.

  Args:
    spec: what to run.
    workdir: takes config.json, metrics.jsonl, guarantee.json, checkpoints/, the
      pictures, live.html, tensorboard/ and, readable by the owner only,
      private/. Or one that was opened before the data were read.
    limit: when to leave, with what was done saved; None for never.
    callbacks: called after every step, and after its checkpoint where it has
      one, with what the guarantee covers, and no private diagnostics: "step",
      "epsilon" so far, "update_norm", "clip_norm" where it adapts under noise,
      and what was validated. Of several processes in the first alone. An error
      in one of them ends the run, which goes on from its last checkpoint; steps
      that are taken again are told again. When they are called follows from how
      many tasks a step drew: publish no times.

  Raises:
    PlanError, UnsoundPlanError: the parts of the run do not fit together, or no
      proof covers them.
    RunError: the folder cannot be used, or holds another run; there are not so
      many devices, or they have no memory for a step.
  """
  spec = spec_lib.with_mesh(spec)
  if not isinstance(workdir, opening.Opened):
    with opening.opened(workdir) as opened:
      return train(spec, opened, limit=limit, callbacks=callbacks)
  if workdir.place is None:
    with memory.told(spec):
      return followers.follow(spec, workdir.broadcast, limit)
  with (
      disk_lib.watched(workdir.place.folder) as disk,
      memory.told(spec),
      contextlib.ExitStack() as to_close,
  ):
    run = _Run(spec, workdir.place, disk, to_close)
    workdir.broadcast.send(followers.to_arrays(run.beginning), spec.config)
    return run.go(limit, callbacks)


class _Run:
  """The part of the process that writes.

  Args:
    spec: what to run.
    place: the work directory, which this process alone uses.
    disk: that it lies on.
    opened: closes what is opened here.
  """

  def __init__(
      self,
      spec: spec_lib.TrainingSpec,
      place: workdir_lib.WorkDirectory,
      disk: disk_lib.Disk,
      opened: contextlib.ExitStack,
  ):
    self._place, self._disk, folder = place, disk, place.folder
    self._began = time.monotonic()
    self._spec = spec
    self._folder = folder
    self._checkpoints = checkpoint_lib.Checkpoints(folder)
    opened.callback(self._checkpoints.close)
    if spec.release.mechanism.clipping == "percentile_window":
      logging.warning(
          "percentile_window: no formal guarantee, and the checkpoints in %s"
          " hold raw gradient norms of single tasks: keep them private",
          self._checkpoints.folder,
      )
    with phases.phase("preparing the run"):
      self._step_fn = spec_lib.make_step(spec)
      self.beginning = resume.begin(
          spec, folder, self._checkpoints, self._step_fn
      )
      self.state = self.beginning.state
      self._done = int(self.state.step)
      self._times = process_times.ProcessTimes(folder, self._done)
      self._spending = spending_lib.Spending(
          spec, self._done, self.beginning.lineage
      )
    # Written only now: a refused run leaves what the folder says.
    files.write_json(folder / workdir_lib.CONFIG, dict(spec.config))
    disk.keep(keys.path(folder), folder / workdir_lib.CONFIG)
    self._spending.write_planned_statement(folder)
    self._evaluator = spec.evaluator
    if spec.validation is not None and self._evaluator is None:
      self._evaluator = evaluation.Evaluator(spec.learner)
    self._log = run_log.RunLog(
        folder, steps=self._done, diagnostics=spec.compute.diagnostics
    )
    opened.callback(self._log.close)
    # What earlier processes validated, so that a finished run has its score.
    lines = metrics_lib.read(folder / metrics_lib.FILE)
    self._started = any(line["step"] == 0 for line in lines)
    self._score = self._last_score(lines)
    self._live = self._live_page(lines)
    # The key is safe before anything that follows from it can be seen.
    place.publish()

  def _last_score(
      self, lines: Sequence[Mapping[str, Any]]
  ) -> evaluation.Score | None:
    """That of the last step that was validated, in any process."""
    tasks = self._spec.validation
    if tasks is None:
      return None
    found = metrics_lib.validated(lines, tasks.score.name)
    if not found or not found[-1].step:
      return None
    last = found[-1]
    return tasks.score(
        mean=last.mean, low=last.low, high=last.high, tasks=len(tasks.rows)
    )

  def _live_page(self, lines: Sequence[Mapping[str, Any]]) -> live.Page:
    level = self._spending.told_level
    whole = self._spending.guarantees.get(level or "")
    return live.Page(
        self._folder,
        lines,
        self._spec,
        level=level,
        epsilon=whole.epsilon if whole is not None else math.inf,
        caveat=whole.caveat if whole is not None else "",
    )

  def go(
      self,
      limit: time_limit.TimeLimit | None,
      callbacks: Sequence[Callback],
  ) -> spec_lib.Result:
    """Takes the steps; other processes are told how they end."""
    try:
      self._compile()
      with signals.StopSignals() as stop:
        stepping = stepping_lib.Stepping(
            self._done, self._spec.steps, stop, limit
        )
        self._take_steps(stepping, callbacks)
        result = self._finish(stepping.stopped)
    except processes.OtherFailed:
      raise
    except KeyboardInterrupt:  # A second Ctrl-C in a program of one's own.
      self._live.abandon()
      raise
    except Exception:
      self._live.fail(self._done)
      processes.agreed(processes.Code.FAILED)
      raise
    processes.agreed(processes.Code.CONTINUE)
    return result

  def _compile(self) -> None:
    """By itself: a phase tells how long it took, and steps are not to."""
    if self._done == self._spec.steps:
      return
    with (
        compilation.Compilations() as compiled,
        phases.phase(_compiling(), at_once=True),
    ):
      self._step_fn.compile(self.state)
    run_log.log_compiled(compiled, self._done + 1)

  def _take_steps(
      self, stepping: stepping_lib.Stepping, callbacks: Sequence[Callback]
  ) -> None:
    spec = self._spec
    with run_log.ProgressBar(done=self._done, steps=spec.steps) as bar:
      if self._done == 0 and not self._started:
        self._measure_start(bar)
      self._live.write(self._done)
      for _ in stepping:
        line = self._take_step(bar, stepping)
        for callback in callbacks:
          callback(dict(line))
    if stepping.code:
      logging.info("stopping on %s at step %d", stepping.stopped, self._done)

  def _measure_start(self, bar: run_log.ProgressBar) -> None:
    """Writes the line of step 0: the score of the initial parameters."""
    if self._spec.validation is None:
      return
    line = {"step": 0, "epsilon": self._spending.epsilon()}
    line |= self._validate(bar)[1]
    self._log.add_start(line)
    self._live.add(line)

  def _validate(
      self, bar: run_log.ProgressBar
  ) -> tuple[evaluation.Score, dict[str, Any]]:
    """The score of the model as it is, and its part of a step's line."""
    tasks = self._spec.validation
    assert tasks is not None and self._evaluator is not None
    with bar.phase(f"validating on {len(tasks.rows)} tasks"):
      score = self._evaluator.score([state_lib.published(self.state)], tasks)
    return score, {
        f"validation_{score.name}": score.mean,
        "validation_low": score.low,
        "validation_high": score.high,
    }

  def _take_step(
      self, bar: run_log.ProgressBar, stepping: stepping_lib.Stepping
  ) -> dict[str, Any]:
    """A step, its public line, a validation and a checkpoint where due."""
    spec = self._spec
    began = time.monotonic()
    with compilation.Compilations() as compiled:
      self.state, measured = self._step_fn(self.state)
    run_log.log_compiled(compiled, self._done + 1)
    values = {k: np.asarray(v).item() for k, v in measured.items()}
    seconds = round(time.monotonic() - began, 4)
    self._done += 1
    self._spending.add_step()
    epsilon = self._spending.epsilon()
    public, private = run_log.split_private(values)
    public |= {"step": self._done, "epsilon": epsilon}
    validate = spec.validation is not None and (
        self._done == spec.steps or self._done % spec.evaluate_every == 0
    )
    quality = None
    if validate:
      with stepping.saving():
        self._score, measured_now = self._validate(bar)
      score = self._score
      public |= measured_now
      if math.isfinite(score.mean):
        quality = score.sign * score.mean
    # The line is written before the checkpoint: a resumed run drops lines after
    # its checkpoint and so never lacks one.
    self._log.add(public, private, seconds=seconds)
    self._live.add(public)
    if validate or self._done % spec.checkpoint_every == 0:
      with stepping.saving(), bar.phase("saving a checkpoint"):
        self._save(quality)
    last = self._score
    told = "" if last is None else f"{reporting.words(last.name)} {last}"
    bar.show(self._done, epsilon=epsilon, score=told, validated=validate)
    return public

  def _save(self, quality: float | None = None) -> None:
    """Writes a checkpoint, unless the step has one or there was none.

    Args:
      quality: of these very parameters, where they were validated.
    """
    self._disk.check()
    if self._done == 0:
      return
    self._checkpoints.save(
        self._done,
        state_lib.published(self.state),
        resume.beside_params(self.state),
        ledger=self._spending.ledger.as_dict(),
        seal=self.beginning.seal,
        quality=quality,
    )
    self._disk.check()
    self._times.write(self._done)
    self._live.write(self._done)
    self._place.publish()

  def _finish(self, stopped: str) -> spec_lib.Result:
    """The last checkpoint, the statement of the steps done, the pictures."""
    spec = self._spec
    with phases.phase("saving a checkpoint"):
      self._save()
    if stopped == "done" and spec.steps < (spec.asked_steps or spec.steps):
      stopped = "budget"
    with phases.phase("writing the privacy statement"):
      self._spending.finish(self._folder)
    with phases.phase("drawing the curves"):
      self._draw()
    self._live.end(self._done, stopped)
    self._disk.check()
    stated = self._spending.guarantees
    return spec_lib.Result(
        steps=self._done,
        stopped=stopped,
        guarantees=stated,
        seconds=time.monotonic() - self._began,
        score=self._score,
        unproved=tuple(k for k in spec.release.levels if k not in stated),
    )

  def _draw(self) -> None:
    """Draws the learning curve and epsilon over the steps."""
    validation = self._spec.validation
    delta = self._spec.delta
    caveat = " ".join(dict.fromkeys(
        g.caveat for g in self._spending.guarantees.values() if g.caveat
    ))
    if validation is not None:
      lines = metrics_lib.read(self._folder / metrics_lib.FILE)
      name = validation.score.name
      level, spent = self._spending.told_level, None
      if level is not None:
        spent = plots.spent_curve(
            lines, label=f"ε of one {level} at δ = {delta:g}"
        )
      plots.learning_curve(
          self._folder / plots.LEARNING_CURVE,
          [plots.validation_curve(lines, label=plots.SCORE, name=name)],
          name=name,
          chance=validation.chance,
          title=plots.title(validation),
          spent=spent,
          caveat=caveat if spent is not None else "",
      )
    plots.epsilon_curve(
        self._folder / plots.EPSILON_CURVE,
        self._spending.epsilon_curves(),
        delta=delta,
        caveat=caveat,
    )


def _compiling() -> str:
  """What the user waits for before the first step."""
  often = "5 to 30 s on a CPU" if backends.name() == "cpu" else "a minute or so"
  return f"compiling the step ({often}, the next time from the cache)"
