"""How a step is computed, which changes nothing of what it guarantees."""

import dataclasses
from typing import Literal

import jax

from episodic_dp import backends
from episodic_dp.private import sharding


def default_microbatch_size() -> int:
  """Tasks that a device computes together unless `Compute` says otherwise."""
  return backends.choices().microbatch_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
  """How a step is computed; no setting changes what it guarantees.

  Attributes:
    microbatch_size: tasks that a device computes together, whose gradients are
      in its memory at once; by default `default_microbatch_size`.
    mesh: devices that share the tasks of a step out, along its one axis `tasks`
      (`training.make_mesh`); "all" for all that JAX sees, of which every core
      of a CPU is one (one device where several processes run); None for one.
      The sampled tasks and the noise are the same bits whatever the mesh, the
      parameters up to rounding.
    diagnostics: also return "private/..." metrics, which are outside the
      guarantee: keep them apart and unpublished.
    block_bytes: for data that stay on the host, bytes of images that are
      handed to the devices at once (at least one microbatch each); about three
      such blocks are held, one of them on the host.
    noise_terms: how many independent normals the noise on a released number is
      the sum of, over the root of how many: as normal as one, and harder to
      undo by its last bits (docs/decisions/floating_point.md); 4 is what others
      take.

  Raises:
    ValueError: a number below 1, a microbatch beyond int32, or a mesh that is
      not of one axis `tasks`.
  """

  microbatch_size: int = dataclasses.field(
      default_factory=default_microbatch_size
  )
  mesh: jax.sharding.Mesh | Literal["all"] | None = "all"
  diagnostics: bool = False
  block_bytes: int = 2**26
  noise_terms: int = 1

  def __post_init__(self) -> None:
    for name in ("microbatch_size", "block_bytes", "noise_terms"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} {getattr(self, name)} must be at least 1")
    if self.microbatch_size >= 2**31:
      raise ValueError(
          f"microbatch_size {self.microbatch_size} must be below 2^31: no"
          " device computes so many tasks together"
      )
    if self.mesh is not None and self.mesh != "all":
      sharding.check_mesh(self.mesh)

  def device_mesh(self) -> jax.sharding.Mesh | None:
    """The mesh of the devices that are there; None for one device.

    Warns once where cores stay idle, as JAX began without them.
    """
    if not isinstance(self.mesh, str):
      return self.mesh
    if jax.process_count() > 1:
      return None
    backends.warn_of_idle_cores()
    devices = jax.devices()
    return sharding.make_mesh(devices) if len(devices) > 1 else None
