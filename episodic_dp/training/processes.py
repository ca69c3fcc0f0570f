"""Processes of one run: all compute, the first decides and writes.

The first process uses the work directory, and sends the others the key and the
state to begin with. The key travels over the network that connects them, and is
as safe as that network. Processes wait for one another at barriers of the
coordination service, because collectives of a CPU give up after 30 s. When a
process dies, the service notices within its heartbeat time-out and the barrier
of the others raises an error.
"""

from collections.abc import Callable, Sequence
import io
import itertools
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from episodic_dp import errors
from episodic_dp.training.stopping import Stop

_SECONDS = 24 * 3600  # A validation takes less; a dead process ends it earlier.
_barriers = itertools.count()  # Every process meets every barrier.


def several() -> bool:
  """Return whether several processes train; starts no device of one alone."""
  return jax.distributed.is_initialized() and jax.process_count() > 1


def first() -> bool:
  """Return whether this process is the one that writes."""
  return not several() or jax.process_index() == 0


def agreed(stop: Stop) -> Stop:
  """Return the largest reason to stop of all processes; waits for them."""
  if not several():
    return stop
  _wait()
  return Stop(multihost_utils.process_allgather(np.asarray(int(stop))).max())


def from_first(
    make: Callable[[], Sequence[Any]]
) -> list[np.ndarray]:
  """Return the arrays that the first process makes, in every process.

  Args:
    make: called in the first process alone.

  Raises:
    RunError: the first process failed to make them; it raises its own error.
  """
  if not several():
    return [np.asarray(a) for a in make()]
  error, arrays = None, []
  if first():
    try:
      arrays = [np.asarray(a) for a in make()]
    except Exception as e:
      error = e
  stream = io.BytesIO()
  np.savez(stream, str(error or ""), *arrays)
  sent = np.frombuffer(stream.getvalue(), np.uint8)
  _wait()
  size = int(multihost_utils.broadcast_one_to_all(np.int32(sent.size)))
  buffer = sent if first() else np.zeros(size, np.uint8)
  data = multihost_utils.broadcast_one_to_all(buffer)
  if error is not None:
    raise error
  with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as found:
    told, *received = (found[name] for name in found.files)
  if str(told):
    raise errors.RunError(f"the first process failed: {told}")
  return received


def _wait() -> None:
  # Lazy import: a run of one process needs no barrier.
  from orbax.checkpoint import multihost

  barrier = multihost.get_barrier_sync_fn()
  barrier(key=f"episodic_dp.{next(_barriers)}", timeout_ms=1000 * _SECONDS)
