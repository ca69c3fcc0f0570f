"""The processes of one run: all compute, the first decides and writes.

The first process reads and writes the work directory, and sends the others the
key and the state to begin with; they need no folder of their own. The key goes
over the network that connects the processes, and is as safe as that.

Processes wait for one another with the coordination service, since collectives
of the CPU give up after 30 s.
"""

from collections.abc import Sequence
import enum
import hashlib
import io
import itertools
import json
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np
from orbax.checkpoint import multihost

from episodic_dp import errors

BEGIN_SECONDS = 1800  # From the first process that is ready to the last.
_STEP_SECONDS = 24 * 3600  # A process that dies is noticed earlier.
_barriers = itertools.count()  # Of all processes alike: each is met by all.


class Code(enum.IntEnum):
  """What a process says before a step; of several the largest counts."""

  CONTINUE = 0
  TIME_LIMIT = 1
  SIGUSR1 = 2
  SIGTERM = 3
  SIGINT = 4
  FAILED = 5

  @property
  def stopped(self) -> str:
    """By what, as a `Result` has it: "SIGTERM", "time limit"."""
    return "time limit" if self == Code.TIME_LIMIT else self.name


def several() -> bool:
  """Whether this program is one of several; starts no device of one alone."""
  return jax.distributed.is_initialized() and jax.process_count() > 1


def first() -> bool:
  """Whether this process is the one that writes."""
  return not several() or jax.process_index() == 0


class OtherFailed(errors.RunError):
  """Another process has failed, and said so."""


def agreed(code: Code) -> Code:
  """The largest code of all processes; waits for them.

  Raises:
    OtherFailed: one said FAILED; none may call this again.
  """
  if not several():
    return code
  _wait(_STEP_SECONDS)
  found = Code(multihost_utils.process_allgather(np.asarray(int(code))).max())
  if found == Code.FAILED and code != Code.FAILED:
    raise OtherFailed(
        "another process of this run failed: its message says what to do"
    )
  return found


class Broadcast:
  """Sends arrays from the first process to the others, once.

  Before the first step; or, where there will be no run, the reason. It is made
  before the data are read, which may already fail.
  """

  def __init__(self) -> None:
    self._over = not several()

  def send(self, arrays: Sequence[np.ndarray], config: Any) -> None:
    """Sends arrays to the others.

    Args:
      arrays: of any shapes.
      config: JSON-able; the others must have the same.
    """
    if not self._over:
      self._write("", config, arrays)

  def receive(self, config: Any) -> list[np.ndarray]:
    """Returns the arrays that the first process sent.

    Raises:
      RunError: it failed, or has another configuration.
    """
    self._over = True
    error, digest, arrays = self._read()
    if error:
      raise errors.RunError(f"the first process failed: {error}")
    if digest != _digest(config):
      agreed(Code.FAILED)
      raise errors.RunError(
          "the configuration of this process is not that of the first: start"
          " all processes of a run with the same command"
      )
    return arrays

  def abort(self, error: Exception) -> None:
    """Tells the others that this process cannot begin, unless it has begun.

    Args:
      error: why; the others hear it from the first process alone.
    """
    if self._over:
      return
    if first():
      self._write(
          " ".join(str(error).split()) or type(error).__name__, None, ()
      )
      return
    self._over = True
    if not self._read()[0]:
      agreed(Code.FAILED)

  def _read(self) -> tuple[str, str, list[np.ndarray]]:
    """(error, digest of the configuration, arrays) of the first process."""
    _wait(BEGIN_SECONDS)
    size = int(multihost_utils.broadcast_one_to_all(np.zeros((), np.int32)))
    data = multihost_utils.broadcast_one_to_all(np.zeros(size, np.uint8))
    with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as found:
      error, config = str(found["error"]), str(found["config"])
      return error, config, [found[str(i)] for i in range(len(found) - 2)]

  def _write(
      self, error: str, config: Any, arrays: Sequence[np.ndarray]
  ) -> None:
    self._over = True
    stream = io.BytesIO()
    named: dict[str, Any]
    named = {str(i): np.asarray(a) for i, a in enumerate(arrays)}
    np.savez(stream, error=error, config=_digest(config), **named)
    data = np.frombuffer(stream.getvalue(), np.uint8)
    _wait(BEGIN_SECONDS)
    multihost_utils.broadcast_one_to_all(np.asarray(data.size, np.int32))
    multihost_utils.broadcast_one_to_all(data)


def _digest(config: Any) -> str:
  text = json.dumps(config, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _wait(seconds: int) -> None:
  """Waits for all processes.

  Raises:
    RunError: one did not come, though it lives.
  """
  barrier = multihost.get_barrier_sync_fn()
  key = f"episodic_dp.{next(_barriers)}"
  try:
    barrier(key=key, timeout_ms=1000 * seconds)
  except jax.errors.JaxRuntimeError as e:
    if "DEADLINE_EXCEEDED" not in str(e):
      raise
    raise errors.RunError(
        f"another process of this run was not ready within {seconds} s: its"
        " messages say what it waits for; end all of them and run the same"
        " commands again"
    ) from e
