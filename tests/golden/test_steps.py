"""Parameters after three private steps, recorded from version 1.0.

Record values again with `python -m tests.golden.test_steps`.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

FILE = pathlib.Path(__file__).with_name("steps.json")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def digests(devices):
  """Run `steps` on a number of CPU devices: name -> [sum, projection]s."""
  done = subprocess.run(
      [sys.executable, "-m", "tests.golden.steps", str(devices)],
      env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
      cwd=ROOT, check=True, capture_output=True, text=True,
  )
  return json.loads(done.stdout)


@pytest.mark.parametrize("devices", [1, 2])
def test_three_steps_give_the_recorded_parameters(devices):
  recorded, found = json.loads(FILE.read_text()), digests(devices)
  assert found.keys() == recorded.keys()
  for name, values in recorded.items():
    np.testing.assert_allclose(
        found[name], values, rtol=2e-5, atol=2e-6, err_msg=name
    )


if __name__ == "__main__":
  FILE.write_text(json.dumps(digests(1), indent=0) + "\n")
