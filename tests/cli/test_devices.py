"""Cores as devices, and programs of several processes."""


import pytest

from episodic_dp.cli import devices
from tests import processes


@pytest.mark.parametrize(
    "flags",
    [
        ("host:1", None, 0), ("host:1", 2, 2), ("host", 2, 0),
        ("host:", 2, 0), ("host:abc", 2, 0), ("host:0", 2, 0),
        (":9999", 2, 0), (None, 2, 0), ("auto", None, 1),
    ],
)
def test_flags_of_several_processes_go_together(flags):
  with pytest.raises(ValueError, match="expected all three, such as --coord"):
    devices.join(*flags)


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


@pytest.mark.slow
def test_imports_leave_the_devices_open():
  """Once JAX was asked for devices, cores can no longer become some."""
  code = (
      "import experiments.reproduce, episodic_dp.cli.commands\n"
      "import jax\n"
      "jax.config.update('jax_num_cpu_devices', 3)\n"
      "print(jax.device_count())"
  )
  found = processes.printed("-c", code, JAX_PLATFORMS="cpu", XLA_FLAGS="")
  assert found.split() == ["3"]
