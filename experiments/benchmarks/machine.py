"""The machine that is measured on: what it is, and how busy."""

import importlib.metadata
import os
import platform
from typing import Any

_PACKAGES = (
    "jax", "jaxlib", "numpy", "scipy", "optax", "flax", "torch",
    "dp_accounting", "jax_privacy",
)  # fmt: skip


def describe(*, with_jax: bool = True) -> dict[str, Any]:
  """Devices, processor, load and versions; nothing that names the machine.

  Args:
    with_jax: also describe JAX's devices, which imports it.
  """
  devices = {}
  if with_jax:
    import jax  # Lazy import: a benchmark may do without.

    device = jax.devices()[0]
    devices = {
        "device": str(device.device_kind),
        "platform": device.platform,
        "devices": jax.device_count(),
    }
  processor = _processor()
  return {"device": processor} | devices | {
      "processor": processor,
      "cpus": _cpus(),
      "load": load(),
      "python": platform.python_version(),
      **_versions(),
  }


def load() -> float:
  """How many processes were at work, of the last minute."""
  return round(os.getloadavg()[0], 2)


def busy_seconds() -> float | None:
  """Seconds that all CPUs of the machine have worked so far, if it says."""
  try:
    with open("/proc/stat", encoding="ascii") as f:
      fields = [int(x) for x in f.readline().split()[1:]]
  except (OSError, ValueError):  # Not Linux.
    return None
  # user, nice, system, idle, iowait, irq, softirq, steal
  return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      for line in f:
        if line.startswith("model name"):
          return line.split(":", 1)[1].strip()
  except OSError:  # Not Linux: the name below has to do.
    pass
  return platform.processor() or platform.machine()


def _cpus() -> int:
  """How many CPUs the process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _versions() -> dict[str, str]:
  found = {}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found
