"""One private meta-step: sample, clip each task, sum, noise once, update.

With a plan without an episode the tasks are single examples, and the step is
DP-SGD. Read "examples" for "tasks" below.

[M] "Meta-Learning with Differential Privacy" (DP-MAML), Algorithm 1, with the
sum divided by the expected, public number of tasks instead of the sampled one.

Formal guarantees
-----------------
The released vector of a step is the sum over the sampled tasks of gradients
clipped to C, plus N(0, (z C)^2 I). `accounting` accounts for this release with
the same hierarchy, plan and mechanism. With an adaptive clip norm the release
is that sum and a noised count, which together cost the same (`quantile` names
the rule without a guarantee). Everything else that a step returns is a function
of released vectors and public constants, except `State.key`, a
`quantile.Window`, and the entries "private/..." of `Compute(diagnostics=True)`.
The guarantee holds against anyone who does not know `State.key`.

Each task is clipped separately before anything is added. So one task added,
removed or replaced moves the sum by at most `clipping.sensitivity`, up to the
rounding of the sum that is stated there. With noisy inner steps the clip units
are the query examples of the tasks; see `sample_level`.

Several devices share the tasks. The sum over the devices is that of one device,
up to the rounding of float32 additions in another order: every task is clipped
on the device that computes it, before anything is added. Noise is drawn
outside, once, from the step's key; it does not depend on the devices.

`jax.grad` inside `jax.shard_map` sums a gradient over the devices if its
parameters are the same on all of them. Such sums would silently be clipped
instead of tasks. Two things prevent it. Parameters are cast to differ between
devices (`varying`). The rewriting that inserts these sums (`check_vma`) is off,
since a learner may differentiate by constants, such as a head that starts at
zero, which no cast outside reaches.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
from jax import flatten_util
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.models.model import Params
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import quantile
from episodic_dp.private import sample_level
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.sampling import episodes

Diagnostics = dict[str, jax.Array]
_DIAGNOSTICS = ("loss", "clipped", "norm", "non_finite")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
  """Settings of the computation; none changes the guarantee.

  Attributes:
    microbatch_size: number of tasks that a device computes together, with their
      gradients in its memory at once; by default that of `backends.choices`.
    mesh: devices that share the tasks of a step, along its one axis `tasks`
      (`training.make_mesh`); "all" for all that JAX sees, where every core of a
      CPU is one; None for one. The sampled tasks and the noise are the same
      bits on any mesh, the parameters up to rounding.
    diagnostics: whether to return "private/..." metrics too. They are outside
      the guarantee: keep them apart and unpublished.
    noise_terms: number of independent normals whose sum, divided by the root of
      their number, is the noise on a released number. More are as normal as
      one, and harder to invert from the last bits
      (docs/decisions/floating_point.md); others take 4.
  """

  microbatch_size: int = dataclasses.field(
      default_factory=lambda: backends.choices().microbatch_size
  )
  mesh: jax.sharding.Mesh | Literal["all"] | None = "all"
  diagnostics: bool = False
  noise_terms: int = 1

  def device_mesh(self) -> jax.sharding.Mesh | None:
    """Return the mesh of the available devices; None for one device.

    Warns once if cores stay idle because JAX started without them.
    """
    if not isinstance(self.mesh, str):
      return self.mesh
    backends.warn_of_idle_cores()
    devices = jax.devices()
    if len(devices) == 1:
      return None
    return sharding.make_mesh(devices)


# The parts of a step, as pure functions of its state --------------------------


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a step's functions.

  Attributes:
    learner: of the run.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: its rows, rotations and targets are read here; its images and
      labels are arguments, of the same shapes.
    release: sampling plan and mechanism.
    compute: see `Compute`. Memory grows with its `microbatch_size`, not with
      the number of slots.
  """

  learner: learners.Learner
  optimizer: optax.GradientTransformation
  dataset: dataset_lib.Dataset
  release: plan_lib.Release
  compute: Compute

  @property
  def noise_multiplier(self) -> Any:
    """Return the noise multiplier as an argument of a step: NumPy float32."""
    return np.float32(self.release.mechanism.gradient_noise_multiplier)


