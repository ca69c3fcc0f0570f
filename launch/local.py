"""This machine: processes that train together, and end together."""

from collections.abc import Sequence
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from absl import logging

from launch import job as job_lib

_GRACE = 30.0  # Seconds between SIGTERM and SIGKILL.
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def commands(run: job_lib.Run, values: Any, port: int) -> list[list[str]]:
  """Return the command of each process of a run.

  Args:
    run: the run.
    values: the launcher's flags.
    port: port of the first process.
  """
  train = [sys.executable, "-m", "episodic_dp", *run.command]
  if values.processes == 1:
    return [train]
  return [
      [
          *train,
          f"--coordinator=localhost:{port}",
          f"--num_processes={values.processes}",
          f"--process_id={i}",
      ]
      for i in range(values.processes)
  ]


def environment(values: Any, number: int) -> dict[str, str]:
  """Return variables that divide cores or GPUs among processes."""
  if values.processes == 1:
    return {}
  if values.gpus:
    return {"JAX_LOCAL_DEVICE_IDS": str(number)}
  cores = max(1, (os.cpu_count() or 1) // values.processes)
  return {"JAX_NUM_CPU_DEVICES": str(min(cores, job_lib.MOST_DEVICES))}


def render(job: job_lib.Job, values: Any) -> str:
  """Return the commands as lines of a shell."""
  lines = []
  for run in job.runs:
    for number, command in enumerate(commands(run, values, free_port())):
      variables = environment(values, number).items()
      words = [f"{k}={v}" for k, v in variables] + [job_lib.joined(command)]
      lines.append(" ".join(words) + " &" * (values.processes > 1))
    lines.append("wait")
  return "\n".join(lines) + "\n"


def free_port() -> int:
  """Return a port that is free at the moment."""
  with socket.socket() as s:
    s.bind(("localhost", 0))
    return s.getsockname()[1]


def launch(job: job_lib.Job, values: Any) -> int:
  """Train the runs in sequence, until one fails.

  Returns:
    The exit status of the last run.
  """
  for number, run in enumerate(job.runs):
    if run.name:
      logging.info("run %d of %d: %s", number + 1, len(job.runs), run.name)
    status = attend([
        subprocess.Popen(
            command,
            env=os.environ | environment(values, i),
            stdin=subprocess.DEVNULL,
            # Ctrl-C reaches it once, through the launcher.
            start_new_session=True,
        )
        for i, command in enumerate(commands(run, values, free_port()))
    ])
    if status:
      return status
  return 0


def attend(children: Sequence[subprocess.Popen]) -> int:
  """Wait for processes that belong together.

  Signals to the launcher are forwarded. If one process ends with a status other
  than 0, the others are stopped, and killed some time later.

  Returns:
    0; the status of a process with an error; 130 after Ctrl-C; or 75, after
    which the same command resumes the run.
  """

  def forward(number: int, frame: Any) -> None:
    del frame
    for child in children:
      child.send_signal(number)

  before = {number: signal.signal(number, forward) for number in _FORWARDED}
  deadline = float("inf")
  try:
    while None in (statuses := [child.poll() for child in children]):
      failed = [i for i, status in enumerate(statuses) if status]
      if failed and deadline == float("inf"):
        logging.warning(
            "process %d ended with status %d: the others are stopped",
            failed[0], statuses[failed[0]],
        )
        forward(signal.SIGTERM, None)
        deadline = time.monotonic() + _GRACE
      if time.monotonic() > deadline:
        forward(signal.SIGKILL, None)
      time.sleep(0.05)
  finally:
    for child in children:  # None is left running, even after a bug.
      child.kill()
    for number, handler in before.items():
      signal.signal(number, handler)
  return _status([child.returncode for child in children])


def _status(statuses: Sequence[int]) -> int:
  asked = (0, 130, job_lib.REQUEUE)
  for status in statuses:
    if status > 0 and status not in asked:
      return status
  if 130 in statuses:
    return 130
  return job_lib.REQUEUE if any(statuses) else 0
