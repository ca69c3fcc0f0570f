"""A step's tasks over many devices: each sums a share, one all-reduce adds up.

Formal guarantees
-----------------
The sum over the devices is that of one device, up to the rounding of float32
additions in another order: every task is clipped on the device that computes
it, before anything is added. Noise is drawn outside, once, from the step's key;
it does not depend on the devices.

`jax.grad` inside `jax.shard_map` sums a gradient over the devices when what it
differentiates by is the same on all of them, and such sums would be clipped in
place of tasks, silently. Two things prevent it: parameters are cast to differ
between devices (`_varying`); and the rewriting that inserts these sums
(`check_vma`) is off, since a learner may differentiate by constants of its own,
such as a head that begins at zero, which no cast outside reaches.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import flatten_util
from jax import lax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import adaptive
from episodic_dp.private import task_sum

AXIS = "tasks"
_REPLICATED = jax.sharding.PartitionSpec()


def check_mesh(mesh: Any) -> None:
  """Refuse a mesh that a step cannot share its tasks over.

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


def sharded_sum(
    mesh: jax.sharding.Mesh,
    begin: Callable[[Any, int], task_sum.Totals],
    add: Callable[..., task_sum.Totals],
) -> Callable[[Any, task_sum.Tasks], task_sum.Totals]:
  """The totals of all tasks, computed by all devices of a mesh.

  Slot i goes to device i modulo their number, so that every device computes as
  many tasks as the others, or one less: the drawn ones come first.

  Args:
    mesh: see `check_mesh`.
    begin: (state, slots of a device) -> totals without any task.
    add: (state, totals, tasks, first slot, slots from one task to the next) ->
      totals.

  Returns:
    (state, tasks) -> totals, the same on all devices.
  """
  devices = mesh.size

  def sum_of_device(state: Any, tasks: task_sum.Tasks) -> task_sum.Totals:
    device = lax.axis_index(AXIS)
    own = tasks._replace(
        rows=_share_of_device(tasks.rows, device, devices),
        mask=_share_of_device(tasks.mask, device, devices),
    )
    totals = _varying(begin(state, own.mask.shape[0]))
    totals = add(_varying(state), totals, own, device, devices)
    totals = totals._replace(
        norms=adaptive.scatter(totals.norms, device, devices)
    )
    # As one array: one all-reduce, not one for each array.
    flat, restore = flatten_util.ravel_pytree(totals)
    return restore(lax.psum(flat, AXIS))

  return jax.shard_map(
      sum_of_device,
      mesh=mesh,
      in_specs=(_REPLICATED, _REPLICATED),
      out_specs=_REPLICATED,
      check_vma=False,
  )


class Step:
  """A step on all devices of a mesh: state -> (state, metrics).

  A state that lies on one device yet, as the first one, is replicated.
  """

  def __init__(
      self, mesh: jax.sharding.Mesh, update: Any, data: tuple[Any, ...]
  ):
    """Keep the compiled step and what it reads.

    Args:
      mesh: the devices.
      update: jitted (state, *data) -> (state, metrics).
      data: on every device already.
    """
    self._mesh = mesh
    self._update = update
    self._data = data
    self._on_cpu = mesh.devices.flat[0].platform == "cpu"

  def __call__(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """One step, by all devices."""
    if self._on_cpu:
      # Steps in a queue would take the threads that the devices of the first
      # one need for their all-reduce: it would hang, and fail after 40 s.
      jax.block_until_ready(state)
    return self._update(replicate(self._mesh, state), *self._data)

  def traced(self, state: Any) -> tuple[core.ClosedJaxpr, ...]:
    """See `meta_step.Step`."""
    placed = replicate(self._mesh, state)
    return (self._update.trace(placed, *self._data).jaxpr,)

  def compile(self, state: Any) -> None:
    """Compile the step without taking it.

    Processes that compile at unlike speeds do so before the first step, whose
    collectives wait for 30 s on a CPU and then fail.
    """
    placed = replicate(self._mesh, state)
    # The compiled program is called from now on: `jit` would compile again.
    self._update = self._update.lower(placed, *self._data).compile()


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """The sharding that puts the whole of an array on every device."""
  return jax.sharding.NamedSharding(mesh, _REPLICATED)


def replicate(mesh: jax.sharding.Mesh, tree: Any) -> Any:
  """The arrays on every device of the mesh, also over several processes.

  Args:
    mesh: where to.
    tree: of arrays that every process holds alike; those that are replicated
      already stay where they are.
  """
  sharding = replicated(mesh)

  def place(array: Any) -> jax.Array:
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
  """The tree cast to differ between devices; see the module's text."""
  return jax.tree.map(lambda a: lax.pcast(a, AXIS, to="varying"), tree)


def _share_of_device(
    array: jax.Array, device: jax.Array, devices: int
) -> jax.Array:
  """Every `devices`-th entry from entry `device` on, padded with zeros."""
  padding = -array.shape[0] % devices
  array = jnp.pad(array, ((0, padding),) + ((0, 0),) * (array.ndim - 1))
  shares = array.reshape(-1, devices, *array.shape[1:])
  return lax.dynamic_index_in_dim(shares, device, axis=1, keepdims=False)
