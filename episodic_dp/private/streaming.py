"""A step of data that stay on the host: only what is drawn reaches the device.

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

from collections.abc import Callable
from concurrent import futures
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import task_sum


class StreamError(ValueError):
  """The images of a step could not be gathered; one sentence."""


class _Drawn(NamedTuple):
  """What a step draws, on the host.

  Attributes:
    rows: int32[slots, way, shot + query].
    mask: bool[slots].
    filled: slots up to the last task.
  """

  rows: np.ndarray
  mask: np.ndarray
  filled: int


class _Ahead(NamedTuple):
  """A step's draw and its first block, while a thread fetches them."""

  drawn: futures.Future
  block: futures.Future


class Step:
  """state -> (state, metrics), for images on the host.

  Any state may be given at any time. The step after the last one is prepared,
  and recognised by its arrays; any other, as after a restart, is drawn when it
  is asked for.
  """

  def __init__(
      self,
      *,
      draw: Callable[..., Any],
      begin: Callable[..., Any],
      add: Callable[..., Any],
      finish: Callable[..., Any],
      images: np.ndarray,
      chunk: int,
      block_bytes: int,
      labels: np.ndarray | None = None,
  ):
    """Compiles the parts of a step.

    Args:
      draw: (key, step) -> rows int32[slots, way, shot + query] and mask
        bool[slots].
      begin: state -> totals without any task.
      add: (state, totals, tasks, first slot) -> totals.
      finish: (state, totals, mask) -> (state, metrics).
      images: [rows, H, W, C], in memory or mapped.
      chunk: tasks computed at once; a block holds a multiple of it.
      block_bytes: bytes of images in a block, where a chunk is not more.
      labels: int[rows] where there are no episodes, as in `task_sum.Tasks`.
    """
    self._draw = jax.jit(draw)
    self._begin = jax.jit(begin)
    self._add = jax.jit(add, donate_argnums=1)
    self._finish = jax.jit(finish, donate_argnums=0)
    self._images, self._labels = images, labels
    self._chunk = chunk
    self._block_bytes = block_bytes
    # One thread: gathers follow one another in the order they are used in.
    self._thread = futures.ThreadPoolExecutor(1, "gather")
    self._next: tuple[Any, _Ahead] | None = None

  def __call__(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """One step; the state is donated.

    Raises:
      StreamError: the images could not be gathered.
    """
    ahead = self._take(state)
    key, step = state.key, state.step
    drawn: _Drawn = self._wait(ahead.drawn)
    totals, waiting, following = self._begin(state), ahead.block, None
    size = self._block_size(drawn)
    for first in range(0, max(drawn.filled, 1), size):
      tasks = self._wait(waiting)
      if first + size < drawn.filled:
        waiting = self._thread.submit(self._gather, drawn, first + size)
        # At most one block waits on the device behind the one it computes.
        jax.block_until_ready(totals)
      else:
        # Before the device is given this block: the draw would queue behind.
        following = self._ahead(key, step + 1)
      totals = self._add(state, totals, tasks, np.int32(first))
    state, metrics = self._finish(state, totals, drawn.mask)
    assert following is not None  # The last block began it.
    self._next = (state, following)
    return state, metrics

  def _take(self, state: Any) -> _Ahead:
    """What was prepared for this state, or its draw begun now."""
    prepared, self._next = self._next, None
    if prepared is not None:
      expected, ahead = prepared
      if state.step is expected.step and state.key is expected.key:
        return ahead
    return self._ahead(state.key, state.step)

  def _ahead(self, key: jax.Array, step: jax.Array) -> _Ahead:
    """Begins the draw on the device; the thread waits for it and gathers."""
    rows, mask = self._draw(key, step)
    drawn = self._thread.submit(_fetch, rows, mask)
    return _Ahead(
        drawn,
        self._thread.submit(lambda: self._gather(drawn.result(), 0)),
    )

  def _block_size(self, drawn: _Drawn) -> int:
    """Tasks of a block: a multiple of the chunk, the same in every step."""
    slots, *task = drawn.rows.shape
    one = math.prod((*task, *self._images.shape[1:]))
    one *= self._images.dtype.itemsize
    chunks = max(1, self._block_bytes // (one * self._chunk))
    return self._chunk * min(chunks, -(-slots // self._chunk))

  def _gather(self, drawn: _Drawn, first: int) -> task_sum.Tasks:
    """The tasks from slot `first` on, as many as a block holds."""
    size, shape = self._block_size(drawn), drawn.rows.shape[1:]
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

  def _wait(self, future: futures.Future) -> Any:
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


def _fetch(rows: jax.Array, mask: jax.Array) -> _Drawn:
  held = np.flatnonzero(mask)
  filled = int(held[-1]) + 1 if held.size else 0
  return _Drawn(np.asarray(rows), np.asarray(mask), filled)
