"""The training loop: steps, budget, checkpoints, pictures, guarantees.

A step is one jitted call (`private.make_meta_step`); the loop only counts, and
writes down what is public: the parameters after each step are the release, and
accuracy (in regression the squared error) is measured on public validation
tasks. All randomness of a step
follows from the run's secret key and the step's number, so a run that is killed
at any time and resumed gives the same parameters bit for bit, and no step is
paid for twice.
"""

from collections.abc import Callable, Mapping
import dataclasses
import errno
import math
import os
import pathlib
import signal
import time
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tensorboardX
import tqdm

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.accounting import privacy_statement
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.output import files
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import compilation
from episodic_dp.training import errors
from episodic_dp.training import evaluation
from episodic_dp.training import keys
from episodic_dp.training import mesh as mesh_lib
from episodic_dp.training import metrics as metrics_lib
from episodic_dp.training import processes
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib

DIAGNOSTICS = "diagnostics.jsonl"
TENSORBOARD = "tensorboard"
_PRIVATE = "private/"
_CURVE_POINTS = 20


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSpec:
  """All that a run is.

  Attributes:
    train: what is sampled; its hierarchy is the one that is accounted.
    validation: fixed tasks of public classes (`evaluation.draw`).
    plan: how `train` is sampled.
    mechanism: what a step releases.
    learner: MAML or another learner.
    optimizer: the outer optimiser, its schedule included.
    steps: how many steps to take (`budget.planned_steps`).
    asked_steps: how many were asked for before the budget was looked at.
    delta: of the guarantees.
    seed: public seed of the initial parameters.
    private_seed: None for a secret key; an integer makes the run reproducible
      and its guarantee void for whoever knows the number.
    compute: how a step is computed; where it has no mesh, `devices` make one.
    devices: how many devices share the tasks out; None for all there are.
    evaluate_every: steps between validations, each with a checkpoint.
    checkpoint_every: steps between checkpoints.
    evaluator: measures the learner; None for one of its own.
    config: JSON-able description, compared when the run is resumed.
  """

  train: dataset_lib.Dataset
  validation: evaluation.Tasks
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  learner: Any
  optimizer: optax.GradientTransformation
  steps: int
  asked_steps: int
  delta: float
  seed: int = 0
  private_seed: int | None = None
  compute: private.Compute = dataclasses.field(
      default_factory=private.Compute
  )
  devices: int | None = None
  evaluate_every: int = 25
  checkpoint_every: int = 25
  evaluator: evaluation.Evaluator | None = None
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    for name in ("steps", "evaluate_every", "checkpoint_every"):
      value = getattr(self, name)
      if not isinstance(value, int) or value < 1:
        raise errors.RunError(
            f"{name}={value!r} must be a whole number of at least 1"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """What `train` did.

  Attributes:
    steps: steps done in all, earlier processes included.
    stopped: "done", "budget" (all that the target allows) or "signal".
    guarantees: level -> Guarantee for the steps done.
    seconds: wall-clock seconds of this process inside `train`.
    score: the last validation accuracy or squared error, or None.
  """

  steps: int
  stopped: str
  guarantees: Mapping[str, Any]
  seconds: float
  score: evaluation.Score | None


def train(job: TrainingSpec, workdir: str | os.PathLike) -> Result:
  """Trains in a work directory, from its last checkpoint where it has one.

  Over several processes (`jax.distributed.initialize`) all call it with the
  same job; the first alone uses the folder, and its result has the guarantees.
  A signal to one of them ends them all after the same step.

  Args:
    job: what to run.
    workdir: takes config.json, metrics.jsonl, guarantee.json, checkpoints/, the
      pictures, tensorboard/ and, readable by the owner only, private/.

  Raises:
    RunError: the folder cannot be used, or holds another run; or there are not
      so many devices.
  """
  job = _with_mesh(job)
  broadcast = processes.Broadcast(job.config)
  if not processes.first():
    return _follow(job, broadcast)
  try:
    return _lead(job, workdir, broadcast)
  except Exception as e:
    broadcast.abort(e)
    raise


def _lead(
    job: TrainingSpec,
    workdir: str | os.PathLike,
    broadcast: processes.Broadcast,
) -> Result:
  """The first process, and the only one of most runs."""
  with workdir_lib.opened(workdir) as folder, _Signals() as signals:
    run = None
    try:
      run = _Run(job, folder)
      broadcast.send(run.begin())
      return run.go(signals)
    except OSError as e:
      if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
        raise
      raise errors.RunError(
          f"the work directory {folder} can no longer be written"
          f" ({e.strerror}): make room and run the same command again; it goes"
          " on from the last checkpoint"
      ) from e
    finally:
      if run is not None:
        run.close()


def _follow(job: TrainingSpec, broadcast: processes.Broadcast) -> Result:
  """Another process: it takes the steps of the first, and writes nothing."""
  began = time.monotonic()
  key, *leaves = broadcast.receive()
  state = _initial(job, private.secret_key(key.tobytes()))
  like, treedef = jax.tree.flatten(_all_but_the_key(state))
  leaves = [a.view(b.dtype) for a, b in zip(leaves, like)]
  state = state._replace(**jax.tree.unflatten(treedef, leaves))
  step_fn, done = _make_step(job), int(state.step)
  step_fn.compile(state)
  code = processes.CONTINUE
  with _Signals() as signals:
    while done < job.steps and code == processes.CONTINUE:
      code = processes.agreed(signals.code)
      if code == processes.CONTINUE:
        state, _ = jax.block_until_ready(step_fn(state))
        done += 1
  # The first saves, and may fail at that.
  processes.agreed(processes.CONTINUE)
  return Result(
      steps=done,
      stopped="signal" if done < job.steps else "done",
      guarantees={},
      seconds=time.monotonic() - began,
      score=None,
  )


def _with_mesh(job: TrainingSpec) -> TrainingSpec:
  """The job with the mesh of its devices, unless that is one."""
  streamed = not job.train.resident
  mesh = job.compute.mesh or mesh_lib.make_mesh(
      1 if streamed and job.devices is None else job.devices
  )
  if mesh.size > 1 and streamed:
    raise errors.RunError(
        f"compute.resident=False with {mesh.size} devices: data on the host go"
        " to one device; set config.compute.devices=1, or leave resident=True"
    )
  # In other numbers the tasks add up in another order: see `check_config`.
  compute = dict(job.config.get("compute", {})) | {
      "devices": mesh.size,
      "microbatch_size": job.compute.microbatch_size,
  }
  shared = mesh.size > 1 or job.compute.mesh is not None
  return dataclasses.replace(
      job,
      compute=dataclasses.replace(job.compute, mesh=mesh if shared else None),
      config=dict(job.config) | {"compute": compute},
  )


def _initial(job: TrainingSpec, key: jax.Array) -> private.State:
  return private.init(
      key,
      job.learner,
      job.optimizer,
      job.mechanism,
      params=job.learner.init(jax.random.key(job.seed)),
  )


def _make_step(job: TrainingSpec) -> Any:
  return private.make_meta_step(
      job.learner,
      job.optimizer,
      job.train,
      job.plan,
      job.mechanism,
      compute=job.compute,
  )


class _Run:
  """One process's part of a run."""

  def __init__(self, job: TrainingSpec, folder: pathlib.Path):
    self._job = job
    self._folder = folder
    self._began = time.monotonic()
    self._checkpoints = checkpoint_lib.Checkpoints(folder)
    if job.mechanism.clipping == "percentile_window":
      logging.warning(
          "percentile_window: no formal guarantee, and the checkpoints in %s"
          " hold raw gradient norms of single tasks: keep them private",
          self._checkpoints.folder,
      )
    key = self._identity()
    self._state = self._restore(key)
    self._done = int(self._state.step)
    self._ledger = self._spent_before()
    planned = self._after(job.steps)
    self._guarantees = self._account(planned)
    # Written only now: a refused run leaves what the folder says.
    files.write_json(folder / workdir_lib.CONFIG, dict(job.config))
    self._write_statement(planned)
    self._evaluator = job.evaluator or evaluation.Evaluator(job.learner)
    self._lines = metrics_lib.Lines(
        folder / metrics_lib.FILE, keep=self._done
    )
    self._diagnostics = None
    if job.compute.diagnostics:
      self._diagnostics = metrics_lib.Lines(
          keys.private_folder(folder) / DIAGNOSTICS, keep=self._done
      )
    self._board = tensorboardX.SummaryWriter(
        str(folder / TENSORBOARD), purge_step=self._done + 1
    )
    self._score: evaluation.Score | None = None

  # Before the first step ------------------------------------------------------

  def _identity(self) -> jax.Array:
    """Checks that this is the run that lies in the folder; returns its key."""
    job, folder = self._job, self._folder
    last = self._checkpoints.latest()
    lines = metrics_lib.read(folder / metrics_lib.FILE)
    traces = lines[-1]["step"] if lines else 0
    clean = traces <= (last or 0)
    workdir_lib.check_config(folder, job.config, clean=clean)
    fresh = last is None and not lines
    if fresh and not keys.path(folder).exists():
      return keys.create(folder, private_seed=job.private_seed)
    return keys.load(folder)

  def _restore(self, key: jax.Array) -> private.State:
    job = self._job
    state = _initial(job, key)
    last = self._checkpoints.latest()
    if last is None:
      return state
    if last > job.steps:
      raise errors.RunError(
          f"the run in {self._folder} has done {last} steps already and the"
          f" configuration allows {job.steps}: raise config.steps (or the"
          " budget), or evaluate what is there"
      )
    params, rest = self._checkpoints.restore(last, state.params, _rest(state))
    logging.info("resumed from step %d in %s", last, self._folder)
    return state._replace(
        **jax.tree.map(jnp.asarray, {"params": params, **rest})
    )

  # Accounting -----------------------------------------------------------------

  def _after(self, steps: int) -> accounting.Ledger:
    """The ledger of this run after so many steps."""
    if not steps:
      return accounting.Ledger()
    job = self._job
    return accounting.Ledger().add(
        job.train.hierarchy, job.plan, job.mechanism, steps
    )

  def _spent_before(self) -> accounting.Ledger:
    """The ledger of the steps done by earlier processes.

    It was stored with the checkpoint, and must say that its steps were taken
    as this job would have taken them.
    """
    done = self._done
    expected = self._after(done)
    if not done:
      return expected
    folder = self._checkpoints.folder / str(done)
    data = self._checkpoints.ledger(done)
    if data is None:
      raise errors.RunError(
          f"the checkpoint {folder} has no ledger of what its steps cost, which"
          " earlier versions did not write: finish the run with the version"
          " that started it, or start a new one in another --workdir"
      )
    try:
      ledger = accounting.Ledger.from_dict(data)
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError) as e:
      raise errors.RunError(
          f"the ledger of the checkpoint {folder} is not one of this version"
          f" ({e}): resume with the version that wrote it, or start a new run"
          " in another --workdir"
      ) from e
    if ledger.steps != done:
      raise self._checkpoints.unreadable(
          done, f"its ledger has {ledger.steps} steps"
      )
    field = workdir_lib.first_difference(ledger.as_dict(), expected.as_dict())
    if field is not None:
      name, before, now = field
      raise errors.RunError(
          f"the steps of the checkpoint {folder} were taken with"
          f" {name}={before} and the run is resumed with {now}: resume it with"
          " the data and the configuration that it was started with, or choose"
          " another --workdir"
      )
    return expected

  def _account(self, ledger: accounting.Ledger) -> dict[str, Any]:
    found = ledger.guarantees(delta=self._job.delta)
    if self._job.private_seed is None:
      return found
    # In the guarantee itself, so that it is said wherever epsilon is.
    return {level: privacy_statement.seeded(g) for level, g in found.items()}

  def _write_statement(self, ledger: accounting.Ledger) -> None:
    reporting.write_statement(
        self._folder / reporting.GUARANTEE,
        ledger,
        delta=self._job.delta,
        fixed_seed=self._job.private_seed is not None,
        planned_steps=self._job.steps,
    )

  def _epsilon_curves(self) -> list[reporting.Curve]:
    """Epsilon of every level that has one, over the steps of the whole run."""
    job = self._job
    # Denser where the curve bends: epsilon grows about as the square root.
    roots = np.linspace(1, job.steps**0.5, min(job.steps, _CURVE_POINTS))
    points = sorted({int(round(root**2)) for root in roots})
    curves = []
    for level, guarantee in self._guarantees.items():
      if math.isfinite(guarantee.epsilon):
        values = [self._after(t).spent(level, job.delta) for t in points]
        curves.append(
            reporting.Curve(label=level, steps=points, values=values)
        )
    return curves

  def _spent(self) -> float:
    """Epsilon of the first level that has one, after the steps done, or inf."""
    for level, guarantee in self._guarantees.items():
      if math.isfinite(guarantee.epsilon):
        return self._ledger.spent(level, self._job.delta)
    return math.inf

  # Steps ----------------------------------------------------------------------

  def begin(self) -> list[np.ndarray]:
    """What other processes begin with: the key's bytes, the state's arrays."""
    data = np.asarray(jax.random.key_data(self._state.key))
    leaves = jax.tree.leaves(_all_but_the_key(self._state))
    # As `private.secret_key` takes them.
    key = np.frombuffer(data.astype(">u4").tobytes(), np.uint8)
    return [key, *checkpoint_lib.to_host(leaves)]

  def go(self, signals: "_Signals") -> Result:
    """Takes the steps; other processes are told how they end."""
    try:
      result = self._go(signals)
    except processes.OtherFailed:
      raise
    except Exception:
      processes.agreed(processes.FAILED)
      raise
    processes.agreed(processes.CONTINUE)
    return result

  def _go(self, signals: "_Signals") -> Result:
    job = self._job
    step_fn = _make_step(job)
    if processes.several():  # Before any of them waits in an all-reduce.
      with compilation.Compilations() as compiled:
        step_fn.compile(self._state)
      self._log_compiled(compiled)
    bar = tqdm.tqdm(
        total=job.steps, initial=self._done, unit="step", disable=None
    )
    code = processes.CONTINUE
    with bar:
      while self._done < job.steps and code == processes.CONTINUE:
        code = processes.agreed(signals.code)
        if code == processes.CONTINUE:
          self._one(step_fn, bar)
    if code != processes.CONTINUE:
      logging.info("stopping on signal at step %d", self._done)
    self._save()
    stopped = "signal" if self._done < job.steps else "done"
    if stopped == "done" and job.steps < job.asked_steps:
      stopped = "budget"
    if self._done:
      self._guarantees = self._account(self._ledger)
      self._write_statement(self._ledger)
    self._pictures()
    return Result(
        steps=self._done,
        stopped=stopped,
        guarantees=self._guarantees,
        seconds=time.monotonic() - self._began,
        score=self._score,
    )

  def _one(self, step_fn: Callable[..., Any], bar: tqdm.tqdm) -> None:
    """A step, its line, and a validation and a checkpoint where due."""
    job = self._job
    began = time.monotonic()
    with compilation.Compilations() as compiled:
      self._state, measured = step_fn(self._state)
    self._log_compiled(compiled)
    values = {k: np.asarray(v).item() for k, v in measured.items()}
    seconds = round(time.monotonic() - began, 4)
    self._done += 1
    self._ledger = self._ledger.add(
        job.train.hierarchy, job.plan, job.mechanism, continued=True
    )
    step, last = self._done, self._done == job.steps
    public = {k: v for k, v in values.items() if not k.startswith(_PRIVATE)}
    public["step"] = step
    public["epsilon"] = self._spent()
    evaluate = last or step % job.evaluate_every == 0
    if evaluate:
      params = self._state.params
      if job.compute.mesh is not None:
        # On one device, or all would do the same, and other processes not.
        params = jax.tree.map(lambda a: a.addressable_data(0), params)
      self._score = self._evaluator.score([params], job.validation)
      public[f"validation_{self._score.name}"] = self._score.mean
      public["validation_low"] = self._score.low
      public["validation_high"] = self._score.high
    # The line is written before the checkpoint: a resumed run drops lines after
    # its checkpoint and so never lacks one.
    self._lines.add(public)
    if self._diagnostics is not None:
      marked = {k: v for k, v in values.items() if k.startswith(_PRIVATE)}
      # How long a step took tells how many tasks it drew.
      marked[_PRIVATE + "seconds"] = seconds
      self._diagnostics.add({"step": step, **marked})
    for name, value in public.items():
      if name != "step" and isinstance(value, float) and math.isfinite(value):
        self._board.add_scalar(name, value, step)
    if evaluate or step % job.checkpoint_every == 0:
      self._save()
    self._show(bar, public, evaluate)

  def _log_compiled(self, compiled: compilation.Compilations) -> None:
    if compiled.count:
      logging.info(
          "step %d: %d programs compiled in %.1f s",
          self._done + 1,
          compiled.count,
          compiled.seconds,
      )

  def _show(self, bar: tqdm.tqdm, public: dict[str, Any], evaluate: bool):
    epsilon = public["epsilon"]
    text = "no guarantee" if math.isinf(epsilon) else f"epsilon≤{epsilon:.3g}"
    if self._score is not None:
      text += f", {reporting.words(self._score.name)} {self._score}"
    bar.set_postfix_str(text, refresh=False)
    bar.update()
    if evaluate and bar.disable:  # No terminal: a line per validation.
      logging.info("step %d of %d: %s", self._done, self._job.steps, text)

  def _save(self) -> None:
    if self._done == 0:
      return
    # A score belongs to the step it was measured at.
    lines = metrics_lib.read(self._folder / metrics_lib.FILE)
    kind, quality = self._job.validation.score, None
    if lines and lines[-1]["step"] == self._done:
      found = lines[-1].get(f"validation_{kind.name}")
      if isinstance(found, float) and math.isfinite(found):
        quality = kind.sign * found
    self._checkpoints.save(
        self._done,
        self._state.params,
        _rest(self._state),
        ledger=self._ledger.as_dict(),
        quality=quality,
    )

  def _pictures(self) -> None:
    lines = metrics_lib.read(self._folder / metrics_lib.FILE)
    validation = self._job.validation
    name = validation.score.name
    reporting.learning_curve(
        self._folder / reporting.LEARNING_CURVE,
        [validation_curve(lines, label="this run", name=name)],
        name=name,
        chance=validation.chance,
    )
    reporting.epsilon_curve(
        self._folder / reporting.EPSILON_CURVE,
        self._epsilon_curves(),
        delta=self._job.delta,
    )

  def close(self) -> None:
    for part in ("_lines", "_diagnostics", "_board", "_checkpoints"):
      opened = getattr(self, part, None)
      if opened is not None:
        opened.close()


