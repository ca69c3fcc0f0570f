"""Tasks over many devices: the same sum, the same noise, the same bound."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from episodic_dp import private
from episodic_dp import training

_SCRIPT = pathlib.Path(__file__).with_name("on_many_devices.py")


def run_script(*arguments):
  """What the script finds on eight forced host devices."""
  flags = (
      "--xla_force_host_platform_device_count=8"
      " --xla_backend_optimization_level=0"  # Compiles faster.
  )
  done = subprocess.run(
      [sys.executable, str(_SCRIPT), *arguments],
      env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
  )
  assert not done.returncode, done.stderr[-2000:]
  return json.loads(done.stdout)


def is_right(found):
  """Within rounding of one device, and one task within twice the clip norm."""
  return found["sum"] < 1e-6 and found["move"] <= 2 * (1 + 1e-5)


def check_steps(found):
  for name, case in found.items():
    for devices, gave in case["devices"].items():
      assert gave["params"] < 1e-6, (name, devices)
      assert gave["facts"] < 1e-5, (name, devices)
      np.testing.assert_allclose(*gave["clip"], rtol=1e-5, err_msg=name)
    assert case["tasks"] > 3, name


@pytest.mark.slow
def test_all_kinds_of_steps_on_many_devices():
  found = run_script("steps")
  assert len(found) == 7
  assert found["fixed"]["devices"].keys() == {"1", "2", "4", "8"}
  assert found["fixed"]["devices"]["1"]["params"] == 0  # The same bits.
  check_steps(found)
  sums = run_script("sums", "1", "2", "4", "8")
  assert all(is_right(sums[n]) for n in ("1", "2", "4", "8"))
  # What would sum gradients before they are clipped breaks the bound itself.
  assert not is_right(sums["planted"]) and sums["planted"]["move"] > 2


def test_other_meshes_are_named():
  auto = (jax.sharding.AxisType.Auto,)
  wrong = jax.make_mesh((1,), ("data",), axis_types=auto)
  explicit = jax.make_mesh(
      (1,), ("tasks",), axis_types=(jax.sharding.AxisType.Explicit,)
  )
  for mesh, named in ((wrong, "data"), (explicit, "Explicit"), ("two", "two")):
    with pytest.raises(ValueError, match=f"{named}.*training.make_mesh"):
      private.Compute(mesh=mesh)
  with pytest.raises(training.RunError) as error:
    training.make_mesh(99)
  assert "devices=99" in str(error.value)
