"""Processes of one run: all compute, the first decides and writes.

The first process uses the work directory, and sends the others the key and the
initial state. The key travels over the network between them, and is as safe as
that network. Processes wait for one another at barriers of the coordination
service, because collectives on a CPU give up after 30 s. If a process dies, the
service notices within its heartbeat time-out and the barrier of the others
raises an error.
"""

from collections.abc import Callable
import itertools
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from episodic_dp.errors import RunError

_SECONDS = 24 * 3600  # More than a validation takes; a dead process ends it.
_barriers = itertools.count()  # Every process reaches every barrier.


def several() -> bool:
  """Return whether several processes train, without starting a device."""
  return jax.distributed.is_initialized() and jax.process_count() > 1


def first() -> bool:
  """Return whether this process is the one that writes."""
  return not several() or jax.process_index() == 0


def gathered(value: jax.typing.ArrayLike) -> np.ndarray:
  """Return the arrays [...] of all processes, [processes, ...]; waits for them.

  Args:
    value: an array with the same shape and type in every process.
  """
  if not several():
    return np.asarray(value)[None]
  # Lazy import: a run of one process needs no barrier.
  from orbax.checkpoint import multihost

  barrier = multihost.get_barrier_sync_fn()
  barrier(key=f"episodic_dp.{next(_barriers)}", timeout_ms=1000 * _SECONDS)
  return multihost_utils.process_allgather(np.asarray(value))


def from_first(make: Callable[[], Any], like: Any) -> Any:
  """Return the first process's tree of arrays in every process.

  Args:
    make: called in the first process only.
    like: a tree of arrays of the same shapes and types, for the others.

  Raises:
    RunError: the first process failed to make them; it raises its own error.
  """
  error, sent = None, like
  if first():
    try:
      sent = make()
    except Exception as e:
      error = e
  failed = gathered(error is not None).any()
  if error is not None:
    raise error
  if failed:
    raise RunError("the first process failed: its output says why")
  if not several():
    return sent
  arrays = [np.asarray(array) for array in jax.tree.leaves(sent)]
  # As bytes: they are sent as sums, which lose the sign of a zero.
  received = multihost_utils.broadcast_one_to_all(
      [array.reshape(-1).view(np.uint8) for array in arrays]
  )
  return jax.tree.unflatten(
      jax.tree.structure(sent),
      [
          data.view(array.dtype).reshape(array.shape)
          for data, array in zip(received, arrays)
      ],
  )
