"""Meshes of devices, and arrays placed on them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

AXIS = "tasks"
REPLICATED = jax.sharding.PartitionSpec()
PARTS = jax.sharding.PartitionSpec(AXIS)


def make_mesh(devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
  """Make a mesh of one axis, `tasks`."""
  # The default, Explicit, does not know vmapped convolutions.
  auto = (jax.sharding.AxisType.Auto,)
  return jax.make_mesh(
      (len(devices),), (AXIS,), axis_types=auto, devices=devices
  )


def placed_state(mesh: jax.sharding.Mesh, state: Any) -> Any:
  """Return the state on every device, ready for a step."""
  if mesh.devices.flat[0].platform == "cpu":
    # Queued steps would take the threads that the devices of the first one need
    # for their all-reduce: it would hang, and fail after 40 s.
    jax.block_until_ready(state)
  return replicate(mesh, state)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Return the sharding that puts a whole array on every device."""
  return jax.sharding.NamedSharding(mesh, REPLICATED)


def in_parts(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Return the sharding of arrays that `parts` makes."""
  return jax.sharding.NamedSharding(mesh, PARTS)


def parts(mesh: jax.sharding.Mesh, make: Callable[[int], Any]) -> Any:
  """Make arrays that are divided among the devices along the first axis.

  Args:
    mesh: the devices.
    make: number of a device in the mesh -> tree of NumPy arrays, its part;
      called for the devices of this process.
  """
  devices, own = [], []
  for number, device in enumerate(mesh.devices.flat):
    if device.process_index == jax.process_index():
      devices.append(device)
      own.append(make(number))
  sharding = in_parts(mesh)

  def place(*arrays: np.ndarray) -> jax.Array:
    length, *rest = arrays[0].shape
    return jax.make_array_from_single_device_arrays(
        (mesh.size * length, *rest),
        sharding,
        [*map(jax.device_put, arrays, devices)],
    )

  return jax.tree.map(place, *own)


def replicate(mesh: jax.sharding.Mesh, tree: Any) -> Any:
  """Put arrays on every device of the mesh, also over several processes.

  Args:
    mesh: the devices.
    tree: arrays that are equal in every process; those that are replicated
      already are not copied.
  """
  sharding = replicated(mesh)

  def place(array: Any) -> jax.Array:
    if getattr(array, "sharding", None) == sharding:
      return array
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
      data = place(jax.random.key_data(array))
      return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    host = np.asarray(array)
    return jax.make_array_from_callback(
        host.shape, sharding, lambda index: host[index]
    )

  return jax.tree.map(place, tree)
