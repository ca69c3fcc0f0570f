"""Runs on this machine: processes that start, and end, together."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch import local
from tests.launch import tiny

_SLEEPS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def child():
  """Start Python with a code; its pipe is closed at the end."""
  with contextlib.ExitStack() as stack:
    yield lambda code: stack.enter_context(subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE,
        start_new_session=True,
    ))


def _sleeper(child):
  sleeper = child(_SLEEPS)
  sleeper.stdout.readline()  # Its handler is there.
  return sleeper


@pytest.mark.parametrize(
    "code,status",
    [
        ("import sys; sys.exit(1)", 1),
        ("import sys; sys.exit(75)", 75),
        ("import sys; sys.exit(130)", 130),
        ("import os; os.kill(os.getpid(), 9)", 75),
    ],
)
def test_when_one_ends_the_others_are_stopped(child, code, status):
  sleeper = _sleeper(child)
  began = time.monotonic()
  assert local.attend([sleeper, child(code)]) == status
  assert sleeper.returncode == 75 and time.monotonic() - began < 30


def test_processes_that_finish_are_left_to_it(child):
  children = [child("pass"), child("import time; time.sleep(1)")]
  assert local.attend(children) == 0


def test_one_that_does_not_stop_is_killed(child, monkeypatch):
  monkeypatch.setattr(local, "_GRACE", 0.5)
  stubborn = child(
      "import signal, time; signal.signal(15, signal.SIG_IGN);"
      " print(flush=True); time.sleep(60)"
  )
  stubborn.stdout.readline()
  assert local.attend([stubborn, child("import sys; sys.exit(1)")]) == 1
  assert stubborn.returncode == -signal.SIGKILL


def _start(folder):
  return subprocess.Popen(
      [sys.executable, "launch/launch.py", "--target=local", "--processes=2",
       "--", *tiny.TRAIN, f"--workdir={folder}"],
      cwd=tiny.ROOT, stderr=subprocess.PIPE, text=True,
  )


@pytest.mark.slow  # Five processes that import JAX and compile.
@pytest.mark.parametrize("how", ["kill", "signal"])
def test_two_processes_that_are_stopped_end_like_one(tmp_path, expected, how):
  launcher = _start(tmp_path / "two")
  tiny.wait_for_steps(tmp_path / "two", 4)
  pid = launcher.pid
  children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
  first, second = map(int, children.split())
  if how == "kill":
    os.kill(second, signal.SIGKILL)
  else:
    launcher.send_signal(signal.SIGUSR1)
  _, err = launcher.communicate(timeout=200)
  assert launcher.returncode == 75, err[-3000:]
  for child in (first, second):
    assert not pathlib.Path(f"/proc/{child}").exists()
  assert tiny.steps(tmp_path / "two") < tiny.STEPS
  launcher = _start(tmp_path / "two")
  _, err = launcher.communicate(timeout=200)
  assert launcher.returncode == 0, err[-3000:]
  tiny.assert_same(tmp_path / "two", expected)