def expected_clip_units(release: plan_lib.Release) -> float:
  """Return the public divisor of a sum: tasks, or their query examples."""
  episode = release.plan.episode
  if episode is None or not release.mechanism.noisy_inner_steps:
    return release.drawn_per_step
  return release.drawn_per_step * episode.way * episode.query


class StepTasks(NamedTuple):
  """The tasks of one step, or some of them.

  Attributes:
    images: uint8 or float32 [images, H, W, C], the whole data set or a part.
    rows: int32[slots, way, shot + query], rows of `images`.
    mask: bool[slots], false for slots without a task or with an incomplete one:
      they add nothing.
    labels: int32[images], the class of every image, if the plan has no episode:
      a slot is then one example, and way and shot + query are 1. None with
      episodes.
  """

  images: jax.Array
  rows: jax.Array
  mask: jax.Array
  labels: jax.Array | None = None


class Totals(NamedTuple):
  """The sums of a step.

  Attributes:
    gradient: float32[parameters], all arrays in one: a program with one
      operation for each array takes longer to compile.
    compensation: float32[parameters], the rounding errors of `gradient` so far.
    diagnostics: sums over tasks, or none; private.
    norms: input of the adaptive clip norm: counts float32[groups], for a window
      the norms float32[slots, groups], and () for a fixed norm; private.
  """

  gradient: jax.Array
  compensation: jax.Array
  diagnostics: Diagnostics
  norms: Any

  @property
  def sum(self) -> jax.Array:
    """Return the sum of the clipped gradients; see `clipping`."""
    return self.gradient + self.compensation


