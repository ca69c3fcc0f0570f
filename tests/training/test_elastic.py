"""A run goes on with other devices, microbatches and processes.

Its noise is the same bits and its parameters are equal up to rounding, also
where a kill left steps that are taken again.
"""

import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import optax
import pytest

from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import binding
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import workdir
from tests.training import tiny_run

STEPS = 6  # The last checkpoint before the end is after step 4.
_LONG = 48
_SCRIPT = pathlib.Path(__file__).with_name("two_processes.py")


# In this process, which has one device ----------------------------------------


def _spec(**options):
  return tiny_run.spec(STEPS, seed=None, config={}, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  tiny_run.train(_spec(), folder)
  return folder


@pytest.fixture
def killed(whole, tmp_path):
  """The run as a kill after step 6 leaves it, before its checkpoint."""
  folder = tmp_path / "run"
  shutil.copytree(whole, folder)
  shutil.rmtree(folder / "checkpoints" / str(STEPS))
  return folder


def _elsewhere(caplog):
  (told,) = [r.message for r in caplog.records if "elsewhere" in r.message]
  assert "samples and its noise are the same" in told
  assert "sums are equal up to rounding" in told
  return told


_OTHERWISE = {
    "microbatch_size '1' -> '3'": {
        "compute": private.Compute(microbatch_size=3)
    },
    "resident 'True' -> 'False'": {
        "train": dataclasses.replace(tiny_run.dataset(), resident=False)
    },
}


@pytest.mark.parametrize(
    "said, checkpoint", zip(_OTHERWISE, (False, True), strict=True)
)
def test_a_killed_run_goes_on_with_its_sums_laid_out_otherwise(
    whole, killed, caplog, said, checkpoint
):
  caplog.set_level("WARNING", logger="absl")
  if not checkpoint:
    shutil.rmtree(killed / "checkpoints" / "4")
  tiny_run.train(_spec(**_OTHERWISE[said]), killed)
  assert said in _elsewhere(caplog)
  assert keys.path(killed).read_bytes() == keys.path(whole).read_bytes()
  found, expected = (
      tiny_run.final_params(folder)[0]["w"] for folder in (killed, whole)
  )
  distance = np.linalg.norm(found - expected) / np.linalg.norm(expected)
  assert distance < 1e-6


def test_what_changes_more_than_the_layout_is_refused_as_before(killed):
  other = private.Compute(microbatch_size=3, noise_terms=2)
  for options in ({"compute": other}, {"optimizer": optax.adam(0.02)}):
    options = _OTHERWISE["microbatch_size '1' -> '3'"] | options
    with pytest.raises(training.RunError, match="may have been taken already"):
      tiny_run.train(_spec(**options), killed)
  learner = dataclasses.replace(tiny_run.learner(), inner_rate=0.4)
  with pytest.raises(training.RunError, match="has another learner"):
    tiny_run.train(
        _spec(learner=learner, compute=private.Compute(microbatch_size=3)),
        killed,
    )


_COUNTED = plan.Mechanism(
    clip_unit="participant", noise_multiplier=1.0, clipping="private_quantile",
    clip_quantile=0.5, clip_rate=0.2, count_noise=1.0,
)  # fmt: skip


def test_norms_are_not_counted_again_elsewhere():
  place = dict(folder=pathlib.Path("here"), step=4)
  clean, killed = (binding.Place(**place, logged=n) for n in (4, 6))
  said = ["devices '4' -> '1'"]
  binding.check_counts(_COUNTED, clean, said)
  binding.check_counts(_COUNTED, killed, [])
  fixed = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
  binding.check_counts(fixed, killed, said)
  with pytest.raises(training.RunError, match="steps 5 to 6 again.*by one"):
    binding.check_counts(_COUNTED, killed, said)


@pytest.mark.slow  # Compiles a step of its own.
def test_a_run_with_a_noised_count_is_refused_elsewhere(tmp_path):
  spec = _spec(mechanism=_COUNTED)
  tiny_run.train(spec, tmp_path)
  shutil.rmtree(tmp_path / "checkpoints" / str(STEPS))
  compute = private.Compute(microbatch_size=3)
  with pytest.raises(training.RunError, match="JAX_NUM_CPU_DEVICES=N"):
    tiny_run.train(dataclasses.replace(spec, compute=compute), tmp_path)


def test_a_config_that_is_gone_is_written_anew_and_that_is_said(
    whole, killed, caplog
):
  caplog.set_level("WARNING", logger="absl")
  path = killed / workdir.CONFIG
  path.write_text(path.read_text().replace("devices", "devjces"))
  with pytest.raises(training.RunError, match="damaged, move it away and run"):
    tiny_run.train(_spec(), killed)
  path.unlink()
  # What it would have refused is refused without it.
  with pytest.raises(training.RunError, match="noise_multiplier=1.0"):
    tiny_run.train(_spec(noise_multiplier=2.0), killed)
  assert not (killed / workdir.CONFIG).exists()
  tiny_run.train(_spec(), killed)
  assert "config.json was missing: what determines" in caplog.text
  before = (whole / workdir.CONFIG).read_bytes()
  assert (killed / workdir.CONFIG).read_bytes() == before


# In processes of their own ----------------------------------------------------


def _start(folder, steps, *words, devices=1, numbers=()):
  numbers = [str(n) for n in numbers]
  return subprocess.Popen(
      [sys.executable, str(_SCRIPT), str(folder), str(steps), *numbers, *words],
      env=os.environ | {
          "JAX_PLATFORMS": "cpu",
          "JAX_NUM_CPU_DEVICES": str(devices),
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
  )


def _pair(folder, steps, *words):
  with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
  return [
      # The second has no folder, and could not make this one.
      _start(folder if i == 0 else "/proc/nowhere", steps, *words,
             numbers=(port, 2, i))
      for i in range(2)
  ]  # fmt: skip


def _ended(started):
  """What the first printed on its error stream; all must have ended well."""
  told = [process.communicate(timeout=300) for process in started]
  for process, (out, err) in zip(started, told):
    assert process.returncode == 0, (out, err[-2000:])
  return told[0][1]


def _killed(folder, started, lines=10):
  """Kills them all once there are some lines, beyond a checkpoint."""
  path = folder / metrics.FILE
  while not path.exists() or path.read_bytes().count(b"\n") <= lines:
    assert all(p.poll() is None for p in started), _ended(started)
  for process in started:
    process.send_signal(signal.SIGKILL)
  for process in started:
    process.communicate()
  logged = max(line["step"] for line in metrics.read(path))
  last = folder / "checkpoints" / str(logged)
  if last.exists():  # Killed just behind one: as if just before it.
    shutil.rmtree(last)


def _params(folder, step):
  like = {"w": np.zeros((16, 3), np.float32), "still": np.zeros(12, np.float32)}
  checkpoints = training.Checkpoints(folder, read_only=True)
  found, _ = checkpoints.restore(step, like)
  checkpoints.close()
  return found


def _check_equal(folder, expected, steps):
  found = _params(folder, steps)
  # Of these the noise is all that moves them.
  np.testing.assert_array_equal(found["still"], expected["still"])
  assert np.abs(found["still"]).min() > 0
  distance = np.linalg.norm(found["w"] - expected["w"])
  assert distance / np.linalg.norm(expected["w"]) < 1e-5
  lines = metrics.read(folder / metrics.FILE)
  assert [line["step"] for line in lines] == list(range(steps + 1))


@pytest.fixture(scope="module")
def four(tmp_path_factory):
  """The parameters of a run on four devices that nothing happened to."""
  folder = tmp_path_factory.mktemp("four")
  _ended([_start(folder, _LONG, "still", devices=4)])
  return _params(folder, _LONG)


@pytest.mark.slow  # Five processes.
def test_four_devices_then_one_two_or_eight(four, tmp_path):
  steps, killed = _LONG, tmp_path / "killed"
  _killed(killed, [_start(killed, steps, "still", devices=4)])
  for devices, *words in ((1, "pairs"), (2,), (8,)):
    folder = tmp_path / str(devices)
    shutil.copytree(killed, folder)
    told = _ended([_start(folder, steps, "still", *words, devices=devices)])
    assert told.count("goes on elsewhere") == 1
    assert f"devices '4' -> '{devices}'" in told
    assert ("microbatch_size '1' -> '2'" in told) == ("pairs" in words)
    _check_equal(folder, four, steps)


@pytest.mark.slow  # Five processes.
def test_two_processes_then_one_and_back(four, tmp_path):
  steps, folder = _LONG, tmp_path / "run"
  _killed(folder, _pair(folder, steps, "still"))
  alone = _start(folder, steps, "still")
  _killed(folder, [alone], lines=25)
  told = _ended(_pair(folder, steps, "still"))
  assert "devices '1' -> '2', processes '1' -> '2'" in told
  _check_equal(folder, four, steps)
