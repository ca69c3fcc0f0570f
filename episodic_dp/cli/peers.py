"""One of several processes: how it meets the others, and ends where they do.

Where one of them is lost the others cannot go on: all are started again, from
the last checkpoint. JAX would end them with a trace of native code, at once
where process 0 is lost, and never where they wait for an accelerator. Here they
hear one another (`watch`), and end with a sentence and a status that says so.
"""

from collections.abc import Iterator
import contextlib
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

import jax
from jax._src import distributed

from episodic_dp.cli import app
from episodic_dp.cli import exit_status
from episodic_dp.cli import interrupts
from episodic_dp.cli import tunnel
from episodic_dp.cli import watch as watch_lib

HEARTBEAT_SECONDS = 25  # Of silence; a process that is killed is heard at once.
CONNECT_SECONDS = 300  # From the first process that starts to the last.
_LAST_SECONDS = 10  # That a process waits, at most, for the others to end too.
_PORT = "episodic_dp/watch"  # The name under which process 0 tells it.
_TOGETHER = (
    "start all of them with the same --coordinator=HOST:PORT, which all can"
    " reach, and --num_processes, each with its own --process_id"
)
_watches: list[watch_lib.Watch] = []  # That of this process, once connected.


def connect(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """`jax.distributed.initialize`, such that the loss of a process is told.

  Args:
    coordinator: HOST:PORT of process 0; None where JAX knows the cluster.
    num_processes: how many there are; likewise.
    process_id: the number of this one; likewise.

  Raises:
    ConnectionError: they cannot.
  """
  # Its handler of SIGTERM would take the place of ours.
  jax.config.update("jax_enable_preemption_service", False)
  # JAX's own limit ends the process with a trace of native code.
  timer = threading.Timer(CONNECT_SECONDS, _never_met, [coordinator])
  timer.daemon = True
  timer.start()
  try:
    with _through_a_tunnel():
      jax.distributed.initialize(
          coordinator,
          num_processes,
          process_id,
          initialization_timeout=CONNECT_SECONDS + 60,
          heartbeat_timeout_seconds=10 * HEARTBEAT_SECONDS,
      )
    _watch_others()
  except (OSError, RuntimeError) as e:
    raise ConnectionError(
        f"processes cannot meet at {coordinator or 'the coordinator'}"
        f" ({str(e).splitlines()[0]}): {_TOGETHER}"
    ) from e
  finally:
    timer.cancel()


@contextlib.contextmanager
def _through_a_tunnel() -> Iterator[None]:
  """Clients made meanwhile do not notice that the service is gone."""
  plain = distributed._jax.get_distributed_runtime_client

  def client(address: str, number: int, *args: Any, **kwargs: Any) -> Any:
    if number:
      address = tunnel.Tunnel(address, _broken).address
    return plain(address, number, *args, **kwargs)

  distributed._jax.get_distributed_runtime_client = client
  try:
    yield
  finally:
    distributed._jax.get_distributed_runtime_client = plain


def _watch_others() -> None:
  """Connects this process to process 0, or lets the others do so."""
  state = distributed.global_state
  if state.num_processes == 1:
    return
  assert state.client is not None and state.coordinator_address is not None
  watch = watch_lib.Watch(HEARTBEAT_SECONDS, _lost, _failed)
  if state.process_id == 0:
    port = watch.serve(state.num_processes - 1, CONNECT_SECONDS)
    state.client.key_value_set(_PORT, str(port))
  else:
    port = state.client.blocking_key_value_get(_PORT, 1000 * CONNECT_SECONDS)
    host = state.coordinator_address.rpartition(":")[0].strip("[]")
    watch.connect(host, int(port), state.process_id)
  _watches.append(watch)


@contextlib.contextmanager
def leaving_together() -> Iterator[None]:
  """Where this process is one of several, it ends here, and ends the others.

  Python's own way out would wait for the others, which may wait for it.
  """
  try:
    yield
  except SystemExit as e:
    if _is_alone():
      raise
    _leave(e.code if isinstance(e.code, int) else exit_status.ERROR, "")
  except Exception as e:
    if _is_alone():
      raise
    told = app.sentence(e)
    if told is None and isinstance(e, jax.errors.JaxRuntimeError):
      # Most likely it is the connection to a process that is gone, of which
      # `_lost` will know.
      time.sleep(HEARTBEAT_SECONDS + 5)
    if told is None:
      traceback.print_exc()
      sys.stderr.flush()
    _leave(exit_status.ERROR, f"error: {told}" if told else "")


def _is_alone() -> bool:
  return not jax.distributed.is_initialized()


def _never_met(coordinator: str | None) -> None:
  """Called by a thread, where not all processes have come in time."""
  interrupts.leave(
      exit_status.REQUEUE,
      f"not all processes met at {coordinator or 'the coordinator'} within"
      f" {CONNECT_SECONDS} s: {_TOGETHER}",
  )


def _lost() -> None:
  """Called by a thread, where another process can no longer be heard."""
  interrupts.leave(
      exit_status.REQUEUE,
      "another process of this run was lost, or its machine: run the same"
      " commands again; the run goes on from its last checkpoint",
  )


def _broken() -> None:
  """Called by a thread, where the service of process 0 is gone."""
  if not any(watch.over for watch in _watches):
    _lost()


def _failed() -> None:
  """Called by a thread, where another process has failed."""
  interrupts.leave(
      exit_status.ERROR,
      "error: another process of this run failed: its message says what to do",
      last=_end_failed,
  )


def _leave(status: int, line: str) -> NoReturn:
  """Ends this process, and says so to the others."""
  failed = status == exit_status.ERROR
  interrupts.leave(status, line, last=_end_failed if failed else _end)
  threading.Event().wait()  # Another thread is about to end it.
  raise AssertionError


def _end() -> None:
  for watch in _watches:
    watch.end(failed=False, seconds=_LAST_SECONDS)


def _end_failed() -> None:
  for watch in _watches:
    watch.end(failed=True, seconds=_LAST_SECONDS)
