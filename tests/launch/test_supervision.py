"""Processes that belong together, played by short shell scripts."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from launch import supervision

_CALM = "trap 'exit 75' TERM; while :; do sleep 0.05; done"
_STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"


def _attend(*scripts, grace=20.0, environment=None):
  processes = [
      supervision.Process(
          arguments=("bash", "-c", script), environment=environment or {}
      )
      for script in scripts
  ]
  with supervision.Signals() as signals:
    return supervision.attend(processes, signals, grace=grace)


def test_all_finish():
  ended = _attend("exit 0", "sleep 0.2")
  assert ended == supervision.Ended(status=0)


def test_siblings_of_one_that_is_killed_are_stopped():
  began = time.monotonic()
  ended = _attend(_CALM, "kill -KILL $$")
  assert time.monotonic() - began < 10
  assert ended.restart and ended.status == 1
  assert ended.reason == "process 1 was killed by SIGKILL"


def test_of_two_that_end_between_two_looks_the_killed_one_is_named(monkeypatch):
  monkeypatch.setattr(supervision, "_POLL", 1.0)
  ended = _attend("sleep 0.2; exit 75", "sleep 0.2; kill -KILL $$")
  assert ended.restart
  assert ended.reason == "process 1 was killed by SIGKILL"


def test_a_sibling_that_does_not_stop_is_killed():
  began = time.monotonic()
  ended = _attend("sleep 0.3; exit 75", _STUBBORN, grace=0.3)
  assert 0.6 <= time.monotonic() - began < 10
  assert ended.restart and ended.status == 75


def test_an_error_is_not_tried_again():
  # Whatever it does to the other.
  ended = _attend("exit 1", "sleep 0.3; kill -KILL $$")
  assert (ended.status, ended.restart) == (1, False)
  assert ended.reason == "process 0 ended with status 1"


def test_output_of_all_but_the_first_is_numbered(capfd):
  ended = _attend("echo first", "echo second; echo wrong >&2; printf end")
  assert ended.status == 0
  out, err = capfd.readouterr()
  assert sorted(out.splitlines()) == ["[1] end", "[1] second", "first"]
  assert err == "[1] wrong\n"


def test_environment_is_added_to():
  script = '[ "$GIVEN" = yes ] && [ -n "$PATH" ]'
  assert _attend(script, environment={"GIVEN": "yes"}).status == 0


@pytest.mark.parametrize(
    "number, script, status",
    [
        (signal.SIGTERM, _CALM, 75),
        (signal.SIGUSR1, "trap 'exit 75' USR1; while :; do sleep 0.05; done",
         75),
        (signal.SIGINT, "trap 'exit 130' INT; while :; do sleep 0.05; done",
         130),
        # Before a run has handlers it dies of the signal itself.
        (signal.SIGUSR1, "while :; do sleep 0.05; done", 75),
        # A signal is no reason to forget an error.
        (signal.SIGTERM, "trap 'exit 1' TERM; while :; do sleep 0.05; done", 1),
        # And what was finished is finished.
        (signal.SIGTERM, "trap 'exit 0' TERM; while :; do sleep 0.05; done", 0),
    ],
)  # fmt: skip
def test_a_signal_reaches_all_and_the_status_is_theirs(number, script, status):
  before = signal.getsignal(number)
  timer = threading.Timer(0.4, os.kill, (os.getpid(), number))
  timer.start()
  ended = _attend(script, script)
  timer.join()
  assert (ended.status, ended.restart) == (status, False)
  assert signal.getsignal(number) is before


def test_ctrl_c_of_a_terminal_reaches_the_run_once(tmp_path):
  # As a terminal sends it: to the whole group of the launcher.
  script = textwrap.dedent("""
      from launch import supervision
      count = "trap 'echo interrupted' INT; sleep 1; sleep 1; exit 130"
      process = supervision.Process(
          arguments=("bash", "-c", count), environment={})
      print("began", flush=True)
      with supervision.Signals() as signals:
        ended = supervision.attend([process], signals, grace=5)
      raise SystemExit(ended.status)
  """)
  launcher = subprocess.Popen(
      [sys.executable, "-c", script],
      stdout=subprocess.PIPE,
      text=True,
      start_new_session=True,
  )
  assert launcher.stdout.readline() == "began\n"
  time.sleep(0.5)
  os.killpg(launcher.pid, signal.SIGINT)
  out, _ = launcher.communicate(timeout=20)
  assert (out, launcher.returncode) == ("interrupted\n", 130)
