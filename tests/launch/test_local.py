"""Runs on this machine: what is started again, and two processes for real."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from launch import job as job_lib
from launch import local
from tests.launch import tiny

# Reads its arguments as a run would, and ends as a file of this folder says.
_FAKE = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[-1] if "resume" not in sys.argv[-1]
                      else sys.argv[-2])
tried = folder / "tried"
with open(tried, "a") as f:
  f.write(" ".join(sys.argv[1:]) + "\\n")
statuses = (folder / "statuses").read_text().split()
status = int(statuses[len(tried.read_text().splitlines()) - 1])
os.kill(os.getpid(), -status) if status < 0 else sys.exit(status)
"""


def _python(tmp_path):
  """An interpreter that runs `_FAKE` in the place of a module."""
  script = tmp_path / "fake.py"
  script.write_text(_FAKE)
  path = tmp_path / "python"
  path.write_text(f'#!/bin/sh\nexec {sys.executable} -S {script} "$@"\n')
  path.chmod(0o700)
  return str(path)


def _launch(tmp_path, statuses, restarts=2, names=("",), final=False):
  """The exit status, and the arguments of each time that a run was started."""
  runs = []
  for name in names:
    folder = tmp_path / "runs" / name
    folder.mkdir(parents=True)
    (folder / "statuses").write_text(statuses)
    path = str(folder)
    runs.append(job_lib.Run(name=name, arguments=(path,), workdir=path))
  job = job_lib.Job(name="a", runs=tuple(runs), workdir="", processes=1)
  chosen = local.Options(
      python=_python(tmp_path),
      cores=2,
      restarts=restarts,
      grace=5,
      requeue_is_final=final,
  )
  status = local.launch(job, chosen)
  tried = [tmp_path / "runs" / name / "tried" for name in names]
  return status, [
      path.read_text().splitlines() if path.exists() else [] for path in tried
  ]


@pytest.mark.parametrize(
    "statuses, status, times",
    [
        ("0", 0, 1),
        ("1 0", 1, 1),  # An error is one again.
        ("130 0", 130, 1),
        ("75 0", 0, 2),
        ("-9 75 0", 0, 3),
        ("75 75 75 0", 75, 3),  # As often as --restarts allows.
        ("-9 -9 -11 0", 1, 3),
        ("-9 1 0", 1, 2),
    ],
)
def test_a_run_is_started_again_where_that_helps(
    tmp_path, statuses, status, times
):
  ended, (tried,) = _launch(tmp_path, statuses)
  assert (ended, len(tried)) == (status, times)
  # It has begun: a folder without it is an error.
  again = [line.endswith(" --resume=must") for line in tried]
  assert again == [False] + [True] * (times - 1)


def test_a_run_that_ends_itself_by_a_time_limit_stays_ended(tmp_path):
  ended, (tried,) = _launch(tmp_path, "75 0", final=True)
  assert (ended, len(tried)) == (75, 1)


def test_a_sweep_goes_on_after_an_error_and_stops_when_it_is_stopped(tmp_path):
  ended, tried = _launch(tmp_path / "error", "1", names=("a", "b"))
  assert (ended, [len(lines) for lines in tried]) == (1, [1, 1])
  ended, tried = _launch(tmp_path / "stop", "130", names=("a", "b"))
  assert (ended, [len(lines) for lines in tried]) == (130, [1, 0])


def test_cores_are_shared_out_unless_that_was_done():
  run = job_lib.Run(name="", arguments=("--config=a",), workdir="")

  def devices(count, **options):
    chosen = local.Options(python="python", **options)
    return [
        dict(process.environment)
        for process in local.processes(run, count, chosen, port=1)
    ]

  assert devices(1, cores=8) == [{}]  # By itself it takes all cores.
  assert devices(2, cores=8) == [{"JAX_NUM_CPU_DEVICES": "4"}] * 2
  assert devices(2, cores=1) == [{"JAX_NUM_CPU_DEVICES": "1"}] * 2
  assert devices(2, cores=64) == [{"JAX_NUM_CPU_DEVICES": "8"}] * 2
  for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES"):
    assert devices(2, cores=8, environment=frozenset({name})) == [{}, {}]
  assert devices(2, cores=8, device="gpu") == [
      {"JAX_LOCAL_DEVICE_IDS": "0"},
      {"JAX_LOCAL_DEVICE_IDS": "1"},
  ]


def test_no_process_is_told_a_key():
  run = job_lib.Run(name="", arguments=("--config=a",), workdir="")
  chosen = local.Options(python="python", cores=2)
  for process in local.processes(run, 2, chosen, port=1):
    assert set(process.environment) == {"JAX_NUM_CPU_DEVICES"}
    named = [a.partition("=")[0] for a in process.arguments[4:]]
    assert named == [
        "--config", "--coordinator", "--num_processes", "--process_id",
    ]  # fmt: skip


def _start(folder):
  return subprocess.Popen(
      [sys.executable, "launch/launch.py", "--target=local", "--processes=2",
       "--grace=2", "--", *tiny.TRAIN, f"--workdir={folder}"],
      cwd=tiny.ROOT,
      stderr=subprocess.PIPE,
      text=True,
  )  # fmt: skip


@pytest.mark.slow  # Seven processes that import JAX and compile.
def test_two_processes_of_which_one_is_killed_end_like_one(
    tmp_path, expected
):
  launcher = _start(tmp_path / "two")
  tiny.wait_for_steps(tmp_path / "two", 4)
  pid = launcher.pid
  children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
  first, second = map(int, children.split())
  os.kill(second, signal.SIGKILL)
  _, err = launcher.communicate(timeout=200)
  assert launcher.returncode == 0, err[-3000:]
  assert "process 1 was killed by SIGKILL: starting it again (1 of 3)" in err
  assert "[1] " in err
  tiny.assert_same(tmp_path / "two", expected)
  for child in (first, second):
    assert not pathlib.Path(f"/proc/{child}").exists()


@pytest.mark.slow  # As above.
def test_a_signal_to_the_launcher_saves_and_the_same_command_goes_on(
    tmp_path, expected
):
  launcher = _start(tmp_path / "two")
  tiny.wait_for_steps(tmp_path / "two", 4)
  launcher.send_signal(signal.SIGUSR1)
  _, err = launcher.communicate(timeout=200)
  assert launcher.returncode == 75, err[-3000:]
  assert tiny.steps(tmp_path / "two") < tiny.STEPS
  launcher = _start(tmp_path / "two")
  _, err = launcher.communicate(timeout=200)
  assert launcher.returncode == 0, err[-3000:]
  tiny.assert_same(tmp_path / "two", expected)


def test_a_gpu_that_is_not_there_is_told_before_a_folder_is_made(
    tmp_path, monkeypatch
):
  monkeypatch.setattr(local, "_GPUS", (str(tmp_path / "nvidia*"),))
  run = job_lib.Run(name="", arguments=(), workdir=str(tmp_path / "run"))
  job = job_lib.Job(name="a", runs=(run,), workdir=run.workdir, processes=2)
  chosen = local.Options(python=sys.executable, cores=2, device="gpu")
  with pytest.raises(ValueError, match="this machine shows none"):
    local.launch(job, chosen)
  assert not (tmp_path / "run").exists()
