"""Runs in processes that are killed, stopped, or lose one another."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from episodic_dp import training
from episodic_dp.cli import devices
from episodic_dp.cli import exit_status
from episodic_dp.training import metrics
from episodic_dp.training import resume
from episodic_dp.training import settings
from episodic_dp.training import workdir
from tests import processes
from tests.stored import json_of
from tests.training import tiny_run

_MODULE = "tests.training.two_processes"
_STEPS = 30
_LONG = 5_000


def _start(folder, steps, *words, count=1, **environment):
  """Start the processes of a run."""
  with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
  environment = os.environ | {
      "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", **environment,
  }
  started = []
  for i in range(count):
    numbers = [str(n) for n in (port, count, i)] if count > 1 else []
    started.append(subprocess.Popen(
        # The others have no folder, and could not make this one.
        [sys.executable, "-m", _MODULE, "/proc/nowhere" if i else str(folder),
         str(steps), *numbers, *words],
        cwd=processes.ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ))
  return started


def _ended(started, *statuses):
  """Return what was printed; the statuses must be as they should."""
  printed = [process.communicate(timeout=300) for process in started]
  found = [process.returncode for process in started]
  assert found == list(statuses), printed
  return printed


def _wait_for(folder, started, lines):
  path = folder / metrics.FILE
  while not path.exists() or path.read_bytes().count(b"\n") <= lines:
    assert all(p.poll() is None for p in started), _ended(started)
    time.sleep(0.002)


def _killed(folder, started, lines):
  _wait_for(folder, started, lines)
  for process in started:
    process.send_signal(signal.SIGKILL)
  _ended(started, *[-signal.SIGKILL] * len(started))


def _check_equal(folder, other):
  (found, step), (expected, again) = map(tiny_run.final_params, (folder, other))
  assert step == again
  assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
  texts = [(f / metrics.FILE).read_text() for f in (folder, other)]
  assert texts[0] == texts[1]
  spent = [
      json_of(f / "guarantee.json")["guarantees"]
      for f in (folder, other)
  ]
  assert spent[0] == spent[1]


@pytest.mark.slow  # Six processes.
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
  folder, whole = tmp_path / "killed", tmp_path / "whole"
  _ended(_start(whole, _STEPS), 0)
  # Within a block, just behind a checkpoint, before the first, at once.
  for lines in (2, 5, 9, 24):
    _killed(folder, _start(folder, _STEPS), lines)
  _ended(_start(folder, _STEPS), 0)
  _check_equal(folder, whole)


# Harmless settings of which a CPU takes another value than the usual one.
_OTHER_VALUES = {
    "jax_array_garbage_collection_guard": "log",
    "jax_captured_constants_report_frames": "2",
    "jax_captured_constants_warn_bytes": "1000000",
    "jax_compilation_cache_max_size": "1000000000",
    "jax_compiler_detailed_logging_min_ops": "1",
    "jax_cpu_get_global_topology_timeout_minutes": "6",
    "jax_cpu_get_local_topology_timeout_minutes": "3",
    "jax_dump_ir_modes": "jaxpr",
    "jax_hlo_source_file_canonicalization_regex": "x",
    "jax_logging_level": "ERROR",
    "jax_persistent_cache_min_compile_time_secs": "3.0",
    "jax_persistent_cache_min_entry_size_bytes": "9",
    "jax_platforms": "cpu",
    "jax_source_url_schema": "vscode",
    "jax_thread_guard": "1",
    "jax_traceback_filtering": "off",
    "jax_traceback_in_locations_limit": "3",
    "jax_tracer_error_num_traceback_frames": "9",
    "jax_transfer_guard": "log",
    **{
        name: str(int(not value))
        for name, value in jax.config.values.items()
        if name in settings.HARMLESS and isinstance(value, bool)
    },
    "onednn_verbose": "1", "dnnl_verbose": "1", "mkl_verbose": "1",
    "omp_display_env": "true", "cuda_launch_blocking": "1",
    "tf_cpp_min_log_level": "2", "tf_cpp_max_vlog_level": "1",
}


@pytest.mark.slow  # Three processes.
def test_all_harmless_settings_leave_the_key_and_the_bits(tmp_path):
  folder, whole = tmp_path / "killed", tmp_path / "whole"
  _ended(_start(whole, _STEPS), 0)
  _killed(folder, _start(folder, _STEPS), 9)
  assert len(_OTHER_VALUES) > 40 and _OTHER_VALUES.keys() <= settings.HARMLESS
  others = {name.upper(): text for name, text in _OTHER_VALUES.items()}
  dump = f"--xla_dump_to={tmp_path / 'dump'} --xla_dump_hlo_as_text"
  flags = f"{os.environ.get('XLA_FLAGS', '')} {dump}"
  _ended(_start(folder, _STEPS, **others, XLA_FLAGS=flags), 0)
  _check_equal(folder, whole)
  assert any((tmp_path / "dump").iterdir())
  with workdir.locked(folder) as place:
    assert len(resume.load(place).segments) == 1


@pytest.mark.slow  # Eight processes.
def test_two_processes_stop_together_survive_kills_and_go_on_as_one(tmp_path):
  whole, folder = tmp_path / "whole", tmp_path / "two"
  _ended(_start(whole, _STEPS, count=2), 0, 0)
  _killed(folder, _start(folder, _STEPS, count=2), 10)
  _ended(_start(folder, _STEPS, count=2), 0, 0)
  _check_equal(folder, whole)
  # A signal to the one that does not write stops both after the same step.
  two = _start(folder, _LONG, count=2)
  _wait_for(folder, two, _STEPS + 3)
  two[1].send_signal(signal.SIGTERM)
  requeue = exit_status.REQUEUE
  (out, _), (reported, _) = _ended(two, requeue, requeue)
  steps = out.partition("took ")[2].split()[0]
  assert f"took {steps} SIGTERM" in reported
  # With another number of processes it continues under a fresh key.
  _ended(_start(folder, int(steps) + 1), 0)
  with workdir.locked(folder) as place:
    assert len(resume.load(place).segments) == 3


@pytest.mark.slow  # Four processes.
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_killed_ends_the_other(tmp_path, lost):
  two = _start(tmp_path, _LONG, count=2)
  _wait_for(tmp_path, two, 5)
  two[lost].send_signal(signal.SIGKILL)
  began = time.monotonic()
  two[lost].communicate()
  two[1 - lost].communicate(timeout=2 * devices.HEARTBEAT_SECONDS)
  assert time.monotonic() - began < devices.HEARTBEAT_SECONDS + 15
  # JAX may end it before Python hears of it.
  assert two[1 - lost].returncode in (exit_status.REQUEUE, -signal.SIGABRT)


@pytest.mark.slow  # Six processes.
def test_data_on_the_host_and_other_processes(tmp_path):
  whole, folder = tmp_path / "whole", tmp_path / "host"
  _ended(_start(whole, 8, "host", count=2), 0, 0)
  _killed(folder, _start(folder, 8, "host", count=2), 5)
  _ended(_start(folder, 8, "host", count=2), 0, 0)
  _check_equal(folder, whole)


@pytest.fixture
def bucket(monkeypatch):
  """Yield the address of a bucket on a server of this machine."""
  s3fs = pytest.importorskip("s3fs")
  server = pytest.importorskip("moto.server")
  running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
  running.start()
  host, port = running.get_host_and_port()
  environment = {
      "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
      "AWS_DEFAULT_REGION": "us-east-1",
      "AWS_ENDPOINT_URL": f"http://{host}:{port}",
  }
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  s3fs.S3FileSystem.clear_instance_cache()
  s3fs.S3FileSystem().mkdir("bucket")
  yield "s3://bucket"
  s3fs.S3FileSystem.clear_instance_cache()
  running.stop()


# The server and its client leave files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.slow  # A server, and what its client needs to begin.
def test_a_run_on_a_store_keeps_its_key_here_and_is_resumed(
    bucket, tmp_path, monkeypatch
):
  monkeypatch.setenv("HOME", str(tmp_path))
  url, whole = f"{bucket}/runs/one", tmp_path / "whole"
  tiny_run.kill(tiny_run.spec(8), url, 6)
  training.train(tiny_run.spec(8), url)
  training.train(tiny_run.spec(8), whole)
  remote = workdir.folder_of(url)
  copy = tmp_path / "copy"
  shutil.copytree(whole, copy)
  for name in ("metrics.jsonl", "guarantee.json", "checkpoints/8.npz"):
    (copy / name).write_bytes((remote / name).read_bytes())
  _check_equal(copy, whole)
  assert not (remote / "private").exists()
  assert (remote / "learning_curve.png").exists()
  key = workdir.key_path(url)
  assert key.is_relative_to(tmp_path / ".episodic_dp")
  key.unlink()
  with pytest.raises(training.RunError, match="is missing.*key_file"):
    training.train(tiny_run.spec(8), url)
