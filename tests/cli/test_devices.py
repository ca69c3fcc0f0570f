"""Cores as devices, and programs of several processes."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest

from episodic_dp.cli import devices

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "flags,named",
    [
        (("host:1", None, 0), "--coordinator=host:1 needs --num_processes"),
        (("host:1", 2, 2), "--process_id=2 must be at least 0 and less than"),
        (("host", 2, 0), "--coordinator=host is not HOST:PORT"),
        (("host:", 2, 0), "such as --coordinator=localhost:9999"),
        (("host:abc", 2, 0), "--coordinator=host:abc is not HOST:PORT"),
        (("host:0", 2, 0), "a port from 1 to 65535"),
        (("host:99999", 2, 0), "a port from 1 to 65535"),
        ((":9999", 2, 0), "is not HOST:PORT"),
        ((None, 2, 0), "need --coordinator=HOST:PORT"),
        (("auto", None, 1), "need --coordinator=HOST:PORT"),
    ],
)
def test_flags_of_several_processes_go_together(flags, named):
  with pytest.raises(ValueError) as error:
    devices.join(*flags)
  assert named in str(error.value)


def test_one_process_stays_alone(monkeypatch):
  asked = []
  monkeypatch.setattr(
      "jax.distributed.initialize", lambda *args, **kwargs: asked.append(args)
  )
  monkeypatch.setenv("SLURM_NTASKS", "4")  # An allocation, not a step of srun.
  devices.join(None, None, None)
  assert not asked
  monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
  devices.join(None, None, None)
  devices.join("host:1", 2, 0)
  assert asked == [(None, None, None), ("host:1", 2, 0)]


@pytest.mark.parametrize(
    "count,processes,said",
    [
        (1, 1, "on 1 CPU device"),
        (2, 1, "on 2 CPU devices"),
        (2, 2, "on 2 CPU devices of 2 processes, of which this is 1"),
    ],
)
def test_devices_are_counted_in_words(
    count, processes, said, monkeypatch, caplog
):
  monkeypatch.setattr("jax.devices", lambda: [jax.local_devices()[0]] * count)
  monkeypatch.setattr("jax.process_count", lambda: processes)
  monkeypatch.setattr("jax.process_index", lambda: processes - 1)
  with caplog.at_level("INFO", "absl"):
    devices.log_devices()
  assert caplog.messages == [f"jax {jax.__version__} {said}"]


def test_imports_leave_the_devices_open():
  """Once JAX was asked for devices, cores can no longer become some."""
  code = (
      "import experiments.reproduce, episodic_dp.cli.commands\n"
      "import jax\n"
      "jax.config.update('jax_num_cpu_devices', 3)\n"
      "print(jax.device_count())"
  )
  done = subprocess.run(
      [sys.executable, "-c", code],
      cwd=ROOT,
      env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
      capture_output=True,
      text=True,
  )
  assert done.stdout.split() == ["3"], done.stderr
