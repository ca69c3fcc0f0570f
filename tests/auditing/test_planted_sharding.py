"""The audit finds gradients that devices add up before they are clipped."""

import json
import pathlib

import pytest

from tests import processes

_SCRIPT = pathlib.Path(__file__).with_name("planted_on_devices.py")


@pytest.mark.slow  # Three steps are compiled for four devices.
def test_gradients_summed_over_devices_before_clipping():
  flags = (
      "--xla_force_host_platform_device_count=4"
      " --xla_backend_optimization_level=0"  # Compiles faster.
  )
  found = json.loads(
      processes.printed(_SCRIPT, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
  )
  assert found["sound"] < found["claim"]
  assert found["planted"] > found["claim"] + 0.3
