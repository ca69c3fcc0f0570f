"""The sum of the clipped gradients of a step's tasks, by microbatches.

Formal guarantees
-----------------
Each task is clipped by itself before anything is added, so that one task added,
removed or replaced moves the sum by no more than `clipping.sensitivity` says,
up to the rounding of the sum that is stated there. With noisy inner steps the
clip units are the query examples of the tasks, see `sample_level`.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.private import adaptive
from episodic_dp.private import clipping
from episodic_dp.private import sample_level
from episodic_dp.private import sections

Diagnostics = dict[str, jax.Array]

_DIAGNOSTICS = ("loss", "accuracy", "clipped", "norm", "non_finite")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskContext:
  """How every task of a step becomes a clipped gradient.

  Attributes:
    learner: of the step.
    mechanism: the clip norm, and what it bounds.
    episode: way, shot and query; None where every task is one example.
    rotate: whether classes are rotated.
    targets: 0, or the channels to be predicted, for regression.
    microbatch_size: tasks computed together. Memory grows with it, and not with
      the number of slots.
    diagnostics: whether `Totals.diagnostics` are summed, which are private.
  """

  learner: learners.Learner
  mechanism: plan_lib.Mechanism
  episode: plan_lib.Episode | None
  rotate: bool = False
  targets: int = 0
  microbatch_size: int = 4
  diagnostics: bool = False


class StepInputs(NamedTuple):
  """What all tasks of one step read.

  Attributes:
    params: what the gradients are taken at.
    key: of the label permutations and rotations; slot i folds i into it.
    inner_key: of the noise of inner steps, where they are noisy; likewise.
    clip: the clip norms of this step, where they adapt.
    layer_key: of random layers, where the network has any; likewise.
  """

  params: Any
  key: jax.Array
  inner_key: jax.Array | None = None
  clip: adaptive.ClipState = ()
  layer_key: jax.Array | None = None


class Tasks(NamedTuple):
  """The tasks of one step, or some of them.

  Attributes:
    images: uint8 or float32 [images, H, W, C], the whole data set or a part.
    rows: int32[slots, way, shot + query], rows of `images`.
    mask: bool[slots], false for slots without a task, or with one that could
      not be filled: they add nothing.
    labels: int32[images], the class of every image, where there are no
      episodes: a slot is one example, way and shot + query are 1. None with
      episodes.
  """

  images: jax.Array
  rows: jax.Array
  mask: jax.Array
  labels: jax.Array | None = None


class Totals(NamedTuple):
  """What a step adds up.

  Attributes:
    gradient: float32[parameters], all arrays in one: a program with an
      operation for each of them takes longer to compile.
    compensation: likewise, what rounding took off `gradient` so far.
    diagnostics: sums over tasks, or none; private.
    norms: what the clip norm adapts to (`adaptive.begin`); private.
  """

  gradient: jax.Array
  compensation: jax.Array
  diagnostics: Diagnostics
  norms: Any

  @property
  def sum(self) -> jax.Array:
    """The sum of the clipped gradients, see `clipping`."""
    return self.gradient + self.compensation


def zeros(
    context: TaskContext,
    params: Any,
    clip: adaptive.ClipState = (),
    *,
    slots: int | None = None,
) -> Totals:
  """What a step adds its tasks to.

  Args:
    context: see `TaskContext`.
    params: what the gradients will be like.
    clip: the clip norms of this step, where they adapt.
    slots: of one device, where several share the tasks out; None for one.
  """
  size = sum(p.size for p in jax.tree.leaves(params))
  total, compensation = (jnp.zeros(size, jnp.float32) for _ in range(2))
  # Regression knows no accuracy.
  names = [n for n in _DIAGNOSTICS if n != "accuracy" or not context.targets]
  diagnostics = {name: jnp.zeros(()) for name in names if context.diagnostics}
  if slots is None:
    norms = adaptive.begin(clip)
  else:
    slots += -slots % context.microbatch_size  # As `add_tasks` pads them.
    norms = adaptive.begin_on_device(clip, slots)
  return Totals(total, compensation, diagnostics, norms)


def add_tasks(
    context: TaskContext,
    inputs: StepInputs,
    totals: Totals,
    tasks: Tasks,
    first: jax.Array | int = 0,
    stride: int = 1,
) -> Totals:
  """Add the clipped gradients of all tasks of a step, or of a part of them.

  Parts give the bits of the whole when each but the last is a multiple of the
  microbatch size: microbatches are added one by one, in the same order. Only
  those that hold tasks are computed.

  Args:
    context: see `TaskContext`.
    inputs: of the whole step.
    totals: from `zeros`, or from the part before.
    tasks: the part; `rows` point into its own `images`.
    first: the slot, of the whole step, of the part's first task.
    stride: how far the slot of a task is from that of the one before.

  Returns:
    The new totals; the diagnostics are sums yet, for `summarise`.
  """
  size = context.microbatch_size
  padding = -tasks.mask.shape[0] % size
  rows = jnp.pad(tasks.rows, ((0, padding), (0, 0), (0, 0)))
  mask = jnp.pad(tasks.mask, (0, padding))

  def add_microbatch(i: jax.Array, totals: Totals) -> Totals:
    start = i * size
    chosen = lax.dynamic_slice_in_dim(rows, start, size)
    real = lax.dynamic_slice_in_dim(mask, start, size)
    slots = first + stride * (start + jnp.arange(size))
    labels = None
    if tasks.labels is not None:
      labels = tasks.labels[chosen[:, 0, 0]]
    clipped, diagnostics = _microbatch(
        context, inputs, slots, tasks.images[chosen], labels
    )
    # Its place among the tasks that this device computes, in this part or not.
    place = start + first // stride
    return _add(totals, clipped, diagnostics, real, place)

  # Up to the last task; the empty microbatches beyond are not computed.
  filled = jnp.max(jnp.where(mask, jnp.arange(mask.shape[0]) + 1, 0))
  count = (filled + size - 1) // size
  return lax.fori_loop(0, count, add_microbatch, totals)


def summarise(diagnostics: Diagnostics, mask: jax.Array) -> Diagnostics:
  """The metrics "private/...": means over the step's tasks, and two counts.

  Args:
    diagnostics: sums over all tasks of the step, or none.
    mask: bool[slots] of all of them.
  """
  if not diagnostics:
    return {}
  count = mask.sum().astype(jnp.float32)
  means = {
      f"private/{name}": total / jnp.maximum(count, 1)
      for name, total in diagnostics.items()
      if name != "non_finite"
  }
  return means | {
      "private/tasks": count,
      "private/non_finite": diagnostics["non_finite"],
  }


def _microbatch(
    context: TaskContext,
    inputs: StepInputs,
    slots: jax.Array,
    images: jax.Array,
    labels: jax.Array | None,
) -> tuple[clipping.Clipped, Diagnostics]:
  """Clipped gradients and diagnostics of some tasks, along a first axis.

  Args:
    context: see `TaskContext`.
    inputs: see `StepInputs`.
    slots: int32[tasks], of the whole step.
    images: [tasks, way, shot + query, H, W, C].
    labels: int32[tasks] without episodes, or None.
  """

  def one(
      slot: jax.Array, images: jax.Array, label: jax.Array | None
  ) -> tuple[clipping.Clipped, Diagnostics]:
    task = _make_task(context, inputs, slot, images, label)
    loss, clipped = _clipped_gradient(context, inputs, slot, task)
    if not context.diagnostics:
      return clipped, {}
    return clipped, _diagnose(context, inputs.params, task, loss, clipped)

  if context.microbatch_size > 1:
    return jax.vmap(one)(slots, images, labels)
  # A batch of one is slower than none: batched products take other ways.
  alone = one(*jax.tree.map(lambda a: a[0], (slots, images, labels)))
  return jax.tree.map(lambda a: a[None], alone)


def _make_task(
    context: TaskContext,
    inputs: StepInputs,
    slot: jax.Array,
    images: jax.Array,
    label: jax.Array | None,
) -> sampling.EpisodeBatch:
  """The task of a slot, of images [way, shot + query, H, W, C]."""
  if context.episode is None:
    assert label is not None  # `Tasks.labels` are given without episodes.
    return sampling.single_example(images[0, 0], label)
  return sampling.make_episode(
      jax.random.fold_in(inputs.key, slot),
      images,
      context.episode,
      rotate=context.rotate,
      targets=context.targets,
  )


def _clipped_gradient(
    context: TaskContext,
    inputs: StepInputs,
    slot: jax.Array,
    task: sampling.EpisodeBatch,
) -> tuple[jax.Array, clipping.Clipped]:
  """The loss of a task, and its gradient within the clip norm."""
  return sections.section(
      sections.LEARNER,
      lambda inputs, slot, task: _gradient(context, inputs, slot, task),
  )(inputs, slot, task)


def _gradient(
    context: TaskContext,
    inputs: StepInputs,
    slot: jax.Array,
    task: sampling.EpisodeBatch,
) -> tuple[jax.Array, clipping.Clipped]:
  mechanism, learner = context.mechanism, context.learner
  if mechanism.noisy_inner_steps:
    # Without random layers: `sample_level_checks`.
    assert inputs.inner_key is not None and inputs.layer_key is None
    loss, clipped = sample_level.query_sum(
        learner,
        mechanism,
        inputs.params,
        task,
        jax.random.fold_in(inputs.inner_key, slot),
    )
  else:
    loss, gradient = task_gradient(learner, inputs, slot, task)
    if mechanism.clip_by == "global":
      gradient = _as_one(gradient)
    bounds = adaptive.bounds(mechanism, inputs.clip)
    clipped = clipping.clip(gradient, bounds, mechanism.clip_by)
  return loss, clipped._replace(gradient=_as_one(clipped.gradient))


def task_gradient(
    learner: learners.Learner,
    inputs: StepInputs,
    slot: jax.Array,
    task: sampling.EpisodeBatch,
) -> tuple[jax.Array, Any]:
  """The loss of a task and its gradient: means over what it draws.

  Args:
    learner: of the step.
    inputs: the parameters, and the key of random layers if there are any.
    slot: of the task.
    task: its examples.
  """
  if inputs.layer_key is None:
    return learner.meta_gradient(inputs.params, task)
  key = jax.random.fold_in(inputs.layer_key, slot)
  draws = learner.model.draws
  if draws == 1:
    return learner.at_task(key).meta_gradient(inputs.params, task)
  # One after another: memory is that of one.
  found = lax.map(
      lambda k: learner.at_task(k).meta_gradient(inputs.params, task),
      jax.random.split(key, draws),
  )
  return jax.tree.map(lambda a: a.mean(0), found)


def _as_one(tree: Any) -> jax.Array:
  """The entries of all arrays: float32[parameters]."""
  return jnp.concatenate([
      leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree)
  ])


def _diagnose(
    context: TaskContext,
    params: Any,
    task: sampling.EpisodeBatch,
    loss: jax.Array,
    clipped: clipping.Clipped,
) -> Diagnostics:
  """What diagnostics add up of one task; private."""
  found = {
      "loss": jnp.where(jnp.isfinite(loss), loss, 0),
      # Of the task, or of its query examples where these are clip units.
      "clipped": clipped.clipped.mean(),
      "norm": clipped.norm.mean(),
      "non_finite": jnp.sum(1.0 - clipped.finite),
  }
  if not context.targets:
    logits = context.learner.predict(params, task.support, task.query.images)
    right = jnp.argmax(logits, -1) == task.query.labels
    found["accuracy"] = right.mean()
  return found


def _add(
    totals: Totals,
    clipped: clipping.Clipped,
    diagnostics: Diagnostics,
    real: jax.Array,
    place: jax.Array,
) -> Totals:
  """Add the tasks of a microbatch that are real: bool[tasks]."""

  def total(values: jax.Array) -> jax.Array:
    shape = real.shape + (1,) * (values.ndim - 1)
    # Chosen, not multiplied: what fills an empty slot may be anything.
    return clipping.sum_units(jnp.where(real.reshape(shape), values, 0))

  gradient, compensation = clipping.compensated_add(
      totals.gradient,
      totals.compensation,
      total(clipped.gradient),
  )
  return Totals(
      gradient,
      compensation,
      jax.tree.map(lambda a, b: a + total(b), totals.diagnostics, diagnostics),
      adaptive.observe(totals.norms, clipped, real, place),
  )
