"""What the last bits of a run depend on, beside its configuration.

The noise of a step does not depend on it (`identity` refuses where it would);
how sums are rounded does.
"""

from collections.abc import Mapping
import os
import pathlib
import platform

import jax
import jaxlib

from episodic_dp import _version

# Where `traced` parts of a step can be compared: the same source gives the same
# program only under these.
CONDITIONS = (
    "episodic_dp", "jax", "backend", "matmul_precision", "x64",
    "threefry_partitionable",
)  # fmt: skip
_INSTRUCTIONS = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_tile")


def describe(
    *, devices: int, microbatch_size: int, resident: bool
) -> dict[str, str]:
  """Name -> value of what the bits of a run depend on.

  Args:
    devices: that share the tasks of a step, of all processes.
    microbatch_size: tasks that each of them computes together.
    resident: whether the images lie on the devices.
  """
  device = jax.devices()[0]
  return {
      "episodic_dp": _version.__version__,
      "jax": jax.__version__,
      "jaxlib": jaxlib.__version__,
      "backend": device.platform,
      "device": device.device_kind,
      "devices": str(devices),
      "processes": str(jax.process_count()),
      "microbatch_size": str(microbatch_size),
      "resident": str(resident),
      "matmul_precision": _setting("jax_default_matmul_precision"),
      "x64": _setting("jax_enable_x64"),
      "threefry_partitionable": _setting("jax_threefry_partitionable"),
      "cores": str(len(os.sched_getaffinity(0))),
      "instructions": _instructions(),
      # Not those that name folders, as for what is dumped.
      "XLA_FLAGS": " ".join(
          flag
          for flag in os.environ.get("XLA_FLAGS", "").split()
          if "/" not in flag
      ),
      "few_optimizations": _setting("jax_disable_most_optimizations"),
  }


def differences(
    before: Mapping[str, str], now: Mapping[str, str]
) -> list[str]:
  """What differs, in order, each as "name before -> now"."""
  return [
      f"{name} {before.get(name, 'unknown')!r} -> {now.get(name, 'unknown')!r}"
      for name in dict.fromkeys((*now, *before))
      if before.get(name) != now.get(name)
  ]


def reproducible_remedy(backend: str) -> str:
  """What makes the bits of two runs equal on a kind of device."""
  if backend == "cpu":
    return "use the same devices, cores and versions for equal bits"
  return (
      "for equal bits use the same device and versions, with"
      " XLA_FLAGS='--xla_gpu_deterministic_ops=true"
      " --xla_gpu_autotune_level=0'"
  )


def _setting(name: str) -> str:
  return str(jax.config.values.get(name))


def _instructions() -> str:
  """Those instruction sets of the processor that change how sums round."""
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError):
    return platform.machine()
  for line in text.splitlines():
    if line.startswith(("flags", "Features")):
      known = set(line.partition(":")[2].split())
      found = [name for name in _INSTRUCTIONS if name in known]
      return " ".join([platform.machine(), *found])
  return platform.machine()
