"""The private step as users call it: on the devices, or fed from the host.

`step` has the computation and its formal guarantees.
"""

from collections.abc import Callable
from concurrent import futures
import functools
import math
from typing import Any, Protocol

import jax
import numpy as np
import optax

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import checks
from episodic_dp.private import keys
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib
from episodic_dp.sampling import episodes


class Step(Protocol):
  """One step of a run; it is compiled on its first call."""

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    """Take one step; the state is donated."""

  def compile(self, state: state_lib.State) -> None:
    """Compile the step for states like this one, without taking it.

    Processes that compile at different speeds do this before the first step: on
    a CPU its collectives wait for 30 s and then fail.
    """


def make_meta_step(
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    *,
    compute: step_lib.Compute | None = None,
) -> Step:
  """Return the function that takes one step, compiled; it donates its state.

  With the data on the device a step is one call. With data on the host
  (`dataset.resident` is false) the examples of the next step are gathered while
  this one is computed, with the same result up to rounding; see `_Feed`.

  Args:
    learner: see `learners.Learner`; the `meta_gradient` of a task is clipped,
      and the learner of step i is `at_step(i)`.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: the images, kept on the device unless `resident` is false, and the
      tree of their units.
    release: sampling plan and mechanism, for data with the sizes of
      `dataset.hierarchy`. The clip unit is the task. It is the example if inner
      steps are noisy (see `sample_level`) or the plan has no episode. Without
      an episode, examples are sampled and clipped singly (DP-SGD), the learner
      adapts to nothing (`learners.Supervised`), and `dataset.labels` (int32
      [rows]) are the classes.
    compute: settings of the computation; None for `Compute()`.

  Returns:
    state -> (state, metrics). Metrics: "step" (int32, steps done) and
    "update_norm" (float32, l2 norm of the optimizer's update), both functions
    of released quantities, and with "private_quantile" "clip_norm" (float32,
    that of the step). With diagnostics also "private/loss" (on queries),
    "private/clipped" (share of the tasks), "private/norm" (mean raw norm),
    "private/tasks" and "private/non_finite" (counts), and with
    "percentile_window" "private/clip_norm".

  Raises:
    RunError: JAX_ENABLE_X64 is set.
    plan.PlanError: plan, data, learner or mechanism contradict one another.
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
  # Not a default argument: importing a module must not request a device.
  compute = compute or step_lib.Compute()
  backends.check_types()
  checks.check(learner, dataset, release)
  settings = step_lib.Settings(learner, optimizer, dataset, release, compute)
  mesh = compute.device_mesh()
  if dataset.resident:
    return _Resident(settings, dataset, mesh)
  return _Feed(settings, dataset, mesh)


class _Resident:
  """A step on data that are on one device, or on every device of a mesh.

  A state that is still on one device, such as the first one, is replicated. If
  the images do not fit, XLA reports it: keep them on the host with
  `ArrayDataset(resident=False)`.
  """

  def __init__(
      self,
      settings: step_lib.Settings,
      dataset: dataset_lib.Dataset,
      mesh: jax.sharding.Mesh | None,
  ):
    update = functools.partial(step_lib.take, settings, mesh=mesh)
    place: Callable[[Any], Any] = jax.device_put
    options = {}
    if mesh is not None:
      place = functools.partial(sharding.replicate, mesh)
      options["out_shardings"] = sharding.replicated(mesh)
    self._mesh = mesh
    self._update = backends.jit(update, donate_argnums=0, **options)
    self._inside = jax.jit(update)
    self._compiled: Any = None
    labels = None
    if settings.release.plan.episode is None:
      labels = place(np.asarray(dataset.labels, np.int32))
    images = dataset.images
    if jax.default_backend() == "cpu":
      images = dataset_lib.shareable(images)
    # Arguments of the step, not constants that are compiled in.
    self._data = (
        place(settings.noise_multiplier),
        place(images),
        labels,
    )

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    if isinstance(state.step, jax.core.Tracer):  # Within another program.
      return self._inside(state, *self._data)
    if self._mesh is not None:
      state = sharding.placed_state(self._mesh, state)
    return (self._compiled or self._update)(state, *self._data)

  def compile(self, state: state_lib.State) -> None:
    """See `Step`."""
    if self._mesh is not None:
      state = sharding.replicate(self._mesh, state)
    # Later calls use this program: `jit` would compile again.
    self._compiled = self._update.lower(state, *self._data).compile()


# Data on the host -------------------------------------------------------------

BLOCK_BYTES = 2**26
"""Bytes of images that are copied to the devices at once.

