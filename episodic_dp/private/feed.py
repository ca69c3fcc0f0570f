"""Steps of data that stay on the host: devices get only the drawn examples.

The sample of a step is a pure function of the secret key and the step's number,
so that step s + 1 is drawn before step s computes. A thread gathers its images
out of the array, which may be a mapped file larger than all memory, while the
device is busy with step s. Tasks go over in blocks of a fixed shape, and of a
step's blocks only those that hold tasks. Several devices share a block out, and
every process gathers for its own devices.

The parts of a step are those of data on the same devices, in the same order:
the samples and the noise are the same bits, and so are the parameters except
where a compiler rounds otherwise in another program.

The drawn rows are as secret as the key: they stay in this process and occur in
no message. An observer of the machine itself while it runs, of its memory or of
the parts of a mapped file that it reads, is outside the guarantee, and so is
one who times its steps.
"""

from concurrent import futures
import functools
import math
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp import errors
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import keys
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib


class _Draw(NamedTuple):
  """The draw of a step, on the host.

  Attributes:
    rows: int32[slots, way, shot + query].
    mask: bool[slots].
    filled: slots up to the last task.
  """

  rows: np.ndarray
  mask: np.ndarray
  filled: int


class Feed:
  """A step of images on the host: state -> (state, metrics).

  Any state may be given at any time. The draw and the first block of the step
  that follows the last one are prefetched, and recognised by its arrays; those
  of any other, as after a restart, are fetched when it is asked for.
  """

  def __init__(
      self,
      program: step_lib.Program,
      dataset: dataset_lib.Dataset,
      mesh: jax.sharding.Mesh | None,
      block_bytes: int,
  ):
    """Describe the parts of a step, compiled when they are first called.

    Args:
      program: see `step`.
      dataset: images [rows, H, W, C], in memory or mapped, and their labels
        where there are no episodes.
      mesh: the devices; None for one.
      block_bytes: bytes of images in a block, unless a microbatch of each
        device is more.
    """
    self._mesh = mesh or sharding.make_mesh(jax.local_devices()[:1])
    self._images = dataset.images
    self._labels = dataset.labels if program.episode is None else None
    self._multiplier = program.noise_multiplier
    self._program = program
    draw = functools.partial(step_lib.draw, program)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=keys.IMPLEMENTATION))
    number = jax.ShapeDtypeStruct((), jnp.int32)
    rows, _ = jax.eval_shape(draw, key, number)
    slots, *self._task = rows.shape
    one = math.prod((*self._task, *self._images.shape[1:]))
    one *= self._images.dtype.itemsize * self._mesh.size
    size = program.microbatch_size
    most = -(-slots // (size * self._mesh.size))
    self._size = size * min(max(1, block_bytes // (one * size)), most)
    self._define(program, draw, slots)
    # One thread: gathers follow one another in the order they are used in.
    self._thread = futures.ThreadPoolExecutor(1, "gather")
    self._next: tuple[Any, Any, futures.Future[Any]] | None = None

  def _define(self, program: step_lib.Program, draw: Any, slots: int) -> None:
    """Make the programs of a step; the devices' totals have a first axis."""
    mesh, axis = self._mesh, sharding.AXIS
    whole, parts = sharding.replicated(mesh), sharding.in_parts(mesh)
    replicated, in_parts = sharding.REPLICATED, sharding.PARTS

    def begin(state: Any) -> Any:
      totals = step_lib.begin(program, state, slots)
      return jax.tree.map(lambda a: a[None], totals)

    def add(state: Any, totals: Any, tasks: Any, first: Any) -> Any:
      totals = jax.tree.map(lambda a: a[0], totals)
      slot = jax.lax.axis_index(axis) + mesh.size * first
      totals = step_lib.add(
          program, step_lib.varying(state), totals, tasks, slot, mesh.size
      )
      return jax.tree.map(lambda a: a[None], totals)

    def total(totals: Any) -> Any:
      return step_lib.summed(jax.tree.map(lambda a: a[0], totals))

    on_devices = functools.partial(step_lib.on_devices, mesh)
    summed = on_devices(total, in_parts, out=replicated)

    def finish(state: Any, multiplier: Any, totals: Any, mask: Any) -> Any:
      return step_lib.finish(program, state, multiplier, summed(totals), mask)

    self._draw = backends.jit(draw, in_shardings=whole, out_shardings=whole)
    self._begin = backends.jit(
        on_devices(begin, replicated, out=in_parts), out_shardings=parts
    )
    self._add = backends.jit(
        on_devices(
            add, replicated, in_parts, in_parts, replicated, out=in_parts
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
    """Take one step; the state is donated.

    Raises:
      RunError: the images could not be gathered.
    """
    state = sharding.placed_state(self._mesh, state)
    key, number = state.key, state.step
    prepared, self._next = self._next, None
    if prepared and prepared[0] is key and prepared[1] is number:
      waiting = prepared[2]
    else:
      waiting = self._ahead(key, number)
    totals, first, more = self._begin(state), 0, True
    while more:
      drawn, tasks = _result(waiting)
      # Of the device that has most of them.
      more = first + self._size < -(-drawn.filled // self._mesh.size)
      if more:
        waiting = self._thread.submit(self._gather, drawn, first + self._size)
        # At most one block waits on the device behind the one it computes.
        jax.block_until_ready(totals)
      else:
        # Before the device is given this block, or the draw would queue behind.
        waiting = self._ahead(key, number + 1)
      totals = self._add(state, totals, tasks, np.int32(first))
      first += self._size
    state, metrics = self._finish(
        state, self._multiplier, totals, drawn.mask
    )
    self._next = (state.key, state.step, waiting)
    return state, metrics

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """See `step.Step`."""
    return step_lib.traced(self._program, self._images, state)

  def compile(self, state: state_lib.State) -> None:
    """See `step.Step`."""
    state = sharding.placed_state(self._mesh, state)
    like: Any = jax.ShapeDtypeStruct
    size = self._size * self._mesh.size
    total = size * math.prod(self._task)
    tasks: Any = step_lib.Tasks(
        like((total, *self._images.shape[1:]), self._images.dtype),
        like((size, *self._task), jnp.int32),
        like((size,), jnp.bool_),
        None if self._labels is None else like((total,), jnp.int32),
    )
    draw = self._draw.lower(state.key, state.step)
    begin = self._begin.lower(state)
    add = self._add.lower(state, begin.out_info, tasks, np.int32(0))
    finish = self._finish.lower(
        state, self._multiplier, add.out_info, draw.out_info[1]
    )
    self._draw, self._begin = draw.compile(), begin.compile()
    self._add, self._finish = add.compile(), finish.compile()

  def _ahead(
      self, key: jax.Array, number: jax.Array
  ) -> futures.Future[tuple[_Draw, Any]]:
    """Begin a draw on the device; the thread waits for it and gathers."""
    rows, mask = self._draw(key, number)

    def fetch() -> tuple[_Draw, Any]:
      held = np.flatnonzero(mask)
      filled = int(held[-1]) + 1 if held.size else 0
      return self._gather(_Draw(np.asarray(rows), np.asarray(mask), filled), 0)

    return self._thread.submit(fetch)

  def _gather(self, drawn: _Draw, first: int) -> tuple[_Draw, Any]:
    """Return the draw and its block from task `first` of every device on."""
    return drawn, sharding.parts(
        self._mesh, lambda device: self._gather_for(device, drawn, first)
    )

  def _gather_for(self, device: int, drawn: _Draw, first: int) -> Any:
    """Return the part of one device: `Tasks` of NumPy arrays."""
    size, devices = self._size, self._mesh.size
    begin, end = (device + devices * n for n in (first, first + size))
    rows = drawn.rows[begin : min(end, drawn.filled) : devices].reshape(-1)
    total = size * math.prod(self._task)
    images = np.zeros((total, *self._images.shape[1:]), self._images.dtype)
    # Clipped like the gather on a device; also, this fills without a copy.
    np.take(self._images, rows, axis=0, out=images[: rows.size], mode="clip")
    mask = np.zeros(size, bool)
    part = drawn.mask[begin:end:devices]
    mask[: part.size] = part
    places = np.arange(total, dtype=np.int32).reshape(size, *self._task)
    labels = None
    if self._labels is not None:
      labels = np.zeros(total, np.int32)
      labels[: rows.size] = self._labels[rows]
    tasks: Any = step_lib.Tasks
    return tasks(images, places, mask, labels)


def _result(future: futures.Future[tuple[_Draw, Any]]) -> tuple[_Draw, Any]:
  """Return a future's result; RunError, which names no row, where it fails."""
  try:
    return future.result()
  except Exception as e:
    # Neither its text nor its trace: they may name a row.
    reason = e.strerror if isinstance(e, OSError) else None
    raise errors.RunError(
        "the images that a step draws could not be gathered"
        f" ({reason or type(e).__name__}): leave the files of the data as"
        " they are during a run, see that memory is free, and run the same"
        " command again; it resumes from the last checkpoint"
    ) from None
