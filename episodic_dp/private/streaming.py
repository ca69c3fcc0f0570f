"""A step of data that stay on the host: the device gets only what is drawn.

The sample of a step is a pure function of the secret key and the step's number,
so that of step s + 1 is drawn before step s computes. A thread gathers its
images out of the array, which may be a mapped file larger than all memory,
while the device is busy with step s. Tasks go over in blocks of a fixed shape,
and of a step's blocks only those that hold tasks.

The parts of a step are those of data on the device, in the same order, so that
the parameters are the same bits.

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

from episodic_dp.private import programs
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
  ):
    """Compile the parts of a step.

    Args:
      program: see `step_program`.
      images: [rows, H, W, C], in memory or mapped.
      labels: int[rows] where there are no episodes, as in `task_sum.Tasks`.
      block_bytes: bytes of images in a block, unless a microbatch is more.
    """
    self._draw = programs.jit(functools.partial(step_program.draw, program))
    self._begin = programs.jit(functools.partial(step_program.begin, program))
    self._add = programs.jit(
        functools.partial(step_program.add, program), donate_argnums=1
    )
    self._finish = programs.jit(
        functools.partial(step_program.finish, program), donate_argnums=0
    )
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
    prefetch = self._prefetched(state)
    key, step = state.key, state.step
    drawn = _result(prefetch.draw)
    totals, waiting, following = self._begin(state), prefetch.block, None
    size = self._block_size(drawn.rows.shape)
    for first in range(0, max(drawn.filled, 1), size):
      tasks = _result(waiting)
      if first + size < drawn.filled:
        waiting = self._thread.submit(self._gather, drawn, first + size)
        # At most one block waits on the device behind the one it computes.
        jax.block_until_ready(totals)
      else:
        # Before the device is given this block, or the draw would queue behind
        # it.
        following = self._prefetch(key, step + 1)
      totals = self._add(state, totals, tasks, np.int32(first))
    state, metrics = self._finish(state, totals, drawn.mask)
    assert following is not None  # The last block began it.
    self._next = (state, following)
    return state, metrics

  def traced(self, state: state_lib.State) -> tuple[core.ClosedJaxpr, ...]:
    """See `meta_step.Step`."""
    draw = self._draw.trace(state.key, state.step)
    rows, mask = draw.out_info
    totals = self._begin.trace(state).out_info
    size, shape = self._block_size(rows.shape), rows.shape[1:]
    total = size * math.prod(shape)
    like: Any = jax.ShapeDtypeStruct
    tasks = task_sum.Tasks(
        like((total, *self._images.shape[1:]), self._images.dtype),
        like((size, *shape), jnp.int32),
        like((size,), jnp.bool_),
        None if self._labels is None else like((total,), jnp.int32),
    )
    add = self._add.trace(state, totals, tasks, np.int32(0))
    finish = self._finish.trace(state, add.out_info, mask)
    return draw.jaxpr, add.jaxpr, finish.jaxpr

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
    rows, mask = self._draw(key, step)
    drawn = self._thread.submit(_fetch, rows, mask)
    return _Prefetch(
        drawn,
        self._thread.submit(lambda: self._gather(drawn.result(), 0)),
    )

  def _block_size(self, shape: tuple[int, ...]) -> int:
    """Tasks of a block, some microbatches, for rows of this shape."""
    slots, *task = shape
    one = math.prod((*task, *self._images.shape[1:]))
    one *= self._images.dtype.itemsize
    size = self._microbatch_size
    microbatches = max(1, self._block_bytes // (one * size))
    return size * min(microbatches, -(-slots // size))

  def _gather(self, drawn: _Draw, first: int) -> task_sum.Tasks:
    """The tasks from slot `first` on, as many as a block holds."""
    size, shape = self._block_size(drawn.rows.shape), drawn.rows.shape[1:]
    rows = drawn.rows[first : min(first + size, drawn.filled)].reshape(-1)
    total = size * math.prod(shape)
    images = np.zeros((total, *self._images.shape[1:]), self._images.dtype)
    # Clipped like the gather on a device; also, this fills without a copy.
    np.take(self._images, rows, axis=0, out=images[: rows.size], mode="clip")
    mask = np.zeros(size, bool)
    part = drawn.mask[first : first + size]
    mask[: part.size] = part
    places = np.arange(total, dtype=np.int32).reshape(size, *shape)
    labels = None
    if self._labels is not None:
      found = np.zeros(total, np.int32)
      found[: rows.size] = self._labels[rows]
      labels = jnp.asarray(found)
    return task_sum.Tasks(
        jnp.asarray(images), jnp.asarray(places), jnp.asarray(mask), labels
    )


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
