"""A step's tasks over many devices: each sums a share, one all-reduce adds up.

Formal guarantees
-----------------
The sum over the devices is that of one device, up to the rounding of float32
additions in another order: every task is clipped on the device that computes
it, before anything is added. Noise is drawn outside, once, from the step's key;
it does not depend on the devices.

Two locks keep a silent error out. `jax.grad` inside `jax.shard_map` sums a
gradient over the devices when what it differentiates by is the same on all of
them, and such sums would be clipped in place of tasks. Hence parameters are
cast to differ first; and since a learner may differentiate by constants of its
own (a head that begins at zero), which no cast outside reaches, the rewriting
that inserts these sums (`check_vma`) is off.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import flatten_util
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import adaptive
from episodic_dp.private import task_sum

AXIS = "tasks"
_SAME = jax.sharding.PartitionSpec()


def check(mesh: Any) -> None:
  """Refuses what a step cannot share its tasks over.

  Raises:
    ValueError: not a mesh of one `tasks` axis of type Auto.
  """
  if not isinstance(mesh, jax.sharding.Mesh):
    raise ValueError(
        f"mesh {mesh!r} is no jax.sharding.Mesh: pass training.make_mesh(), or"
        " None for one device"
    )
  auto = (jax.sharding.AxisType.Auto,)
  if mesh.axis_names != (AXIS,) or mesh.axis_types != auto:
    raise ValueError(
        f"mesh axes {mesh.axis_names} of types"
        f" {[t.name for t in mesh.axis_types]} must be one axis"
        f" '{AXIS}' of type Auto: pass training.make_mesh()"
    )


def summed(
    mesh: jax.sharding.Mesh,
    begin: Callable[[Any, int], task_sum.Totals],
    add: Callable[..., task_sum.Totals],
) -> Callable[[Any, task_sum.Tasks], task_sum.Totals]:
  """The totals of all tasks, computed by all devices of a mesh.

  Slot i goes to device i modulo their number, so that the drawn tasks, which
  come first, are dealt out evenly whatever their count.

  Args:
    mesh: see `check`.
    begin: (state, slots of a device) -> totals without any task.
    add: (state, totals, tasks, first slot, slots from one task to the next) ->
      totals.

  Returns:
    (state, tasks) -> totals, the same on all devices.
  """
  devices = mesh.size

  def of_device(state, tasks):
    device = lax.axis_index(AXIS)
    own = tasks._replace(
        rows=_dealt(tasks.rows, device, devices),
        mask=_dealt(tasks.mask, device, devices),
    )
    totals = _varying(begin(state, own.mask.shape[0]))
    totals = add(_varying(state), totals, own, device, devices)
    totals = totals._replace(
        norms=adaptive.among(totals.norms, device, devices)
    )
    # As one array: one all-reduce, not one for each array.
    flat, restore = flatten_util.ravel_pytree(totals)
    return restore(lax.psum(flat, AXIS))

  return jax.shard_map(
      of_device,
      mesh=mesh,
      in_specs=(_SAME, _SAME),
      out_specs=_SAME,
      check_vma=False,
  )


class Step:
  """state -> (state, metrics), for a state that may lie on one device yet."""

  def __init__(
      self, mesh: jax.sharding.Mesh, update: Any, data: tuple[Any, ...]
  ):
    """`update` is jitted, (state, *data) -> (state, metrics)."""
    self._mesh = mesh
    self._update = update
    self._data = data
    self._on_cpu = mesh.devices.flat[0].platform == "cpu"

  def __call__(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
    if self._on_cpu:
      # Steps that wait in a queue take the threads that the devices of the
      # first one need to meet: the program would hang, and end after 40 s.
      jax.block_until_ready(state)
    return self._update(replicate(self._mesh, state), *self._data)

  def compile(self, state: Any) -> None:
    """Compiles the step without taking it.

    Processes that compile at unlike speeds are to meet before the first step:
    the collectives of a CPU wait for 30 s and fail then.
    """
    placed = replicate(self._mesh, state)
    # What is compiled is called from now on: a call would compile again.
    self._update = self._update.lower(placed, *self._data).compile()


def everywhere(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """The whole of an array on every device."""
  return jax.sharding.NamedSharding(mesh, _SAME)


def replicate(mesh: jax.sharding.Mesh, tree: Any) -> Any:
  """The arrays on every device of the mesh, also over several processes.

  Args:
    mesh: where to.
    tree: of arrays that every process holds alike; those that are replicated
      already stay where they are.
  """
  sharding = everywhere(mesh)

  def place(array):
    if isinstance(array, jax.Array):
      if array.sharding == sharding:
        return array
      if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        impl = jax.random.key_impl(array)
        data = place(jax.random.key_data(array))
        return jax.random.wrap_key_data(data, impl=impl)
    host = np.asarray(array)
    return jax.make_array_from_callback(
        host.shape, sharding, lambda index: host[index]
    )

  return jax.tree.map(place, tree)


def _varying(tree: Any) -> Any:
  return jax.tree.map(lambda a: lax.pcast(a, AXIS, to="varying"), tree)


def _dealt(array: jax.Array, device: jax.Array, devices: int) -> jax.Array:
  """Every `devices`-th entry from entry `device` on, filled up with zeros."""
  padding = -array.shape[0] % devices
  array = jnp.pad(array, ((0, padding),) + ((0, 0),) * (array.ndim - 1))
  hands = array.reshape(-1, devices, *array.shape[1:])
  return lax.dynamic_index_in_dim(hands, device, axis=1, keepdims=False)
