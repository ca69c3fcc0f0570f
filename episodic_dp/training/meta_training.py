"""Meta-training, or training on single examples, as a program of the loop."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import os
from typing import Any

from absl import logging
from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib
from episodic_dp.training import evaluation
from episodic_dp.training import loop
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import resume
from episodic_dp.training import spec as spec_lib
from episodic_dp.training.checkpoint import Arrays

_CURVE_POINTS = 20


def train(
    spec: spec_lib.TrainingSpec,
    workdir: str | os.PathLike,
    **options: Any,
) -> reporting.Result:
  """Train in a work directory, from its last checkpoint if there is one.

  Args:
    spec: the run.
    workdir: receives all files; see `loop.run`.
    **options: "resume", "key_file", "deadline" and "callbacks" of `loop.run`.

  Returns:
    The outcome, `Result`: steps, guarantees and validation scores.

  Raises:
    PlanError, UnsoundPlanError: the parts of the run do not fit together, or no
      proof covers them.
    RunError: the folder cannot be used, or holds another run.
  """
  return loop.run(MetaTraining(spec), workdir, **options)


class Spending:
  """The privacy cost of a run, step by step.

  Args:
    spec: the run.
    ranges: steps that were taken, or may have been, under each key; the last
      range belongs to the present key.
    done: steps done.

  Attributes:
    began: the first step of this key.
    done: steps done.
    whole: level -> guarantee of the whole run.
    level: the level whose epsilon is reported during the run: the privacy unit,
      or the first level with a guarantee if no unit is named or it has none;
      None if no level has a guarantee.
  """

  def __init__(
      self, spec: spec_lib.TrainingSpec, ranges: Sequence[range], done: int
  ):
    self._spec = spec
    self._earlier = accounting.Ledger()
    for taken in ranges[:-1]:
      if taken:
        # A pass is charged as a whole once it has started.
        first = self._pass_start(taken.start)
        last = self._pass_start(taken.stop - 1) + self._pass_length
        self._earlier = self._earlier.add(
            spec.release, last - first, continued=False
        )
    # This key may start in the middle of a pass. The earlier steps of that pass
    # are counted as taken too, which releases more than was released.
    self._first = self._pass_start(ranges[-1].start)
    self.began, self.done = ranges[-1].start, done
    self._released = ranges[-1].stop
    self.whole = self._guarantees(self.charged(spec.steps))
    finite = [k for k, g in self.whole.items() if math.isfinite(g.epsilon)]
    self.level = next(iter(finite), None)
    if spec.privacy_unit in finite:
      self.level = spec.privacy_unit

  def ledger(self, done: int) -> accounting.Ledger:
    """Return the ledger of other keys and of the first steps of this one."""
    if done == self._first:
      return self._earlier
    return self._earlier.add(
        self._spec.release, done - self._first, continued=False
    )

  def charged(self, done: int | None = None) -> accounting.Ledger:
    """Return the ledger of all steps that may have been released.

    Args:
      done: number of steps done; None for the present one.
    """
    if done is None:
      done = self.done
    return self.ledger(max(done, self._released))

  def epsilon(self, level: str | None, done: int) -> float:
    """Return epsilon of the first steps, at most that of the whole run.

    The whole run includes the first steps, so its epsilon bounds theirs; fast
    bounds for the middle of a pass may exceed it.
    """
    if level is None:
      return math.inf
    ledger = self.ledger(done)
    if not ledger.steps:
      return 0.0
    spent = ledger.spent(level, self._spec.delta)
    return min(spent, self.whole[level].epsilon)

  def stated(self) -> Mapping[str, accounting.Guarantee]:
    """Return level -> guarantee of the steps done; of the whole run before."""
    ledger = self.charged()
    if not ledger.steps:
      return self.whole
    return self._guarantees(ledger)

  @property
  def _pass_length(self) -> int:
    """Return the steps of a pass; 1 if the plan has no passes."""
    return self._spec.release.plan.stages[0].pass_steps or 1

  def _pass_start(self, step: int) -> int:
    """Return the first step of the pass that contains a step."""
    return step - step % self._pass_length

  def _guarantees(
      self, ledger: accounting.Ledger
  ) -> Mapping[str, accounting.Guarantee]:
    spec = self._spec
    # The caveats are part of it, so that they are shown with every epsilon.
    return {
        level: guarantee.of_run(
            seeded=spec.private_seed is not None,
            started=spec.learner.model.start is not None,
            embedded=spec.learner.model.backbone is not None,
        )
        for level, guarantee in ledger.guarantees(delta=spec.delta).items()
    }


class MetaTraining:
  """A `loop.Program` of private meta-steps."""

  unit = "step"
  remembers = False

  def __init__(self, spec: spec_lib.TrainingSpec):
    self.spec = spec
    self.diagnostics = spec.compute.diagnostics
    self.steps = spec.steps
    self._step = private.make_meta_step(
        spec.learner,
        spec.optimizer,
        spec.train,
        spec.release,
        compute=spec.compute,
    )
    if spec.release.mechanism.clipping == "percentile_window":
      logging.warning(
          "percentile_window: no formal guarantee, and the checkpoints hold raw"
          " gradient norms of single tasks: keep them private"
      )
    self._evaluator = spec.evaluator or evaluation.Evaluator(spec.learner)
    self._moments = jax.jit(spec.learner.public_moments)
    self._scores: list[evaluation.Score] = []
    self._spending: Spending | None = None

  def init(self) -> private.State:
    """See `loop.Program`."""
    spec = self.spec
    return private.init(
        private.secret_key(bytes(8)),  # Replaced by the run's key.
        spec.learner,
        spec.optimizer,
        spec.release.mechanism,
        params=spec.learner.init(jax.random.key(spec.seed)),
    )

  def parts(self, state: private.State) -> dict[str, str]:
    """See `loop.Program`; the lowered program computes one task at a time."""
    spec, like = self.spec, jax.ShapeDtypeStruct
    settings = step_lib.Settings(
        spec.learner,
        spec.optimizer,
        spec.train,
        spec.release,
        private.Compute(
            mesh=None, microbatch_size=1, noise_terms=spec.compute.noise_terms
        ),
    )
    images, labels = spec.train.images, None
    if spec.release.plan.episode is None:
      labels = like((len(images),), np.int32)
    described = plan_lib.to_dict(spec.release)
    mesh, devices = spec.compute.device_mesh(), 1
    if mesh is not None:
      devices = mesh.size
    return {
        # Other numbers of devices or microbatches round sums differently.
        "compute": (
            f"{devices} devices, microbatch_size"
            f" {spec.compute.microbatch_size}, resident {spec.train.resident}"
        ),
        "release": resume.json_digest(described),
        "data": resume.data_digest(spec.train),
        "learner": resume.json_digest([
            spec.config.get("model"),
            spec.config.get("learner"),
            resume.shapes(state.params),
        ]),
        "start": resume.digest(self.saved(state)),
        "program": resume.program_digest(
            functools.partial(step_lib.take, settings),
            # Of a window, only its bounds are an input of the step.
            state._replace(clip=getattr(state.clip, "bounds", state.clip)),
            settings.noise_multiplier,
            like(images.shape, images.dtype),
            labels,
        ),
    }

  def saved(self, state: private.State) -> tuple[Arrays, Arrays]:
    """See `loop.Program`; everything but the key."""
    rest = {
        "opt_state": state.opt_state,
        "step": state.step,
        "clip": state.clip,
    }
    params = state_lib.published(state)
    if params is not state.params:
      rest["iterate"] = state.params
    moments = self._moments(params)
    if moments is not None:
      rest["moments"] = moments  # For an exported model.
    return params, rest

  def restored(
      self, state: private.State, params: Arrays, rest: Arrays, key: jax.Array
  ) -> private.State:
    """See `loop.Program`."""
    rest = dict(rest)
    rest.pop("moments", None)
    params = rest.pop("iterate", params)  # If the model is an average.
    arrays = jax.tree.map(jnp.asarray, {"params": params, **rest})
    return state._replace(key=key, **arrays)

  def charge(self, ranges: Sequence[range], done: int) -> None:
    """See `loop.Program`."""
    self._spending = Spending(self.spec, ranges, done)

  def compile(self, state: private.State) -> None:
    """See `loop.Program`."""
    self._step.compile(state)

  def step(self, state: private.State) -> tuple[private.State, dict[str, Any]]:
    """See `loop.Program`."""
    state, measured = self._step(state)
    if self._spending is not None:
      self._spending.done += 1
    return state, {k: np.asarray(v).item() for k, v in measured.items()}

  def spent(self) -> dict[str, float]:
    """See `loop.Program`."""
    spending = self._paid
    return {"epsilon": spending.epsilon(spending.level, spending.done)}

  def ledger(self) -> dict[str, Any]:
    """See `loop.Program`."""
    return self._paid.charged().as_dict()

  def validate(self, state: private.State) -> loop.Validated:
    """See `loop.Program`."""
    tasks = self.spec.validation
    if tasks is None:
      return loop.NOT_VALIDATED
    score = self._evaluator.score([state_lib.published(state)], tasks)
    numbers = {
        f"validation_{score.name}": score.mean,
        "validation_low": score.low,
        "validation_high": score.high,
    }
    words = f"{reporting.words(score.name)} {score}"
    return numbers, score.sign * score.mean, words

  def write(
      self, folder: epath.Path, lineage: Sequence[str], *, ended: bool
  ) -> None:
    """See `loop.Program`; pictures too, at the end."""
    spec, spending = self.spec, self._paid
    ledger = spending.charged()
    if not ended:
      ledger = spending.charged(spec.steps)
    if ledger.steps:
      statement = accounting.run_statement(
          ledger,
          delta=spec.delta,
          fixed_seed=spec.private_seed is not None,
          planned_steps=spec.steps,
          lineage=lineage,
          start=spec.learner.model.start,
          backbone=spec.learner.model.backbone,
      )
      files.write_json(folder / reporting.GUARANTEE, statement)
    if ended:
      with phases.phase("plotting the curves"):
        self._draw(folder)

  def result(
      self,
      state: private.State | None,
      done: int,
      stopped: str,
      seconds: float,
  ) -> reporting.Result:
    """See `loop.Program`."""
    spec, spending = self.spec, self._spending
    mechanism = spec.release.mechanism
    found = reporting.Result(
        steps=done,
        planned=spec.steps,
        stopped=stopped,
        guarantees={},
        seconds=seconds,
        filled=spec.release.filled,
        started=spec.learner.model.start is not None,
        proposed=spec.release.sums_tasks and mechanism.clip_by == "global",
    )
    if self._scores:
      found = dataclasses.replace(
          found, untrained=self._scores[0], score=self._scores[-1]
      )
    if spending is None:
      return found
    stated, level = spending.stated(), spending.level
    tree, units = spec.train.hierarchy, None
    if level:
      units = tree.distinct(tree.level_index(level))
    return dataclasses.replace(
        found,
        guarantees=stated,
        unproved=tuple(k for k in spec.release.levels if k not in stated),
        privacy_unit=level,
        units=units,
    )

  @property
  def privacy_unit(self) -> str | None:
    """See `loop.Program`."""
    return self._paid.level

  @property
  def _paid(self) -> Spending:
    assert self._spending is not None  # In the process that writes.
    return self._spending

  def _draw(self, folder: epath.Path) -> None:
    """Plot the learning curve and epsilon over the steps."""
    spec, spending, tasks = self.spec, self._paid, self.spec.validation
    if tasks is not None:
      lines = metrics.read(folder / metrics.FILE)
      found = metrics.validated(lines, tasks.score.name)
      self._scores = [
          tasks.score(
              mean=one["mean"], low=one["low"], high=one["high"],
              tasks=len(tasks.rows),
          )
          for one in found
      ]
      reporting.learning_curve(folder / reporting.LEARNING_CURVE, found, tasks)
    # Denser at the start: epsilon grows about as the square root of the steps.
    most = spec.steps
    roots = np.linspace(1, most**0.5, min(most, _CURVE_POINTS))
    points = sorted({max(int(round(r**2)), spending.began + 1) for r in roots})
    caveats = dict.fromkeys(g.caveat for g in spending.stated().values())
    curves = {}
    for level, guarantee in spending.whole.items():
      if math.isfinite(guarantee.epsilon):
        curves[level] = [spending.epsilon(level, t) for t in points]
    reporting.epsilon_curve(
        folder / reporting.EPSILON_CURVE,
        points,
        curves,
        delta=spec.delta,
        caveat=" ".join(filter(None, caveats)),
    )