def draw(
    settings: Settings, key: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Sample the tasks of a step.

  Args:
    settings: see `Settings`.
    key: the run's secret key.
    step: int32 scalar.

  Returns:
    rows int32[slots, way, shot + query] of the images and mask bool[slots],
    false for slots without a task or with an incomplete one. Without an episode
    a slot is one example, and way and shot + query are 1.
  """
  hierarchy, plan = settings.release.hierarchy, settings.release.plan
  sampling_key = jax.random.fold_in(key, keys.SAMPLING)
  indices, mask = sampling.sample(sampling_key, hierarchy, plan, step)
  if plan.episode is None:
    # Sampled examples first: only their microbatches are computed.
    mask = mask.reshape(-1)
    order = jnp.argsort(~mask, stable=True)
    indices, mask = indices.reshape(-1, 1, 1)[order], mask[order]
  else:
    indices, mask = sampling.task_indices(indices, mask, hierarchy, plan)
  return settings.dataset.rows(indices), mask


def begin(settings: Settings, state: state_lib.State, slots: int) -> Totals:
  """Return totals without any task.

  Args:
    settings: see `Settings`.
    state: the state before the step.
    slots: number of slots of the whole step.
  """
  size = sum(p.size for p in jax.tree.leaves(state.params))
  zeros = jnp.zeros(size, jnp.float32)
  diagnostics: Diagnostics = {}
  if settings.compute.diagnostics:
    diagnostics = {name: jnp.zeros(()) for name in _DIAGNOSTICS}
  norms: Any = ()
  if settings.release.mechanism.clipping == "private_quantile":
    norms = jnp.zeros_like(state.bounds)
  elif settings.release.mechanism.clipping == "percentile_window":
    norms = jnp.zeros((slots, state.bounds.size))
  return Totals(zeros, zeros, diagnostics, norms)


def add(
    settings: Settings,
    state: state_lib.State,
    totals: Totals,
    tasks: StepTasks,
    first: jax.Array | int = 0,
    stride: int = 1,
) -> Totals:
  """Add the clipped gradients of all tasks of a step, or of a part of them.

  Parts give the bits of the whole if each but the last is a multiple of the
  microbatch size: microbatches are added one by one, in the same order. Only
  microbatches that hold tasks are computed.

  Args:
    settings: see `Settings`.
    state: the state before the step.
    totals: from `begin`, or from the previous part.
    tasks: the part; `rows` refer to its own `images`.
    first: slot of the part's first task in the whole step.
    stride: distance between the slots of successive tasks.

  Returns:
    The new totals; the diagnostics are still sums, for `summarise`.
  """
  learner = settings.learner.at_step(state.step)
  settings = dataclasses.replace(settings, learner=learner)
  size = settings.compute.microbatch_size
  padding = -len(tasks.mask) % size
  rows = jnp.pad(tasks.rows, ((0, padding), (0, 0), (0, 0)))
  mask = jnp.pad(tasks.mask, (0, padding))
  augmentation = keys.step_key(state.key, keys.AUGMENTATION, state.step)
  layers = keys.step_key(state.key, keys.LAYERS, state.step)
  inner = keys.step_key(state.key, keys.INNER_NOISE, state.step)
  episode, data = settings.release.plan.episode, settings.dataset

  def one(
      slot: jax.Array, images: jax.Array, label: Any
  ) -> tuple[clipping.Clipped, Diagnostics]:
    own = functools.partial(jax.random.fold_in, data=slot)
    if episode is None:
      task = episodes.single_example(images[0, 0], label)
    else:
      task = sampling.make_episode(
          own(augmentation), images, episode,
          rotate=data.rotate, targets=data.targets,
      )
    return _clipped_gradient(settings, state, task, own(layers), own(inner))

  def add_microbatch(i: jax.Array, totals: Totals) -> Totals:
    start = i * size
    chosen = lax.dynamic_slice_in_dim(rows, start, size)
    real = lax.dynamic_slice_in_dim(mask, start, size)
    slots = first + stride * (start + jnp.arange(size))
    labels = None
    if tasks.labels is not None:
      labels = tasks.labels[chosen[:, 0, 0]]
    batch = (slots, tasks.images[chosen], labels)
    if size > 1:
      clipped, diagnostics = jax.vmap(one)(*batch)
    else:
      # A batch of one is slower than none: batched products use other kernels.
      alone = one(*jax.tree.map(lambda a: a[0], batch))
      clipped, diagnostics = episodes.batch_of(alone)
    return _added(settings, totals, clipped, diagnostics, real, slots)

  # Up to the last task: the empty microbatches beyond are not computed.
  filled = jnp.max(jnp.where(mask, jnp.arange(len(mask)) + 1, 0))
  return lax.fori_loop(0, (filled + size - 1) // size, add_microbatch, totals)


def _clipped_gradient(
    settings: Settings,
    state: state_lib.State,
    task: sampling.EpisodeBatch,
    layer_key: jax.Array,
    inner_key: jax.Array,
) -> tuple[clipping.Clipped, Diagnostics]:
  """Return a task's gradient within the clip norm, and its diagnostics."""
  mechanism, learner = settings.release.mechanism, settings.learner
  if mechanism.noisy_inner_steps:
    # `checks.check` has excluded random layers.
    loss, clipped = sample_level.query_sum(
        learner, mechanism, state.params, task, inner_key, state.bounds
    )
  else:
    loss, gradient = task_gradient(learner, state.params, task, layer_key)
    if mechanism.clip_by == "global":
      gradient = _as_one(gradient)
    clipped = clipping.clip(gradient, state.bounds, mechanism.clip_by)
  clipped = clipped._replace(gradient=_as_one(clipped.gradient))
  if not settings.compute.diagnostics:
    return clipped, {}
  # Of the task, or of its query examples if these are the clip units.
  return clipped, {
      "loss": jnp.where(jnp.isfinite(loss), loss, 0),
      "clipped": clipped.clipped.mean(),
      "norm": clipped.norm.mean(),
      "non_finite": jnp.sum(1.0 - clipped.finite.astype(jnp.float32)),
  }


def task_gradient(
    learner: learners.Learner,
    params: Params,
    task: sampling.EpisodeBatch,
    layer_key: jax.Array,
) -> tuple[jax.Array, Params]:
  """Return the loss and gradient of a task: means over its random numbers.

  Args:
    learner: the learner of the step.
    params: the parameters to differentiate by.
    task: support and query examples.
    layer_key: this task's key for random layers; unused without them.
  """
  if learner.model.random is None:
    return learner.meta_gradient(params, task)
  multiplicity = learner.model.multiplicity
  if multiplicity == 1:
    return learner.at_task(layer_key).meta_gradient(params, task)
  # One after another, so that memory is that of one.
  found = lax.map(
      lambda k: learner.at_task(k).meta_gradient(params, task),
      jax.random.split(layer_key, multiplicity),
  )
  return jax.tree.map(lambda a: a.mean(0), found)


def _as_one(tree: Params) -> jax.Array:
  """Return the entries of all arrays: [parameters]."""
  return flatten_util.ravel_pytree(tree)[0]


def _added(
    settings: Settings,
    totals: Totals,
    clipped: clipping.Clipped,
    diagnostics: Diagnostics,
    real: jax.Array,
    slots: jax.Array,
) -> Totals:
  """Add the tasks of a microbatch where `real` (bool[tasks]) is true."""

  def total(values: jax.Array) -> jax.Array:
    shape = real.shape + (1,) * (values.ndim - 1)
    # Selected, not multiplied: an empty slot may hold any value.
    return clipping.sum_units(jnp.where(real.reshape(shape), values, 0))

  gradient, compensation = clipping.compensated_add(
      totals.gradient,
      totals.compensation,
      total(clipped.gradient),
  )
  norms = totals.norms
  if settings.release.mechanism.clipping == "private_quantile":
    norms = norms + quantile.count_within(clipped, real)
  elif settings.release.mechanism.clipping == "percentile_window":
    found = jnp.where(clipped.finite[:, None], clipped.norms, -1.0)
    norms = norms.at[slots].set(found, mode="drop")
  return Totals(
      gradient,
      compensation,
      jax.tree.map(lambda a, b: a + total(b), totals.diagnostics, diagnostics),
      norms,
  )


def summarise(diagnostics: Diagnostics, mask: jax.Array) -> Diagnostics:
  """Return the metrics "private/...": means over the tasks, and two counts.

  Args:
    diagnostics: sums over all tasks of the step, or none.
    mask: bool[slots] of the step.
  """
  if not diagnostics:
    return {}
  count = mask.sum().astype(jnp.float32)
  metrics = {}
  for name, total in diagnostics.items():
    if name != "non_finite":
      metrics[f"private/{name}"] = total / jnp.maximum(count, 1)
  metrics["private/tasks"] = count
  metrics["private/non_finite"] = diagnostics["non_finite"]
  return metrics


def finish(
    settings: Settings,
    state: state_lib.State,
    multiplier: jax.Array,
    totals: Totals,
    mask: jax.Array,
) -> tuple[state_lib.State, state_lib.Metrics]:
  """Add noise to the sum of all tasks, once, and update what adapts.

  Args:
    settings: see `Settings`.
    state: the state before the step.
    multiplier: `Settings.noise_multiplier`, an argument of the program.
    totals: the totals of all tasks.
    mask: bool[slots], from `draw`.
  """
  metrics = summarise(totals.diagnostics, mask)
  mechanism, bounds = settings.release.mechanism, state.bounds
  clip = state.clip
  floats = jax.tree.map(lambda p: p.astype(jnp.float32), state.params)
  # Without noise too: one program, compiled once, serves both.
  noised = noise.add_noise(
      keys.step_key(state.key, keys.NOISE, state.step),
      flatten_util.ravel_pytree(floats)[1](totals.sum),
      quantile.stddev(multiplier, bounds),
      terms=settings.compute.noise_terms,
  )
  clip_norm = jnp.sqrt(jnp.sum(jnp.square(bounds)))
  if mechanism.clipping == "private_quantile":
    metrics["clip_norm"] = clip_norm
    clip = quantile.update(
        mechanism,
        bounds,
        totals.norms,
        keys.step_key(state.key, keys.COUNT, state.step),
        settings.release.drawn_per_step,
        terms=settings.compute.noise_terms,
    )
  elif isinstance(clip, quantile.Window):
    norms = jnp.where(mask[:, None], totals.norms, -1.0)
    clip = quantile.push(mechanism, clip, norms)
    if settings.compute.diagnostics:
      metrics["private/clip_norm"] = clip_norm
  mean = jax.tree.map(
      lambda g, p: (g / expected_clip_units(settings.release)).astype(p.dtype),
      noised,
      state.params,
  )
  updates, opt_state = settings.optimizer.update(
      mean, state.opt_state, state.params
  )
  step = state.step + 1
  metrics |= {"step": step, "update_norm": optax.tree.norm(updates)}
  params = optax.apply_updates(state.params, updates)
  return state_lib.State(params, opt_state, step, state.key, clip), metrics


def take(
    settings: Settings,
    state: state_lib.State,
    multiplier: jax.Array,
    images: jax.Array,
    labels: jax.Array | None,
    *,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[state_lib.State, state_lib.Metrics]:
  """Take one whole step on data that are on the devices.

  Args:
    settings: see `Settings`.
    state: the state before the step.
    multiplier: see `finish`.
    images: images of the data set.
    labels: int32[images] without an episode, else None.
    mesh: the devices; None for one.
  """
  rows, mask = draw(settings, state.key, state.step)
  tasks = StepTasks(images, rows, mask, labels)
  totals = sum_tasks(settings, mesh, state, tasks)
  return finish(settings, state, multiplier, totals, mask)


# The devices ------------------------------------------------------------------


def sum_tasks(
    settings: Settings,
    mesh: jax.sharding.Mesh | None,
    state: state_lib.State,
    tasks: StepTasks,
) -> Totals:
  """Return the totals of all tasks, computed by all devices of a mesh.

  Slot i belongs to device i modulo their number. Sampled tasks come first, so
  the numbers of tasks of two devices differ by at most one.
  """
  if mesh is None:
    return add(settings, state, begin(settings, state, tasks.mask.size), tasks)
  devices = mesh.shape[sharding.AXIS]

  def share(array: jax.Array) -> jax.Array:
    padding = -len(array) % devices
    array = jnp.pad(array, ((0, padding),) + ((0, 0),) * (array.ndim - 1))
    shares = array.reshape(-1, devices, *array.shape[1:])
    device = lax.axis_index(sharding.AXIS)
    return lax.dynamic_index_in_dim(shares, device, axis=1, keepdims=False)

  def sum_of_device(state: state_lib.State, tasks: StepTasks) -> Totals:
    totals = varying(begin(settings, state, tasks.mask.size))
    own = tasks._replace(rows=share(tasks.rows), mask=share(tasks.mask))
    device = lax.axis_index(sharding.AXIS)
    totals = add(settings, varying(state), totals, own, device, devices)
    return summed(totals)

  whole = sharding.REPLICATED
  return on_devices(mesh, sum_of_device, whole, whole, out=whole)(state, tasks)


def on_devices(
    mesh: jax.sharding.Mesh,
    function: Callable[..., Any],
    *specs: jax.P,
    out: jax.P,
) -> Callable[..., Any]:
  """Map a function over the devices of a mesh; see the module's text."""
  return jax.shard_map(
      function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False
  )


def summed(totals: Totals) -> Totals:
  """Return the sum of the devices' totals."""
  # As one array: one all-reduce instead of one for each array.
  flat, restore = flatten_util.ravel_pytree(totals)
  return restore(lax.psum(flat, sharding.AXIS))


def varying(tree: clipping.Tree) -> clipping.Tree:
  """Cast the tree to differ between devices; see the module's text."""
  return jax.tree.map(
      lambda a: lax.pcast(a, sharding.AXIS, to="varying"), tree
  )
