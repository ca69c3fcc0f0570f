"""The devices that share out the tasks of a step."""

import jax

from episodic_dp import backends
from episodic_dp import errors
from episodic_dp.private import sharding


def make_mesh(devices: int | None = None) -> jax.sharding.Mesh:
  """A mesh of one axis, `tasks`, for `private.Compute(mesh=...)`.

  Args:
    devices: how many of the devices of all processes, of which every core of a
      CPU is one; None for all.

  Raises:
    RunError: there are not so many, or some process would have none.
  """
  if devices is None:
    backends.warn_of_idle_cores()
  else:
    backends.ask_for_cores()
  there = jax.devices()
  count = len(there) if devices is None else devices
  if not isinstance(count, int) or not 1 <= count <= len(there):
    raise errors.RunError(
        f"devices={devices!r} must be between 1 and the {len(there)} devices"
        " that JAX sees, or None for all of them; of a command,"
        f" --config.compute.devices={len(there)}"
    )
  if jax.process_count() > 1 and count < len(there):
    raise errors.RunError(
        f"devices={devices} of the {len(there)} devices of"
        f" {jax.process_count()} processes would leave some idle: leave it"
        " None, or start fewer processes"
    )
  return sharding.make_mesh(there[:count])
