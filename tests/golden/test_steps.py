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

from tests.golden import steps

FILE = pathlib.Path(__file__).with_name("steps.json")
RECORDED = json.loads(FILE.read_text())


def check(found, name):
  np.testing.assert_allclose(
      found, RECORDED[name], rtol=2e-5, atol=2e-6, err_msg=name
  )


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.few(2)
def test_three_steps_give_the_recorded_parameters(name):
  check(steps.digest(steps.cases()[name], 1), name)


@pytest.mark.slow
def test_so_do_two_devices():
  made = subprocess.run(
      [sys.executable, "-m", "tests.golden.steps", "2", *RECORDED],
      env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
      cwd=FILE.resolve().parents[2], check=True, capture_output=True, text=True,
  )
  for name, found in json.loads(made.stdout).items():
    check(found, name)


if __name__ == "__main__":
  FILE.write_text(json.dumps(
      {name: steps.digest(case, 1) for name, case in steps.cases().items()},
      indent=0,
  ) + "\n")
