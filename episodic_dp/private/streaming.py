"""A step of data that stay on the host: devices get only what is drawn.

The sample of a step is a pure function of the secret key and the step's number,
so that of step s + 1 is drawn before step s computes. A thread gathers its
images out of the array, which may be a mapped file larger than all memory,
while the device is busy with step s. Tasks go over in blocks of a fixed shape,
and of a step's blocks only those that hold tasks. Several devices share a block
out, and every process gathers what its own devices compute.

The parts of a step are those of data on the same devices, in the same order:
the samples and the noise are the same bits, and so are the parameters but for
what a compiler rounds otherwise in another program.

Which rows were drawn is as secret as the key: it stays in this process and
occurs in no message. Who watches the machine itself while it runs, its memory
or which parts of a mapped file it reads, is outside the guarantee, as is who
times its steps.
"""

from concurrent import futures
import functools
import math
from typing import Any, NamedTuple, TypeVar

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import keys
from episodic_dp.private import programs
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.private import step_program
from episodic_dp.private import task_sum

_Found = TypeVar("_Found")


class StreamError(ValueError):
  """The images of a step could not be gathered; one sentence."""


class _Draw(NamedTuple):
  """What a step draws, on the host.

  Attributes:
    rows: int32[slots, way, shot + query].
    mask: bool[slots].
    filled: slots up to the last task.
  """

  rows: np.ndarray
  mask: np.ndarray
  filled: int


class _Prefetch(NamedTuple):
  """A step's draw and its first block, while a thread fetches them."""

  draw: futures.Future[_Draw]
  block: futures.Future[task_sum.Tasks]


class _Programs(NamedTuple):
  """What a step consists of: functions of arrays, jitted or compiled.

  Attributes:
    draw: (key, step) -> rows, mask.
    begin: state -> totals.
    add: (state, totals, tasks of a block, place of the first of them among
      those of its device) -> totals.
    finish: (state, totals, mask) -> state, metrics.
  """

  draw: Any
  begin: Any
  add: Any
  finish: Any


