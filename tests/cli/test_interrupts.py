"""Signals from the first moment of a command on: one line and a status."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from episodic_dp.cli import exit_status

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a command may be doing: Python, native code that comes back to Python
# only when it is done, and a run that handles signals itself.
_NATIVE = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)"
_WORK = {
    "python": "while True: sum(range(1000))",
    "native": _NATIVE,
    "import": "while True: exec('def f(): pass')",
    "threads": "import threading; threading.Event().wait()",
}
_START = """
import sys
from episodic_dp.cli import interrupts
interrupts.install()
print("ready", flush=True)
"""


def _started(code):
  process = subprocess.Popen(
      [sys.executable, "-c", _START + code],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
  )
  assert process.stdout.readline() == "ready\n"
  return process


@pytest.mark.parametrize("work", _WORK)
@pytest.mark.parametrize(
    "name, status",
    [("SIGINT", exit_status.INTERRUPTED), ("SIGTERM", exit_status.REQUEUE)],
)
def test_a_signal_ends_it_with_one_line(work, name, status):
  process = _started(_WORK[work])
  time.sleep(0.1)
  process.send_signal(signal.Signals[name])
  _, err = process.communicate(timeout=2)
  assert process.returncode == status
  shown = {"SIGINT": "Ctrl-C"}.get(name, name)
  assert err.startswith(f"stopped by {shown}: ") and err.count("\n") == 1
  assert "starts again, from its last checkpoint if" in err


@pytest.mark.parametrize("work", ["python", "native"])
def test_a_time_limit_ends_what_is_not_a_step(work):
  limit = "import time; interrupts.end_at(time.monotonic() + 0.3)\n"
  process = _started(limit + _WORK[work])
  _, err = process.communicate(timeout=10)
  assert process.returncode == exit_status.REQUEUE
  assert err.startswith("stopped by its time limit") and err.count("\n") == 1


def test_a_time_limit_leaves_steps_to_the_run():
  process = _started("""
import os, time
from episodic_dp.training import stopping
with stopping.StopSignals() as signals:
  interrupts.end_at(time.monotonic())
  time.sleep(0.3)
  print("on", flush=True)
""")
  out, err = process.communicate(timeout=60)
  assert (process.returncode, out, err) == (0, "on\n", "")


_RUN = """
from episodic_dp.training import stopping
with stopping.StopSignals() as signals:
  print("running", flush=True)
  import time
  while not signals.stop:
    time.sleep(0.01)
  print(stopping.REASONS[signals.stop], flush=True)
  {then}
"""


@pytest.mark.slow  # A process that imports JAX.
def test_a_run_that_takes_steps_stops_by_itself():
  process = _started(_RUN.format(then="sys.exit(9)"))
  assert process.stdout.readline() == "running\n"
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=5)
  assert (process.returncode, out, err) == (9, "SIGINT\n", "")


@pytest.mark.slow  # As above.
def test_a_second_ctrl_c_does_not_wait_for_it():
  process = _started(_RUN.format(then=_NATIVE))
  assert process.stdout.readline() == "running\n"
  process.send_signal(signal.SIGINT)
  assert process.stdout.readline() == "SIGINT\n"
  time.sleep(0.1)
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=2)
  assert process.returncode == exit_status.INTERRUPTED
  assert err.count("\n") == 1


def test_a_signal_that_was_ignored_stays_so():
  """As of a job in the background of a script."""
  code = "import os, signal; os.kill(os.getpid(), 2); print('on')"
  done = subprocess.run(
      ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c",
       _START + code],
      cwd=ROOT,
      capture_output=True,
      text=True,
  )
  assert (done.returncode, done.stdout) == (0, "ready\non\n"), done.stderr


def _handles_signals(pid):
  status = pathlib.Path(f"/proc/{pid}/status").read_text()
  (caught,) = re.findall(r"SigCgt:\s*(\w+)", status)
  return int(caught, 16) >> signal.SIGUSR1 - 1 & 1


@pytest.mark.slow  # Ten processes; most import JAX.
def test_no_moment_of_a_command_shows_a_traceback(tmp_path):
  config = "sinusoid:participants=64,rate=0.1,steps=4000,width=4,inner_steps=1"
  for tenth in range(0, 40, 4):
    process = subprocess.Popen(
        [sys.executable, "-m", "episodic_dp", "train", f"--config={config}",
         f"--workdir={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    began = time.monotonic()
    while not _handles_signals(process.pid):  # Python's own start.
      assert time.monotonic() < began + 60
      time.sleep(0.01)
    time.sleep(tenth / 10)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == exit_status.INTERRUPTED, (tenth, err)
    assert "Traceback" not in err and "stopped by Ctrl-C" in out + err
