"""Where a program computes: the cores of one machine, or several processes."""

import os
import re

from absl import logging


def log_devices() -> None:
  """One line about where the program computes."""
  # Lazy import: a command that only accounts runs without JAX.
  import jax

  devices, processes = jax.devices(), jax.process_count()
  there = f"{len(devices)} {devices[0].platform.upper()} device"
  if len(devices) > 1:
    there += "s"
  if processes > 1:
    here = jax.process_index()
    there += f" of {processes} processes, of which this is {here}"
  logging.info("jax %s on %s", jax.__version__, there)


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Makes this program one of several that train together, where it is one.

  A program that is alone takes every core of its CPU for a device.

  Args:
    coordinator: HOST:PORT of process 0, with the numbers below; "auto" where
      JAX knows the cluster (TPU, SLURM, Open MPI, ...); None for one process,
      unless `srun` or `mpirun` started several.
    num_processes: how many there are.
    process_id: the number of this one, from 0.

  Raises:
    ValueError: flags that do not go together, or processes that do not meet.
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
    port = re.fullmatch(r".+:([0-9]{1,5})", coordinator)
    if port is None or not 1 <= int(port[1]) <= 65535:
      raise ValueError(
          f"--coordinator={coordinator} is not HOST:PORT with a port from 1 to"
          " 65535: name the machine of process 0 and a free port of it, such as"
          " --coordinator=localhost:9999"
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
    # Lazy import: a command that only accounts runs without JAX.
    from episodic_dp import backends

    backends.use_all_cores()
    return
  # Lazy import: as above.
  from episodic_dp.cli import peers

  peers.connect(
      None if coordinator == "auto" else coordinator,
      num_processes,
      process_id,
  )