class Step:
  """A step of images on the host: state -> (state, metrics).

  Any state may be given at any time. The draw and the first block of the step
  that follows the last one are prefetched, and recognised by its arrays; those
  of any other, as after a restart, are fetched when it is asked for.
  """

  def __init__(
      self,
      program: step_program.StepProgram,
      images: np.ndarray,
      labels: np.ndarray | None = None,
      *,
      block_bytes: int,
      mesh: jax.sharding.Mesh | None = None,
  ):
    """Make the parts of a step, compiled when they are first called.

    Args:
      program: see `step_program`.
      images: [rows, H, W, C], in memory or mapped.
      labels: int[rows] where there are no episodes, as in `task_sum.Tasks`.
      block_bytes: bytes of images in a block, unless a microbatch of each
        device is more.
      mesh: the devices; None for one.
    """
    self._jitted = _jitted(program, mesh)
    self._compiled: _Programs | None = None
    self._shape = _rows_of_step(program).shape
    self._mesh, self._devices = mesh, mesh.size if mesh else 1
    self._images, self._labels = images, labels
    self._microbatch_size = program.context.microbatch_size
    self._block_bytes = block_bytes
    # One thread: gathers follow one another in the order they are used in.
    self._thread = futures.ThreadPoolExecutor(1, "gather")
    self._next: tuple[state_lib.State, _Prefetch] | None = None

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    """Take one step; the state is donated.

    Raises:
      StreamError: the images could not be gathered.
    """
    run, state = self._compiled or self._jitted, self._placed(state)
    prefetch = self._prefetched(state)
    key, step = state.key, state.step
    drawn = _result(prefetch.draw)
    totals, waiting, following = run.begin(state), prefetch.block, None
    # Of the device that has most of them.
    size, filled = self._block_size(), -(-drawn.filled // self._devices)
    for first in range(0, max(filled, 1), size):
      tasks = _result(waiting)
      if first + size < filled:
        waiting = self._thread.submit(self._gather, drawn, first + size)
        # At most one block waits on the device behind the one it computes.
        jax.block_until_ready(totals)
      else:
        # Before the device is given this block, or the draw would queue behind
        # it.
        following = self._prefetch(key, step + 1)
      totals = run.add(state, totals, tasks, np.int32(first))
    state, metrics = run.finish(state, totals, drawn.mask)
    assert following is not None  # The last block began it.
    self._next = (state, following)
    return state, metrics

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """See `meta_step.Step`."""
    parts = self._trace(state)
    return parts.draw.jaxpr, parts.add.jaxpr, parts.finish.jaxpr

  def compile(self, state: state_lib.State) -> None:
    """See `meta_step.Step`."""
    self._compiled = _Programs(
        *(part.lower().compile() for part in self._trace(state))
    )

  def _trace(self, state: state_lib.State) -> _Programs:
    """The parts of a step as `jax.stages.Traced`."""
    run, state = self._jitted, self._placed(state)
    draw = run.draw.trace(state.key, state.step)
    begin = run.begin.trace(state)
    size, shape = self._devices * self._block_size(), self._shape[1:]
    total = size * math.prod(shape)
    like: Any = jax.ShapeDtypeStruct
    tasks = task_sum.Tasks(
        like((total, *self._images.shape[1:]), self._images.dtype),
        like((size, *shape), jnp.int32),
        like((size,), jnp.bool_),
        None if self._labels is None else like((total,), jnp.int32),
    )
    add = run.add.trace(state, begin.out_info, tasks, np.int32(0))
    finish = run.finish.trace(state, add.out_info, draw.out_info[1])
    return _Programs(draw, begin, add, finish)

  def _placed(self, state: state_lib.State) -> state_lib.State:
    """The state where the step reads it."""
    if self._mesh is None:
      return state
    return sharding.placed_state(self._mesh, state)

  def _prefetched(self, state: state_lib.State) -> _Prefetch:
    """What was prefetched for this state, or its prefetch begun now."""
    prepared, self._next = self._next, None
    if prepared is not None:
      expected, prefetch = prepared
      if state.step is expected.step and state.key is expected.key:
        return prefetch
    return self._prefetch(state.key, state.step)

  def _prefetch(self, key: jax.Array, step: jax.Array) -> _Prefetch:
    """Begin the draw on the device; the thread waits for it and gathers."""
    rows, mask = (self._compiled or self._jitted).draw(key, step)
    drawn = self._thread.submit(_fetch, rows, mask)
    return _Prefetch(
        drawn,
        self._thread.submit(lambda: self._gather(drawn.result(), 0)),
    )

  def _block_size(self) -> int:
    """Tasks of a block on one device: some microbatches."""
    slots, *task = self._shape
    one = math.prod((*task, *self._images.shape[1:]))
    one *= self._images.dtype.itemsize * self._devices
    size = self._microbatch_size
    microbatches = max(1, self._block_bytes // (one * size))
    return size * min(microbatches, -(-slots // (size * self._devices)))

  def _gather(self, drawn: _Draw, first: int) -> task_sum.Tasks:
    """The block that begins with task `first` of every device."""
    if self._mesh is None:
      return jax.tree.map(jnp.asarray, self._gather_for(0, drawn, first))
    return sharding.parts(
        self._mesh, lambda device: self._gather_for(device, drawn, first)
    )

  def _gather_for(self, device: int, drawn: _Draw, first: int) -> Any:
    """The part of one device: `task_sum.Tasks` of NumPy arrays."""
    size, shape = self._block_size(), self._shape[1:]
    begin, end = (device + self._devices * n for n in (first, first + size))
    rows = drawn.rows[begin : min(end, drawn.filled) : self._devices]
    rows = rows.reshape(-1)
    total = size * math.prod(shape)
    images = np.zeros((total, *self._images.shape[1:]), self._images.dtype)
    # Clipped like the gather on a device; also, this fills without a copy.
    np.take(self._images, rows, axis=0, out=images[: rows.size], mode="clip")
    mask = np.zeros(size, bool)
    part = drawn.mask[begin : end : self._devices]
    mask[: part.size] = part
    places = np.arange(total, dtype=np.int32).reshape(size, *shape)
    labels = None
    if self._labels is not None:
      labels = np.zeros(total, np.int32)
      labels[: rows.size] = self._labels[rows]
    tasks: Any = task_sum.Tasks
    return tasks(images, places, mask, labels)


def _jitted(
    program: step_program.StepProgram, mesh: jax.sharding.Mesh | None
) -> _Programs:
  """The parts of a step, compiled when they are first called."""
  draw = functools.partial(step_program.draw, program)
  begin = functools.partial(step_program.begin, program)
  add = functools.partial(step_program.add, program)
  finish = functools.partial(step_program.finish, program)
  if mesh is None:
    return _Programs(
        programs.jit(draw),
        programs.jit(begin),
        programs.jit(add, donate_argnums=1),
        programs.jit(finish, donate_argnums=0),
    )
  slots = _rows_of_step(program).shape[0]
  blocks = sharding.block_sum(mesh, begin, add, slots=slots)
  whole, parts = sharding.replicated(mesh), sharding.in_parts(mesh)
  return _Programs(
      programs.jit(draw, in_shardings=whole, out_shardings=whole),
      programs.jit(blocks.begin, in_shardings=whole, out_shardings=parts),
      programs.jit(
          blocks.add,
          in_shardings=(whole, parts, parts, whole),
          out_shardings=parts,
          donate_argnums=1,
      ),
      programs.jit(
          lambda state, totals, mask: finish(state, blocks.total(totals), mask),
          in_shardings=(whole, parts, whole),
          out_shardings=whole,
          donate_argnums=0,
      ),
  )


def _rows_of_step(program: step_program.StepProgram) -> jax.ShapeDtypeStruct:
  """int32[slots, way, shot + query], as a step draws them."""
  key = jax.eval_shape(lambda: jax.random.key(0, impl=keys.IMPLEMENTATION))
  step = jax.ShapeDtypeStruct((), jnp.int32)
  rows, _ = jax.eval_shape(
      functools.partial(step_program.draw, program), key, step
  )
  return rows


def _result(future: futures.Future[_Found]) -> _Found:
  """What a future gives; StreamError, which names no row, where it fails."""
  try:
    return future.result()
  except Exception as e:
    # Neither its text nor its trace: they may name a row.
    reason = e.strerror if isinstance(e, OSError) else None
    raise StreamError(
        "the images that a step draws could not be gathered"
        f" ({reason or type(e).__name__}): leave the files of the data as"
        " they are during a run, see that memory is free, and run the same"
        " command again; it goes on from the last checkpoint"
    ) from None


def _fetch(rows: jax.Array, mask: jax.Array) -> _Draw:
  """A draw copied to the host, once the device has it."""
  held = np.flatnonzero(mask)
  filled = int(held[-1]) + 1 if held.size else 0
  return _Draw(np.asarray(rows), np.asarray(mask), filled)
