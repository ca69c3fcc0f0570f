"""Devices of a program: the cores of one machine, or several processes."""

from collections.abc import Iterator
import contextlib
import os
import re
import traceback

from absl import logging

from episodic_dp.cli import app
from episodic_dp.cli import exit_status
from episodic_dp.cli import interrupts
from episodic_dp.errors import RunError

HEARTBEAT_SECONDS = 30  # A process that is silent for longer counts as lost.


def log_devices() -> None:
  """Log the devices that the program uses."""
  # Lazy import: a command that only accounts runs without JAX.
  import jax

  logging.info(
      "jax %s, %s devices: %d, process %d of %d",
      jax.__version__,
      jax.default_backend().upper(),
      jax.device_count(),
      jax.process_index() + 1,
      jax.process_count(),
  )


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Make this program one of several that train together, if it is one.

  A single program uses every core of its CPU as a device.

  Args:
    coordinator: HOST:PORT of process 0, with the numbers below; "auto" if JAX
      knows the cluster (TPU, SLURM, Open MPI, ...); None for one process,
      unless `srun` or `mpirun` started several.
    num_processes: number of processes.
    process_id: the number of this process, from 0.

  Raises:
    RunError: the flags contradict one another, or processes do not connect.
  """
  named = coordinator not in (None, "auto")
  given = [n for n in (process_id, num_processes) if n is not None]
  if len(given) != 2 * named or given != sorted(set(given)) or (
      named and not re.fullmatch(r".+:[1-9][0-9]*", str(coordinator))
  ):
    raise RunError(
        f"--coordinator={coordinator} --num_processes={num_processes}"
        f" --process_id={process_id}: expected all three, such as"
        " --coordinator=localhost:9999 --num_processes=2 --process_id=1, with"
        " a number below that of the processes"
    )
  # SLURM's variables of a step, not of the allocation, whose batch script is
  # one process.
  counts = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
  if coordinator is None and not any(
      os.environ.get(name, "1") != "1" for name in counts
  ):
    # Lazy import: a command that only accounts runs without JAX.
    from episodic_dp import backends

    backends.use_all_cores()
    return
  # Lazy import: as above.
  import jax

  # The handler of JAX's preemption service would replace ours.
  jax.config.update("jax_enable_preemption_service", False)
  jax.distributed.initialize(
      None if coordinator == "auto" else coordinator,
      num_processes,
      process_id,
      heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
  )


@contextlib.contextmanager
def leaving() -> Iterator[None]:
  """End one of several processes at once if it fails or loses another.

  JAX's usual exit would wait for the others, which may be waiting for this one.
  They notice the end within `HEARTBEAT_SECONDS`.
  """
  try:
    yield
  except Exception as e:
    # Lazy import: as above.
    import jax

    if not jax.distributed.is_initialized():
      raise
    sentence = app.sentence(e)
    if sentence is not None:
      interrupts.leave(exit_status.ERROR, f"error: {sentence}")
    # The text of XLA's errors starts with their kind, whatever their type.
    if isinstance(e, jax.errors.JaxRuntimeError) or re.match(
        "[A-Z_]+: ", str(e)
    ):
      interrupts.leave(
          exit_status.REQUEUE,
          "another process of this run, or its machine, was lost: run the same"
          " commands again; the run resumes from its last checkpoint",
      )
    traceback.print_exc()
    interrupts.leave(exit_status.ERROR, "")
