"""Where a program computes: the cores of one machine, or several processes."""

import os

from absl import logging

_MOST_CORES = 8  # As devices: what is tested, and what steps have tasks for.


def log_devices() -> None:
  """One line about where the program computes."""
  # Lazy import: a command that only accounts runs without JAX.
  import jax

  devices = ", ".join(map(str, jax.devices()))
  logging.info("jax %s on %s", jax.__version__, devices)
  if jax.process_count() > 1:
    logging.info(
        "process %d of %d", jax.process_index(), jax.process_count()
    )


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Makes this program one of several that train together, where it is one.

  A program that is alone takes the cores of its CPU for devices (`use_cores`).

  Args:
    coordinator: HOST:PORT of process 0, with the numbers below; "auto" where
      JAX knows the cluster (TPU, SLURM, Open MPI, ...); None for one process,
      unless `srun` or `mpirun` started several.
    num_processes: how many there are.
    process_id: the number of this one, from 0.

  Raises:
    ValueError: flags that do not go together.
  """
  numbers = num_processes is not None, process_id is not None
  if coordinator not in (None, "auto"):
    if not all(numbers):
      raise ValueError(
          f"--coordinator={coordinator} needs --num_processes and --process_id"
      )
    if not 0 <= process_id < num_processes:  # type: ignore[operator]
      raise ValueError(
          f"--process_id={process_id} must be at least 0 and less than"
          f" --num_processes={num_processes}"
      )
  elif any(numbers):
    raise ValueError(
        f"--num_processes={num_processes} --process_id={process_id} need"
        " --coordinator=HOST:PORT"
    )
  # Of a step of srun, not of the allocation: its batch script is one process.
  counts = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
  if coordinator is None and not any(
      os.environ.get(name, "1") != "1" for name in counts
  ):
    use_cores()
    return
  import jax  # Lazy import: as above.

  jax.distributed.initialize(
      None if coordinator == "auto" else coordinator,
      num_processes,
      process_id,
      # Of a process that was killed; the others would wait for longer.
      heartbeat_timeout_seconds=60,
  )


def use_cores() -> None:
  """Lets JAX see one CPU device for every core, before it computes.

  A core with tasks of its own does more than several that share the products
  of one task. A count in XLA_FLAGS or JAX_NUM_CPU_DEVICES stays, and so do the
  devices of a program that has computed already.
  """
  name = "JAX_NUM_CPU_DEVICES"
  flag = "xla_force_host_platform_device_count"
  if name in os.environ or flag in os.environ.get("XLA_FLAGS", ""):
    return
  import jax  # Lazy import: as above.

  try:
    cores = len(os.sched_getaffinity(0))
  except AttributeError:  # Not Linux.
    cores = os.cpu_count() or 1
  try:
    jax.config.update("jax_num_cpu_devices", min(cores, _MOST_CORES))
  except RuntimeError:
    logging.info("JAX has computed already: it keeps its devices")
