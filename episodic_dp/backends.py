"""Settings that depend on the kind of device, with their reasons.

On a CPU every core is a separate device (docs/decisions/speed.md). JAX must be
configured for this before its first computation, so every part of the library
that may compute first calls `ask_for_cores`.

A CPU ("cpu") uses separate forms of some convolutions, which exist only because
their plain forms are slow there (`models.convolution`). It computes one task at
a time, since batched products are slower there than single ones, compiles with
few optimisations, and compiles one inner step as a loop
(docs/decisions/speed.md).

An accelerator ("gpu", "tpu") takes XLA's default options, and computes
convolutions with a kernel for each task as products of patches. A GPU has a
fast convolution for a kernel that all tasks share: with it a step of ProtoNet
takes three quarters of the time. Only wide products keep an accelerator busy,
so it computes as many tasks at a time as fit half of its memory at a GiB a
task, and at most 64. A step is one program: nothing is launched from Python in
between. Its products of float32 arrays use operands of fewer bits unless
JAX_DEFAULT_MATMUL_PRECISION is set, TF32 on a GPU and bfloat16 on a TPU, and
are accumulated in float32.
docs/clusters.md has what was measured on a GPU. No TPU has been measured.
"""

from collections.abc import Callable
import functools
import math
import os
from typing import Any, NamedTuple

from absl import logging
import jax
import numpy as np

from episodic_dp.errors import RunError

_MOST_CORES = 8  # Devices: more are not tested, and steps lack tasks for them.


class Choices(NamedTuple):
  """Settings of programs for one kind of device.

  Attributes:
    own_forms: whether a convolution may take a form for a CPU.
    least_channels: output channels from which JAX's own convolution is faster
      than a product of patches if all tasks share the kernel.
    loops: whether the steps of an inner loop are compiled once, as a loop.
    microbatch_size: number of tasks that a device computes together.
    compiler_options: XLA's options for programs that a user waits for; None for
      its defaults.
  """

  own_forms: bool
  least_channels: float
  loops: bool
  microbatch_size: int
  compiler_options: dict[str, Any] | None


# Loops in compact form. XLA removed this option after jaxlib 0.11.0, and a
# process ends if it sets an option that XLA does not know.
SHORT_LOOPS: dict[str, bool] = {}
if jax.__version_info__ < (0, 11):
  SHORT_LOOPS["xla_cpu_use_fusion_emitters"] = False
_MOST_TASKS = 64  # Computed together, of a GiB each.


def name() -> str:
  """Return the default backend: "cpu", "gpu" or "tpu"."""
  ask_for_cores()
  return jax.default_backend()


def choices() -> Choices:
  """Return the settings for the default backend."""
  if name() == "cpu":
    options = SHORT_LOOPS | {"xla_backend_optimization_level": 1}
    return Choices(
        own_forms=True,
        least_channels=8,
        loops=True,
        microbatch_size=1,
        compiler_options=options,
    )
  least_channels = math.inf
  if name() == "gpu":
    least_channels = 1
  return Choices(
      own_forms=False,
      least_channels=least_channels,
      loops=False,
      microbatch_size=_tasks_at_once(jax.local_devices()[0]),
      compiler_options=None,
  )


def _tasks_at_once(device: jax.Device) -> int:
  """Return a power of two; 32 for a device of unknown memory."""
  memory = (device.memory_stats() or {}).get("bytes_limit")
  if memory is None:
    return 32
  fitting = min(max(1, memory // 2 // 2**30), _MOST_TASKS)
  return 1 << (fitting.bit_length() - 1)


def jit(function: Callable[..., Any], **options: Any) -> Any:
  """Return `jax.jit(function)`, compiled with the options of `choices`.

  Use it for the outermost program only.

  Args:
    function: a function of arrays.
    **options: as for `jax.jit`.
  """
  chosen = choices().compiler_options
  if jax.config.values["jax_disable_most_optimizations"]:
    chosen = None  # The user asked for even fewer optimisations.
  return jax.jit(function, compiler_options=chosen, **options)


def jit_init(init: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
  """Return an initialisation by key, compiled as by `jit` when it is called.

  Eager initialisation of a network takes seconds. Within another program it is
  a part of that one.
  """
  compiled, inner = functools.cache(functools.partial(jit, init)), jax.jit(init)

  def call(key: jax.Array) -> Any:
    if isinstance(key, jax.core.Tracer):
      return inner(key)
    with jax.ensure_compile_time_eval():
      return compiled()(key)

  return call


def use_all_cores() -> None:
  """Let JAX see every core of a CPU as a device, at most 8.

  The library does this itself before it computes. A program that computes with
  JAX earlier calls this first, once: `episodic_dp.use_all_cores()`. Given
  counts (XLA_FLAGS, JAX_NUM_CPU_DEVICES, `jax_num_cpu_devices`) are kept, and
  accelerators are not changed. If JAX has already started with one device, a
  warning is logged.
  """
  if not ask_for_cores():
    warn_of_idle_cores()


def ask_for_cores() -> bool:
  """Request a CPU device for every core, unless a count was given.

  One of several processes (`jax.distributed`) keeps its devices.

  Returns:
    Whether the request was in time: JAX had not started, or had a count.
  """
  if (
      # JAX_NUM_CPU_DEVICES is the initial value of the setting.
      jax.config.values["jax_num_cpu_devices"] >= 0
      or "xla_force_host_platform_device_count" in os.environ.get(
          "XLA_FLAGS", ""
      )
      or jax.distributed.is_initialized()
  ):
    return True
  try:
    jax.config.update("jax_num_cpu_devices", _cores())
  except RuntimeError:  # JAX has computed already.
    return False
  return True


@functools.cache  # Once per process.
def warn_of_idle_cores() -> None:
  """Warn once if JAX started with one CPU device and there are more cores."""
  if (
      _cores() == 1
      or ask_for_cores()
      or jax.default_backend() != "cpu"
      or jax.local_device_count() > 1
  ):
    return
  logging.warning(
      "JAX started with one CPU device, and %d cores could be devices: call"
      " episodic_dp.use_all_cores() before anything else computes with JAX (in"
      " a notebook: restart the kernel and call it in the first cell), or ask"
      " for one device with private.Compute(mesh=None)",
      _cores(),
  )


def check_types() -> None:
  """Raise RunError if JAX makes float64 arrays, for which no step is made."""
  if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
    raise RunError(
        "JAX_ENABLE_X64 is set, and steps and models compute with 32 bits:"
        " unset it, and run the same command again"
    )


def cores() -> int:
  """Return the number of cores of this process."""
  if hasattr(os, "sched_getaffinity"):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _cores() -> int:
  """Return the number of cores of this process to use as devices."""
  return min(cores(), _MOST_CORES)
