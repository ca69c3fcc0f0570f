"""The processes of one run: all compute, the first decides and writes.

The first process reads and writes the work directory, and sends the others the
key and the state to begin with; they need no folder of their own. The key goes
over the network that connects the processes, and is as safe as that.

Processes wait for one another with the coordination service, since collectives
of the CPU give up after 30 s.
"""

from collections.abc import Sequence
import hashlib
import io
import itertools
import json
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np
from orbax.checkpoint import multihost

from episodic_dp.training import errors

CONTINUE, STOP, FAILED = range(3)
_DAY = 24 * 3600 * 1000  # ms; a process that dies is noticed earlier.
_barriers = itertools.count()  # Of all processes alike: each is met by all.


def several() -> bool:
  """Whether this program is one of several."""
  return jax.process_count() > 1


def first() -> bool:
  """Whether this process is the one that writes."""
  return jax.process_index() == 0


class OtherFailed(errors.RunError):
  """Another process has failed, and said so."""


def agreed(code: int) -> int:
  """The largest code of all processes; waits for them.

  Raises:
    OtherFailed: one said FAILED; none may call this again.
  """
  if not several():
    return code
  _wait()
  found = int(multihost_utils.process_allgather(np.asarray(code)).max())
  if found == FAILED and code != FAILED:
    raise OtherFailed(
        "another process of this run failed: its message says what to do"
    )
  return found


class Broadcast:
  """Sends arrays from the first process to the others, once.

  Before the first step; or, where there will be no run, the reason.

  Args:
    config: JSON-able, and the same in all processes.
  """

  def __init__(self, config: Any):
    text = json.dumps(config, sort_keys=True)
    self._config = hashlib.sha256(text.encode()).hexdigest()
    self._sent = not several()

  def send(self, arrays: Sequence[np.ndarray]) -> None:
    """Sends arrays to the others."""
    if not self._sent:
      self._write("", arrays)

  def abort(self, error: Exception) -> None:
    """Sends the others why there will be no run, unless arrays were sent."""
    if not self._sent:
      self._write(" ".join(str(error).split()) or type(error).__name__, ())

  def receive(self) -> list[np.ndarray]:
    """Returns the arrays that the first process sent.

    Raises:
      RunError: it failed, or has another configuration.
    """
    _wait()
    size = int(multihost_utils.broadcast_one_to_all(np.zeros((), np.int32)))
    data = multihost_utils.broadcast_one_to_all(np.zeros(size, np.uint8))
    with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as found:
      error, config = str(found["error"]), str(found["config"])
      arrays = [found[str(i)] for i in range(len(found.files) - 2)]
    if error:
      raise errors.RunError(f"the first process failed: {error}")
    if config != self._config:
      agreed(FAILED)
      raise errors.RunError(
          "the configuration of this process is not that of the first: start"
          " all processes of a run with the same command"
      )
    return arrays

  def _write(self, error: str, arrays: Sequence[np.ndarray]) -> None:
    self._sent = True
    stream = io.BytesIO()
    named: dict[str, Any]
    named = {str(i): np.asarray(a) for i, a in enumerate(arrays)}
    np.savez(stream, error=error, config=self._config, **named)
    data = np.frombuffer(stream.getvalue(), np.uint8)
    _wait()
    multihost_utils.broadcast_one_to_all(np.asarray(data.size, np.int32))
    multihost_utils.broadcast_one_to_all(data)


def _wait() -> None:
  barrier = multihost.get_barrier_sync_fn()
  barrier(key=f"episodic_dp.{next(_barriers)}", timeout_ms=_DAY)