At least one microbatch for each device. About three such blocks are in memory,
one of them on the host.
"""

# The sample of a step on the host: rows int32[slots, way, shot + query], mask
# bool[slots] and the number of slots up to the last task; and its next block.
_Fetched = tuple[np.ndarray, np.ndarray, int, step_lib.StepTasks]


class _Feed:
  """A step on images that stay on the host; devices get the sampled examples.

  The sample of a step is a pure function of the secret key and the step's
  number, so step s + 1 can be sampled before step s is computed. A thread
  gathers its images from the array, which may be a mapped file larger than
  all memory, while the device computes step s. Tasks are copied in blocks of
  a fixed shape, and only blocks that hold tasks are copied. Several devices
  share a block, and every process gathers for its own devices.

  The parts of a step are those of data on the same devices, in the same
  order. The samples and the noise are the same bits, and so are the
  parameters, unless a compiler rounds differently in another program.

  The sampled rows are as secret as the key, and stay in this process. The
  guarantee does not cover an observer of the machine while it runs, of its
  memory or of the parts of a mapped file that it reads, nor one who times its
  steps.

  Any state may be given at any time. The sample and first block of the
  following step are prefetched, and recognised by the state's arrays. For
  another state, as after a restart, they are fetched on demand.
  """

  def __init__(
      self,
      settings: step_lib.Settings,
      dataset: dataset_lib.Dataset,
      mesh: jax.sharding.Mesh | None,
  ):
    """Describe the parts of a step; they are compiled on their first call.

    Args:
      settings: see `step`.
      dataset: images [rows, H, W, C], in memory or mapped, and their labels if
        the plan has no episode.
      mesh: the devices; None for one.
    """
    self._mesh = mesh or sharding.make_mesh(jax.local_devices()[:1])
    self._images = dataset.images
    self._labels: np.ndarray | None = None
    if settings.release.plan.episode is None:
      self._labels = dataset.labels
    self._multiplier = settings.noise_multiplier
    self._compile_when_called(settings)
    key = jax.random.key(0, impl=keys.IMPLEMENTATION)
    rows, _ = jax.eval_shape(self._draw, key, np.int32(0))
    self._slots, *self._task = rows.shape
    # For all devices: the tasks of a microbatch, and the bytes of their images.
    microbatch = settings.compute.microbatch_size
    together = microbatch * self._mesh.size
    size = together * math.prod(self._task) * self._images[0].nbytes
    fitting = max(1, BLOCK_BYTES // size)
    self._size = microbatch * min(fitting, -(-self._slots // together))
    # One thread, so that blocks are gathered in the order of their use.
    self._thread = futures.ThreadPoolExecutor(1, "gather")
    self._next: (
        tuple[jax.Array, jax.Array, futures.Future[_Fetched]] | None
    ) = None

  def _compile_when_called(self, settings: step_lib.Settings) -> None:
    """Make the programs of a step; the devices' totals have a first axis."""
    mesh = self._mesh
    whole, parts = sharding.replicated(mesh), sharding.in_parts(mesh)

    def begin(state: state_lib.State) -> step_lib.Totals:
      return episodes.batch_of(step_lib.begin(settings, state, self._slots))

    def add(
        state: state_lib.State,
        totals: step_lib.Totals,
        tasks: step_lib.StepTasks,
        first: jax.Array,
    ) -> step_lib.Totals:
      slot = jax.lax.axis_index(sharding.AXIS) + mesh.size * first
      own = jax.tree.map(lambda a: a[0], totals)
      own = step_lib.add(
          settings, step_lib.varying(state), own, tasks, slot, mesh.size
      )
      return episodes.batch_of(own)

    def finish(
        state: state_lib.State,
        multiplier: jax.Array,
        totals: step_lib.Totals,
        mask: jax.Array,
    ) -> tuple[state_lib.State, state_lib.Metrics]:
      total = jax.tree.map(lambda a: a.sum(axis=0), totals)
      return step_lib.finish(settings, state, multiplier, total, mask)

    self._draw = backends.jit(
        functools.partial(step_lib.draw, settings),
        in_shardings=whole,
        out_shardings=whole,
    )
    self._begin = backends.jit(
        step_lib.on_devices(
            mesh, begin, sharding.REPLICATED, out=sharding.PARTS
        ),
        in_shardings=whole,
        out_shardings=parts,
    )
    self._add = backends.jit(
        step_lib.on_devices(
            mesh,
            add,
            sharding.REPLICATED,
            sharding.PARTS,
            sharding.PARTS,
            sharding.REPLICATED,
            out=sharding.PARTS,
        ),
        in_shardings=(whole, parts, parts, whole),
        out_shardings=parts,
        donate_argnums=1,
    )
    self._finish = backends.jit(
        finish,
        in_shardings=(whole, whole, parts, whole),
        out_shardings=whole,
        donate_argnums=0,
    )

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    """Take one step; the state is donated, unless its images are not read."""
    state = sharding.placed_state(self._mesh, state)
    key, number = state.key, state.step
    prepared, self._next = self._next, None
    if prepared and prepared[0] is key and prepared[1] is number:
      waiting = prepared[2]
    else:
      waiting = self._ahead(key, number)
    totals, first, more = self._begin(state), 0, True
    while more:
      rows, mask, filled, tasks = waiting.result()
      # Of the device that has the most.
      more = first + self._size < -(-filled // self._mesh.size)
      if more:
        waiting = self._thread.submit(
            self._gather, rows, mask, filled, first + self._size
        )
        # At most one block waits on the device behind the one in computation.
        # Before the device is given this block, or the sample would queue
        # behind.
        jax.block_until_ready(totals)
      else:
        # Before the device is given this block, or the draw would queue behind.
        waiting = self._ahead(key, number + 1)
      totals = self._add(state, totals, tasks, np.int32(first))
      first += self._size
    state, metrics = self._finish(state, self._multiplier, totals, mask)
    self._next = (state.key, state.step, waiting)
    return state, metrics

  def compile(self, state: state_lib.State) -> None:
    """Compile as in `Step`; compute the next step's first block."""
    state = sharding.placed_state(self._mesh, state)
    _, mask, _, tasks = self._ahead(state.key, state.step).result()
    totals = self._add(state, self._begin(state), tasks, np.int32(0))
    # Not called: only a call waits for other processes.
    self._finish = self._finish.lower(
        state, self._multiplier, totals, mask
    ).compile()

  def _ahead(
      self, key: jax.Array, number: jax.Array
  ) -> futures.Future[_Fetched]:
    """Start sampling on the device; the thread waits for it and gathers."""
    drawn = self._draw(key, number)

    def fetch() -> _Fetched:
      rows, mask = map(np.asarray, drawn)
      filled = int(np.max(np.flatnonzero(mask) + 1, initial=0))
      return self._gather(rows, mask, filled, 0)

    return self._thread.submit(fetch)

  def _gather(
      self, rows: np.ndarray, mask: np.ndarray, filled: int, first: int
  ) -> _Fetched:
    """Return the sample and its block from task `first` of each device on."""
    size, devices = self._size, self._mesh.size
    total = size * math.prod(self._task)
    places = np.arange(total, dtype=np.int32).reshape(size, *self._task)

    def of_device(device: int) -> step_lib.StepTasks:
      begin = device + devices * first
      end = begin + devices * size
      own = rows[begin : min(end, filled) : devices].reshape(-1)
      images = np.zeros((total, *self._images.shape[1:]), self._images.dtype)
      # Clipped like the gather on a device; "clip" also fills without a copy.
      np.take(self._images, own, axis=0, out=images[: own.size], mode="clip")
      real = mask[begin:end:devices]
      labels = None
      if self._labels is not None:
        labels = self._labels[own].astype(np.int32)
        labels = np.pad(labels, (0, total - own.size))
      parts: Any = (images, places, np.pad(real, (0, size - real.size)), labels)
      return step_lib.StepTasks(*parts)

    return rows, mask, filled, sharding.parts(self._mesh, of_device)