def validation_curve(
    lines: list[dict[str, Any]], *, label: str, name: str = "accuracy"
) -> reporting.Curve:
  """The validation scores of a name among lines of metrics.jsonl."""
  key = f"validation_{name}"
  points = [
      (line["step"], float(line[key])) for line in lines if key in line
  ]
  return reporting.Curve(
      label=label, steps=[p[0] for p in points], values=[p[1] for p in points]
  )


def _all_but_the_key(state: private.State) -> dict[str, Any]:
  return {k: v for k, v in state._asdict().items() if k != "key"}


def _rest(state: private.State) -> dict[str, Any]:
  """What a checkpoint holds beside the parameters: all but the key."""
  rest = {"opt_state": state.opt_state, "step": state.step}
  return rest | {"clip": state.clip} if state.clip else rest


class _Signals:
  """SIGTERM and SIGINT end the loop after the step that is running."""

  def __init__(self) -> None:
    self.received = False
    self._before: dict[int, Any] = {}

  @property
  def code(self) -> int:
    """For `processes.agreed`."""
    return processes.STOP if self.received else processes.CONTINUE

  def _handle(self, number, frame):
    del frame
    if self.received and number == signal.SIGINT:
      raise KeyboardInterrupt  # A second Ctrl-C does not wait for the step.
    self.received = True

  def __enter__(self) -> "_Signals":
    for number in (signal.SIGTERM, signal.SIGINT):
      try:
        self._before[number] = signal.signal(number, self._handle)
      except ValueError:  # Not the main thread: the caller handles signals.
        break
    return self

  def __exit__(self, *unused):
    for number, handler in self._before.items():
      signal.signal(number, handler)
