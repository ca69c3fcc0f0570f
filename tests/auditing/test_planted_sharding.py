"""The audit finds gradients that devices add up before they are clipped."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

_SCRIPT = pathlib.Path(__file__).with_name("planted_on_devices.py")


@pytest.mark.slow  # Three steps are compiled for four devices.
def test_gradients_summed_over_devices_before_clipping():
  flags = (
      "--xla_force_host_platform_device_count=4"
      " --xla_backend_optimization_level=0"  # Compiles faster.
  )
  done = subprocess.run(
      [sys.executable, str(_SCRIPT)],
      env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
  )
  assert not done.returncode, done.stderr[-2000:]
  found = json.loads(done.stdout)
  assert found["sound"] < found["claim"]
  assert found["planted"] > found["claim"] + 0.3
