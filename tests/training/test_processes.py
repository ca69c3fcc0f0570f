"""Two processes train like one, stop together and resume."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from episodic_dp import training
from episodic_dp.training import metrics
from episodic_dp.training import processes

_SCRIPT = pathlib.Path(__file__).with_name("two_processes.py")
_STEPS = 14


def _start(folder, steps, count=1, process=0, port=0, devices=1, more=()):
  numbers = [str(n) for n in (port, count, process)] if count > 1 else []
  flags = f"--xla_force_host_platform_device_count={devices}"
  # The others have no folder, and could not make this one.
  workdir = folder if process == 0 else "/proc/nowhere"
  return subprocess.Popen(
      [sys.executable, str(_SCRIPT), str(workdir), str(steps), *numbers,
       *more],
      env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
  )


def _two(folder, steps, others=None, more=()):
  with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
  return [
      _start(folder, steps if i == 0 else others or steps, 2, i, port, 1, more)
      for i in range(2)
  ]


def _end(started):
  """(exit status, output) of each."""
  ended = []
  for process in started:
    out, err = process.communicate(timeout=400)
    ended.append((process.returncode, out, err[-2000:]))
  return ended


def _params(folder, step):
  checkpoints = training.Checkpoints(folder, read_only=True)
  like = {"w": np.zeros((16, 3), np.float32)}
  found, _ = checkpoints.restore(step, like)
  checkpoints.close()
  return found["w"]


def _distance(folder, expected):
  found = _params(folder, _STEPS)
  return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.slow
def test_two_processes_train_like_one_and_stop_together(tmp_path):
  (alone,) = _end([_start(tmp_path / "one", _STEPS)])
  assert alone[0] == 0, alone
  expected = _params(tmp_path / "one", _STEPS)

  # Two devices of one process share the tasks out by themselves.
  (both,) = _end([_start(tmp_path / "devices", _STEPS, devices=2)])
  assert both[0] == 0, both
  assert _distance(tmp_path / "devices", expected) < 1e-6
  config = json.loads((tmp_path / "devices" / "config.json").read_text())
  assert config["compute"]["devices"] == 2

  # A signal to the one that does not write stops both after the same step.
  two = _two(tmp_path / "two", 5_000)
  path = tmp_path / "two" / metrics.FILE
  while not path.exists() or path.read_bytes().count(b"\n") < 3:
    assert all(p.poll() is None for p in two), _end(two)
  two[1].send_signal(signal.SIGTERM)
  (status, out, err), (other, told, trace) = _end(two)
  assert status == other == 0, err + trace
  steps = out.partition("took ")[2].split()[0]
  assert f"took {steps} SIGTERM" in told
  assert f"stopped by SIGTERM after step {steps}" in out

  # Two that never stopped end where one does.
  (status, out, err), (other, told, trace) = _end(
      _two(tmp_path / "whole", _STEPS)
  )
  assert status == other == 0, err + trace
  assert _distance(tmp_path / "whole", expected) < 1e-6
  assert (tmp_path / "whole" / "guarantee.json").exists()

  # And a run goes on where it was: the first says no to both alike.
  refused = _end(_two(tmp_path / "whole", _STEPS - 4))
  assert [status for status, _, _ in refused] == [1, 1]
  assert f"has done {_STEPS} steps already" in refused[0][1]
  assert f"has done {_STEPS} steps already" in refused[1][1]


@pytest.mark.slow  # Five processes.
def test_data_on_the_host_are_shared_by_devices_and_by_processes(tmp_path):
  (resident,) = _end([_start(tmp_path / "resident", _STEPS, devices=2)])
  assert resident[0] == 0, resident
  expected = _params(tmp_path / "resident", _STEPS)

  for steps in (_STEPS - 5, _STEPS):  # And gone on with.
    (status, *out), = _end([
        _start(tmp_path / "devices", steps, devices=2, more=["host"])
    ])
    assert status == 0, out
  np.testing.assert_array_equal(_params(tmp_path / "devices", _STEPS), expected)

  # Every process gathers what it computes itself.
  ended = _end(_two(tmp_path / "two", _STEPS, more=["host"]))
  assert [status for status, *_ in ended] == [0, 0], ended
  assert _distance(tmp_path / "two", expected) < 1e-6


@pytest.mark.slow
def test_processes_of_another_configuration_are_refused(tmp_path):
  refused = _end(_two(tmp_path, 4, others=5))
  assert [status for status, _, _ in refused] == [1, 1]
  assert "another process of this run failed" in refused[0][1]
  assert "start all processes of a run with the same command" in refused[1][1]


def test_one_process_agrees_with_itself():
  assert not processes.several() and processes.first()
  stop = processes.Code.SIGTERM
  assert processes.agreed(stop) == stop and stop.stopped == "SIGTERM"
  broadcast = processes.Broadcast()
  broadcast.send([np.zeros(3)], {"steps": 1})  # Nobody to hear it.
  broadcast.abort(ValueError("no"))
  assert jax.process_count() == 1
