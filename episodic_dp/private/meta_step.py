"""One private meta-step: sample, clip each task, sum, noise once, update.

With a plan without an episode the tasks are single examples, and the step is
that of DP-SGD; below, read "examples" for "tasks" then.

[M] "Meta-Learning with Differential Privacy" (DP-MAML), Algorithm 1, with the
sum divided by the expected, public number of tasks instead of the drawn one.

Formal guarantees
-----------------
The released vector of a step is the sum over the drawn tasks of gradients
clipped to C, plus N(0, (z C)^2 I), which is what `accounting` accounts for the
same hierarchy, plan and mechanism; or that sum and a noised count, which
together cost the same, where the clip norm adapts (`adaptive` says when nothing
is guaranteed). Everything else that a step returns, but for `State.key` and
`State.clip`, is a function of released vectors and public constants, unless
`Compute(diagnostics=True)` asks for the entries named "private/...". The
guarantee holds against whoever does not know `State.key`.
"""

from collections.abc import Callable
import functools
from typing import Any, Protocol

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import adaptive
from episodic_dp.private import checks
from episodic_dp.private import compute as compute_lib
from episodic_dp.private import programs
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.private import step_program
from episodic_dp.private import streaming
from episodic_dp.private import task_sum


class Step(Protocol):
  """One step of a run, compiled when it is first called."""

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    """Take one step; the state is donated."""

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """What a step consists of, for `sections`: the same in any microbatches.

    With one task at a time it is the step's own trace, and not traced again.
    """

  def compile(self, state: state_lib.State) -> None:
    """Compile the step for states like this one, without taking it.

    Processes that compile at unlike speeds do so before the first step, whose
    collectives wait for 30 s on a CPU and then fail.
    """


def make_meta_step(
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    *,
    compute: compute_lib.Compute | None = None,
) -> Step:
  """The function that makes one step, compiled, its state donated.

  With the data on the device a step is one call. Of data that stay on the host
  (`dataset.resident` is false) what the next step draws is gathered while this
  one computes, to the same result up to rounding; see `streaming`.

  Args:
    learner: what is trained, see `learners.Learner`: of a task its
      `meta_gradient` is clipped, and that of step i is `at_step(i)`.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: the images, kept on the device unless `resident` is false, and the
      tree of their units.
    release: how tasks are sampled and what is released, of data with the sizes
      of `dataset.hierarchy`. The clip unit is the task, or the example where
      inner steps are noisy (see `sample_level`) or the plan has no episode:
      examples are then sampled and clipped by themselves (DP-SGD), the learner
      adapts to nothing (`learners.Supervised`), and `dataset.labels` (int32
      [rows]) are classes.
    compute: how to compute it; None for `Compute()`.

  Returns:
    state -> (state, metrics). Metrics: "step" (int32, steps done) and
    "update_norm" (float32, l2 norm of the optimizer's update), which are
    functions of released quantities, and with "private_quantile" "clip_norm"
    (float32, that of the step). With diagnostics also "private/loss",
    "private/accuracy" (on queries; none for regression), "private/clipped"
    (share of the tasks), "private/norm" (mean raw norm), "private/tasks" and
    "private/non_finite" (counts), and with "percentile_window"
    "private/clip_norm".

  Raises:
    plan.PlanError: plan, data, learner or mechanism contradict one another, or
      the images do not fit on the device.
    plan.UnsoundPlanError: a record recurs that the release does not count, or
      no proof covers the learner or its network.

  Examples:
    >>> import optax
    >>> from episodic_dp import data, learners, models, plan, private
    >>> train = data.load("sinusoid", participants=50).train
    >>> p = plan.SamplingPlan(
    ...     (plan.Poisson(0.1), plan.FixedSize(4)),
    ...     episode=plan.Episode(way=1, shot=2, query=2),
    ... )
    >>> m = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
    >>> r = plan.Release(train.hierarchy, p, m)
    >>> learner = learners.MAML(
    ...     models.mlp(1, (4,), (1, 1, 1)), inner_steps=1,
    ...     task_loss=learners.squared_error,
    ... )
    >>> optimizer = optax.adam(0.01)
    >>> state = private.init(private.secret_key(), learner, optimizer, m)
    >>> step = private.make_meta_step(learner, optimizer, train, r)
    >>> state, metrics = step(state)
    >>> int(state.step)
    1
  """
  # Not a default: a module that is only imported asks for no device.
  compute = compute or compute_lib.Compute()
  checks.check(learner, dataset, release)
  program = step_program.make_program(
      learner, optimizer, dataset, release, compute
  )
  fixed = adaptive.fixed(
      release.mechanism, jax.eval_shape(learner.init, jax.random.key(0))
  )
  return _WithFixed(_made(program, dataset, compute), fixed, program, dataset)


