"""The parts of a private step, as pure functions of its state.

They are the same whether the images lie on one device, on each of a mesh or on
the host (`meta_step`, `sharding`, `streaming`), and so are the bits.
"""

import dataclasses
import functools
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import adaptive
from episodic_dp.private import compute as compute_lib
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import sections
from episodic_dp.private import state as state_lib
from episodic_dp.private import task_sum


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepProgram:
  """What the functions of this module are computed by.

  Attributes:
    release: how tasks, or examples where the plan has no episode, are sampled,
      and what of them is released.
    rows: leaf -> row of the images.
    context: how a task becomes a clipped gradient; its learner is the run's.
    optimizer: an Optax transformation of the noised mean gradient.
    noise_terms: see `Compute`.
  """

  release: plan_lib.Release
  rows: dataset_lib.Rows
  context: task_sum.TaskContext
  optimizer: optax.GradientTransformation
  noise_terms: int = 1

  @property
  def expected_tasks(self) -> float:
    """Tasks of a step, or examples without an episode: a public constant."""
    hierarchy, plan = self.release.hierarchy, self.release.plan
    if plan.episode is None:
      return plan_lib.examples_per_step(hierarchy, plan)
    return plan_lib.tasks_per_step(hierarchy, plan)

  @property
  def expected_clip_units(self) -> float:
    """What the sum is divided by: tasks, or their query examples."""
    if not self.release.mechanism.noisy_inner_steps:
      return self.expected_tasks
    episode = self.release.plan.episode
    assert episode is not None  # Checked: noisy inner steps are of tasks.
    return self.expected_tasks * episode.way * episode.query


def make_program(
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    compute: compute_lib.Compute,
) -> StepProgram:
  """The program of a run; see `make_meta_step`, which has checked it."""
  return StepProgram(
      release=release,
      rows=dataset.rows,
      context=task_sum.TaskContext(
          learner=learner,
          mechanism=release.mechanism,
          episode=release.plan.episode,
          rotate=dataset.rotate,
          targets=dataset.targets,
          microbatch_size=compute.microbatch_size,
          diagnostics=compute.diagnostics,
      ),
      optimizer=optimizer,
      noise_terms=compute.noise_terms,
  )


def traced_one_by_one(
    program: StepProgram,
    state: state_lib.State,
    images: jax.ShapeDtypeStruct,
    labels: jax.ShapeDtypeStruct | None,
) -> tuple[core.ClosedJaxpr, ...]:
  """The parts of a step, traced as if a device computed one task at a time.

  A batch axis is written into every operation of a trace, so that the same
  learner in microbatches of another size would be told from it.

  Args:
    program: see `StepProgram`.
    state: an initial one.
    images: the shape and dtype of all images.
    labels: likewise, or None with episodes.
  """
  context = dataclasses.replace(program.context, microbatch_size=1)
  alone = dataclasses.replace(program, context=context)

  def sample(state: state_lib.State) -> tuple[jax.Array, jax.Array]:
    return draw(alone, state.key, state.step)

  def sum_one(state: state_lib.State, tasks: task_sum.Tasks) -> task_sum.Totals:
    return add(alone, state, begin(alone, state), tasks)

  rows, mask = jax.eval_shape(sample, state)
  like: Any = jax.ShapeDtypeStruct
  shapes: Any = task_sum.Tasks  # Of shapes in place of arrays.
  one = shapes(
      images,
      like((1, *rows.shape[1:]), rows.dtype),
      like((1,), mask.dtype),
      labels,
  )
  summing, totals = jax.make_jaxpr(sum_one, return_shape=True)(state, one)
  return (
      jax.make_jaxpr(sample)(state),
      summing,
      jax.make_jaxpr(functools.partial(finish, alone))(state, totals, mask),
  )


