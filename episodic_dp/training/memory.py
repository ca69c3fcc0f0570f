"""What a run says when a device, or the machine, has no memory for a step."""

from collections.abc import Iterator
import contextlib

import jax

from episodic_dp import errors
from episodic_dp.training import spec as spec_lib


@contextlib.contextmanager
def told(spec: spec_lib.TrainingSpec) -> Iterator[None]:
  """Turns a want of memory into one sentence.

  Raises:
    RunError: with the number to set.
  """
  try:
    yield
  except (MemoryError, jax.errors.JaxRuntimeError) as e:
    if isinstance(e, jax.errors.JaxRuntimeError) and (
        "RESOURCE_EXHAUSTED" not in str(e)
    ):
      raise
    mesh = spec.compute.mesh
    devices = mesh.size if isinstance(mesh, jax.sharding.Mesh) else 1
    size = spec.compute.microbatch_size
    raise errors.RunError(
        f"there is no memory for a step with {_tasks(size)} at a time on each"
        f" of {devices} devices: run the same command with"
        f" {_remedy(size, devices)}; it goes on from the last checkpoint"
    ) from e


def _tasks(count: int) -> str:
  return "a task" if count == 1 else f"{count} tasks"


def _remedy(size: int, devices: int) -> str:
  """What takes half of the memory."""
  if size > 1:
    return f"--config.compute.microbatch_size={size // 2}"
  if devices > 1 and jax.default_backend() == "cpu":  # They share it.
    return f"--config.compute.devices={devices // 2}"
  return "a narrower model or fewer queries, or on a device with more memory"