class _WithFixed:
  """A step that takes a fixed clip norm and its noise as arguments."""

  def __init__(
      self,
      step: Step,
      fixed: adaptive.ClipState,
      program: step_program.StepProgram,
      dataset: dataset_lib.Dataset,
  ):
    self._step, self._fixed = step, fixed
    self._program, self._dataset = program, dataset

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    new, metrics = self._step(self._given(state))
    return new._replace(clip=() if self._fixed else new.clip), metrics

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """See `Step`."""
    state, program = self._given(state), self._program
    if program.context.microbatch_size == 1:
      return self._step.traced(state)
    images, labels = self._dataset.images, None
    if program.release.plan.episode is None:
      labels = jax.ShapeDtypeStruct((len(images),), jnp.int32)
    return step_program.traced_one_by_one(
        program, state, jax.ShapeDtypeStruct(images.shape, images.dtype), labels
    )

  def running(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """The programs that a call runs, to read what they cost."""
    return self._step.traced(self._given(state))

  def compile(self, state: state_lib.State) -> None:
    """See `Step`."""
    self._step.compile(self._given(state))

  def _given(self, state: state_lib.State) -> state_lib.State:
    return state._replace(clip=self._fixed) if self._fixed else state


def _made(
    program: step_program.StepProgram,
    dataset: dataset_lib.Dataset,
    compute: compute_lib.Compute,
) -> Step:
  """The step of data where they lie, on the devices that there are."""
  mesh = compute.device_mesh()
  if not dataset.resident:
    return streaming.Step(
        program,
        dataset.images,
        dataset.labels if program.release.plan.episode is None else None,
        block_bytes=compute.block_bytes,
        mesh=mesh,
    )
  if mesh is not None:
    return _sharded(program, dataset, mesh)
  return _on_one_device(program, dataset)


def _on_one_device(
    program: step_program.StepProgram, dataset: dataset_lib.Dataset
) -> Step:
  """The step of data that lie on the only device."""

  def update(
      state: state_lib.State, images: jax.Array, labels: jax.Array | None
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    return step_program.take(program, state, images, labels)

  return _ResidentStep(update, _placed(program, dataset, jnp.asarray))


class _ResidentStep:
  """A step of data that lie on the only device."""

  def __init__(self, update: Any, data: tuple[Any, ...]):
    self._update = programs.jit(update, donate_argnums=0)
    self._compiled: Any = None
    self._inside = jax.jit(update)
    self._data = data

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    if isinstance(state.step, jax.core.Tracer):  # Within another program.
      return self._inside(state, *self._data)
    return (self._compiled or self._update)(state, *self._data)

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """See `Step`."""
    return (self._update.trace(state, *self._data).jaxpr,)

  def compile(self, state: state_lib.State) -> None:
    """See `Step`."""
    # This program is called from now on: `jit` would compile again.
    self._compiled = self._update.lower(state, *self._data).compile()


def _sharded(
    program: step_program.StepProgram,
    dataset: dataset_lib.Dataset,
    mesh: jax.sharding.Mesh,
) -> Step:
  """The step of data that lie on every device of a mesh."""
  sum_tasks = sharding.sharded_sum(
      mesh,
      functools.partial(step_program.begin, program),
      functools.partial(step_program.add, program),
  )

  def update(
      state: state_lib.State, images: jax.Array, labels: jax.Array | None
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    rows, mask = step_program.draw(program, state.key, state.step)
    totals = sum_tasks(state, task_sum.Tasks(images, rows, mask, labels))
    return step_program.finish(program, state, totals, mask)

  place = functools.partial(sharding.replicate, mesh)
  return sharding.Step(mesh, update, _placed(program, dataset, place))


def _placed(
    program: step_program.StepProgram,
    dataset: dataset_lib.Dataset,
    place: Callable[[Any], Any],
) -> tuple[jax.Array, jax.Array | None]:
  """Images and, without an episode, labels on the device.

  They are arguments of the step, not constants that are compiled in.
  """
  images = _on_device(dataset.images, place)
  if program.release.plan.episode is not None:
    return images, None
  return images, place(np.asarray(dataset.labels, np.int32))


def _on_device(images: Any, place: Callable[[Any], Any]) -> jax.Array:
  """`place(images)`, or PlanError where they do not fit."""
  try:
    return place(images)
  except jax.errors.JaxRuntimeError as e:
    if "RESOURCE_EXHAUSTED" not in str(e):
      raise
    raise plan_lib.PlanError(
        f"the images ({images.nbytes / 2**30:.1f} GiB) do not fit on the"
        " device: leave them on the host with ArrayDataset(resident=False)"
        " (config.compute.resident=False)"
    ) from e