def draw(
    program: StepProgram, key: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Sample the tasks of a step.

  Args:
    program: see `StepProgram`.
    key: the run's secret key.
    step: int32 scalar.

  Returns:
    rows int32[slots, way, shot + query] of the images and mask bool[slots],
    false for slots without a task or with one that could not be filled;
    without an episode a slot is one example, and way and shot + query are 1.
  """
  return sections.section(
      sections.SAMPLER, functools.partial(_draw, program)
  )(key, step)


def _draw(
    program: StepProgram, key: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
  hierarchy, plan = program.release.hierarchy, program.release.plan
  sampling_key = jax.random.fold_in(key, keys.SAMPLING)
  indices, mask = sampling.sample(sampling_key, hierarchy, plan, step)
  if plan.episode is None:
    # Drawn examples first: only their microbatches are computed.
    mask = mask.reshape(-1)
    order = jnp.argsort(~mask, stable=True)
    indices, mask = indices.reshape(-1, 1, 1)[order], mask[order]
  else:
    indices, mask = sampling.task_indices(indices, mask, hierarchy, plan)
  return program.rows(indices), mask


def begin(
    program: StepProgram, state: state_lib.State, slots: int | None = None
) -> task_sum.Totals:
  """The totals without any task; `slots` as in `task_sum.zeros`."""
  return task_sum.zeros(
      program.context, state.params, state.clip, slots=slots
  )


def add(
    program: StepProgram,
    state: state_lib.State,
    totals: task_sum.Totals,
    tasks: task_sum.Tasks,
    first: jax.Array | int = 0,
    stride: int = 1,
) -> task_sum.Totals:
  """Add clipped gradients of tasks; see `task_sum.add_tasks`."""
  learner = program.context.learner
  draws = learner.model.random is not None
  inputs = task_sum.StepInputs(
      params=state.params,
      key=keys.step_key(state.key, keys.AUGMENTATION, state.step),
      inner_key=keys.step_key(state.key, keys.INNER_NOISE, state.step),
      clip=state.clip,
      layer_key=(
          keys.step_key(state.key, keys.LAYERS, state.step) if draws else None
      ),
  )
  context = dataclasses.replace(
      program.context, learner=learner.at_step(state.step)
  )
  return task_sum.add_tasks(context, inputs, totals, tasks, first, stride)


def finish(
    program: StepProgram,
    state: state_lib.State,
    totals: task_sum.Totals,
    mask: jax.Array,
) -> tuple[state_lib.State, state_lib.Metrics]:
  """Add noise to the sum of all tasks, once, and update what adapts.

  Args:
    program: see `StepProgram`.
    state: before the step.
    totals: of all tasks.
    mask: bool[slots], from `draw`.
  """
  metrics = task_sum.summarise(totals.diagnostics, mask)
  mechanism = program.release.mechanism
  stddev = adaptive.stddev(mechanism, state.clip)
  total: Any = totals.sum
  if jnp.size(stddev) > 1:  # Of each array.
    total = _like(state.params, total)
  noised = sections.section(
      sections.NOISE,
      lambda key, total: noise.add_noise(
          key, total, stddev, terms=program.noise_terms
      ),
  )(keys.step_key(state.key, keys.NOISE, state.step), total)
  if isinstance(noised, jax.Array):
    noised = _like(state.params, noised)
  clip = adaptive.update(
      mechanism,
      state.clip,
      adaptive.gather(state.clip, totals.norms),
      keys.step_key(state.key, keys.COUNT, state.step),
      program.expected_tasks,
      terms=program.noise_terms,
  )
  if mechanism.clipping == "private_quantile":
    metrics["clip_norm"] = adaptive.clip_norm(state.clip)
  elif mechanism.clipping == "percentile_window":
    if program.context.diagnostics:
      metrics["private/clip_norm"] = adaptive.clip_norm(state.clip)
  mean = jax.tree.map(
      lambda g, p: (g / program.expected_clip_units).astype(p.dtype),
      noised,
      state.params,
  )
  updates, opt_state = sections.section(
      sections.OPTIMIZER, program.optimizer.update
  )(mean, state.opt_state, state.params)
  step = state.step + 1
  metrics |= {"step": step, "update_norm": optax.tree.norm(updates)}
  params = optax.apply_updates(state.params, updates)
  return (
      state_lib.State(params, opt_state, step, state.key, clip),
      metrics,
  )


def take(
    program: StepProgram,
    state: state_lib.State,
    images: jax.Array,
    labels: jax.Array | None,
) -> tuple[state_lib.State, state_lib.Metrics]:
  """One whole step of data that lie on one device.

  Args:
    program: see `StepProgram`.
    state: before the step.
    images: of the data set.
    labels: int32[images] without an episode, else None.
  """
  rows, mask = draw(program, state.key, state.step)
  tasks = task_sum.Tasks(images, rows, mask, labels)
  totals = add(program, state, begin(program, state), tasks)
  return finish(program, state, totals, mask)


def _like(params: Any, flat: jax.Array) -> Any:
  """The tree of float32 arrays like the parameters, of all their entries."""
  leaves, treedef = jax.tree.flatten(params)
  ends = np.cumsum([leaf.size for leaf in leaves])
  parts = jnp.split(flat, ends[:-1])
  return jax.tree.unflatten(
      treedef,
      [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves)],
  )
