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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import flatten_util
from jax import lax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import adaptive
from episodic_dp.private import programs
from episodic_dp.private import task_sum

AXIS = "tasks"
_REPLICATED = jax.sharding.PartitionSpec()
_PARTS = jax.sharding.PartitionSpec(AXIS)


def make_mesh(devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
  """A mesh of one axis, `tasks`."""
  # The default, Explicit, does not know vmapped convolutions.
  auto = (jax.sharding.AxisType.Auto,)
  return jax.make_mesh(
      (len(devices),), (AXIS,), axis_types=auto, devices=devices
  )


def check_mesh(mesh: Any) -> None:
  """Refuse a mesh that a step cannot share its tasks over.

  Raises:
    ValueError: not a mesh of one `tasks` axis of type Auto.
  """
  if not isinstance(mesh, jax.sharding.Mesh):
    raise ValueError(
        f"mesh {mesh!r} is no jax.sharding.Mesh: pass training.make_mesh(),"
        " \"all\" for all devices, or None for one"
    )
  auto = (jax.sharding.AxisType.Auto,)
  if mesh.axis_names != (AXIS,) or mesh.axis_types != auto:
    raise ValueError(
        f"mesh axes {mesh.axis_names} of types"
        f" {[t.name for t in mesh.axis_types]} must be one axis"
        f" '{AXIS}' of type Auto: pass training.make_mesh()"
    )


class BlockSum(NamedTuple):
  """The totals of a step, added up block by block on all devices of a mesh.

  Slot i is that of device i modulo their number, so that every device computes
  as many tasks as the others, or one less: the drawn ones come first.

  Attributes:
    begin: state -> totals of each device, without a task.
    add: (state, totals of each device, tasks, first) -> totals of each device;
      of `tasks` each device has its part along the first axes, and `first` is
      the place of a part among all that the device computes.
    total: totals of each device -> their sum, the same on all devices.
  """

  begin: Callable[[Any], task_sum.Totals]
  add: Callable[..., task_sum.Totals]
  total: Callable[[task_sum.Totals], task_sum.Totals]


def block_sum(
    mesh: jax.sharding.Mesh,
    begin: Callable[[Any, int], task_sum.Totals],
    add: Callable[..., task_sum.Totals],
    *,
    slots: int,
) -> BlockSum:
  """The parts of a sum whose tasks come block by block.

  Args:
    mesh: see `check_mesh`.
    begin: as in `sharded_sum`.
    add: likewise.
    slots: of a step.
  """

  def on_devices(function: Callable[..., Any], *specs: Any) -> Any:
    *inputs, output = specs
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=tuple(inputs),
        out_specs=output,
        check_vma=False,
    )

  def begin_on_device(state: Any) -> task_sum.Totals:
    return _stacked(_varying(begin(state, -(-slots // mesh.size))))

  def add_on_device(
      state: Any, totals: task_sum.Totals, tasks: task_sum.Tasks, first: Any
  ) -> task_sum.Totals:
    slot = lax.axis_index(AXIS) + mesh.size * first
    totals = add(_varying(state), _own(totals), tasks, slot, mesh.size)
    return _stacked(totals)

  def total_on_device(totals: task_sum.Totals) -> task_sum.Totals:
    return _total(_own(totals), mesh.size)

  return BlockSum(
      on_devices(begin_on_device, _REPLICATED, _PARTS),
      on_devices(
          add_on_device, _REPLICATED, _PARTS, _PARTS, _REPLICATED, _PARTS
      ),
      on_devices(total_on_device, _PARTS, _REPLICATED),
  )


def sharded_sum(
    mesh: jax.sharding.Mesh,
    begin: Callable[[Any, int], task_sum.Totals],
    add: Callable[..., task_sum.Totals],
) -> Callable[[Any, task_sum.Tasks], task_sum.Totals]:
  """The totals of all tasks, computed by all devices of a mesh.

  They are shared out as `BlockSum` says.

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
    return _total(totals, devices)

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
      self,
      mesh: jax.sharding.Mesh,
      update: Callable[..., Any],
      data: tuple[Any, ...],
  ):
    """Keep the step, compiled when it is first called, and what it reads.

    Args:
      mesh: the devices.
      update: (state, *data) -> (state, metrics).
      data: on every device already.
    """
    self._mesh = mesh
    self._update = programs.jit(
        update, donate_argnums=0, out_shardings=replicated(mesh)
    )
    self._compiled: Any = None
    self._inside = jax.jit(update)
    self._data = data

  def __call__(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """One step, by all devices."""
    if isinstance(state.step, jax.core.Tracer):  # Within another program.
      return self._inside(state, *self._data)
    run = self._compiled or self._update
    return run(placed_state(self._mesh, state), *self._data)

  def traced(self, state: Any) -> tuple[core.ClosedJaxpr, ...]:
    """See `meta_step.Step`."""
    placed = replicate(self._mesh, state)
    return (self._update.trace(placed, *self._data).jaxpr,)

  def compile(self, state: Any) -> None:
    """See `meta_step.Step`."""
    placed = replicate(self._mesh, state)
    # This program is called from now on: `jit` would compile again.
    self._compiled = self._update.lower(placed, *self._data).compile()


def placed_state(mesh: jax.sharding.Mesh, state: Any) -> Any:
  """The state on every device, for a step that may begin."""
  if mesh.devices.flat[0].platform == "cpu":
    # Steps in a queue would take the threads that the devices of the first one
    # need for their all-reduce: it would hang, and fail after 40 s.
    jax.block_until_ready(state)
  return replicate(mesh, state)


def in_parts(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """The sharding of arrays that `parts` makes."""
  return jax.sharding.NamedSharding(mesh, _PARTS)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """The sharding that puts the whole of an array on every device."""
  return jax.sharding.NamedSharding(mesh, _REPLICATED)


def parts(
    mesh: jax.sharding.Mesh, make: Callable[[int], Any]
) -> Any:
  """Arrays of which every device of a mesh has a part, along the first axis.

  Args:
    mesh: of the devices.
    make: number of a device in the mesh -> tree of NumPy arrays, its part;
      called for the devices of this process.
  """
  own = [
      (device, make(number))
      for number, device in enumerate(mesh.devices.flat)
      if device.process_index == jax.process_index()
  ]
  sharding = in_parts(mesh)

  def place(*arrays: np.ndarray) -> jax.Array:
    length, *rest = arrays[0].shape
    return jax.make_array_from_single_device_arrays(
        (mesh.size * length, *rest),
        sharding,
        [jax.device_put(a, d) for a, (d, _) in zip(arrays, own)],
    )

  return jax.tree.map(place, *(part for _, part in own))


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


def _total(totals: task_sum.Totals, devices: int) -> task_sum.Totals:
  """The sum over the devices of what each of them added up."""
  totals = totals._replace(
      norms=adaptive.scatter(totals.norms, lax.axis_index(AXIS), devices)
  )
  # As one array: one all-reduce, not one for each array.
  flat, restore = flatten_util.ravel_pytree(totals)
  return restore(lax.psum(flat, AXIS))


def _stacked(tree: Any) -> Any:
  """With a first axis, along which the devices have a part each."""
  return jax.tree.map(lambda a: a[None], tree)


def _own(tree: Any) -> Any:
  """The part that `_stacked` gave the device."""
  return jax.tree.map(lambda a: a[0], tree)


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
