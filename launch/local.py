"""This machine: processes that train together, watched and started again.

Such as by

  python launch/launch.py --target=local --processes=2 -- \\
      train --config=glyphs --workdir=runs/two
"""

from collections.abc import Sequence
import dataclasses
import glob
import os
import shutil
import socket
import sys
import time

from absl import flags
from absl import logging

from episodic_dp.cli import exit_status
from launch import command as command_lib
from launch import job as job_lib
from launch import shell
from launch import supervision

# Where drivers show theirs: NVIDIA's, its own under Windows, AMD's.
_GPUS = ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")
_MOST_DEVICES = 8  # As `backends` takes of a CPU.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """How processes run on this machine.

  Attributes:
    python: the interpreter.
    cores: of this machine, shared out among the processes.
    device: "cpu", or "gpu" for one GPU a process.
    environment: what is set already, and stays.
    port: where the first process listens; 0 for a free one.
    restarts: how often a run is started again.
    grace: seconds between SIGTERM and SIGKILL.
    requeue_is_final: whether the command ends itself by a time limit.
  """

  python: str
  cores: int
  device: str = "cpu"
  environment: frozenset[str] = frozenset()
  port: int = 0
  restarts: int = 3
  grace: float = 30.0
  requeue_is_final: bool = False


def define_flags(values: flags.FlagValues) -> None:
  """Those of this target alone."""
  flags.DEFINE_integer(
      "port",
      0,
      "local: where process 0 listens on localhost; 0 takes a free port.",
      0,
      65535,
      flag_values=values,
  )


def options(
    values: flags.FlagValues, command: command_lib.Command
) -> Options:
  """As the flags say, and the machine is.

  Raises:
    ValueError: there is no such interpreter.
  """
  python = values.python or sys.executable
  if shutil.which(python) is None:
    raise ValueError(
        f"--python={python} is no program of this machine: leave the flag out"
        f" for {sys.executable}"
    )
  return Options(
      python=python,
      cores=len(os.sched_getaffinity(0)),
      device=values.device,
      environment=frozenset(os.environ),
      port=values.port,
      restarts=values.restarts,
      grace=values.grace or 30.0,
      requeue_is_final=command.time_limit is not None,
  )


def processes(
    run: job_lib.Run,
    count: int,
    chosen: Options,
    *,
    port: int,
    again: bool = False,
) -> list[supervision.Process]:
  """The processes of a run.

  Args:
    run: what they train.
    count: how many they are; one by itself takes all devices.
    chosen: how they run.
    port: of process 0, on localhost.
    again: whether the run has begun already: its folder must be one.
  """
  command = (chosen.python, "-m", "episodic_dp", "train", *run.arguments)
  if again:
    command += (command_lib.resume_again(run.workdir),)
  if count == 1:
    return [supervision.Process(arguments=command, environment={})]
  shared = {}
  name = "JAX_NUM_CPU_DEVICES"
  if chosen.device == "cpu" and not {name, "XLA_FLAGS"} & chosen.environment:
    devices = min(max(1, chosen.cores // count), _MOST_DEVICES)
    shared[name] = str(devices)
  return [
      supervision.Process(
          arguments=(
              *command,
              f"--coordinator=localhost:{port}",
              f"--num_processes={count}",
              f"--process_id={i}",
          ),
          environment=(
              {"JAX_LOCAL_DEVICE_IDS": str(i)}
              if chosen.device == "gpu"
              else shared
          ),
      )
      for i in range(count)
  ]


def render(job: job_lib.Job, chosen: Options) -> str:
  """The commands, one a line, as a shell would take them."""
  lines = []
  for run in job.runs:
    port = chosen.port or free_port()
    started = processes(run, job.processes, chosen, port=port)
    for i, process in enumerate(started):
      words = [f"{k}={v}" for k, v in process.environment.items()]
      words += map(shell.quote, process.arguments)
      # All but the last beside one another.
      words += ["&"] * (i < len(started) - 1)
      lines.append(" ".join(words))
    if len(started) > 1 and run is not job.runs[-1]:
      lines.append("wait")
  return "\n".join(lines) + "\n"


def free_port() -> int:
  """One that nobody listens on at the moment."""
  with socket.socket() as s:
    s.bind(("localhost", 0))
    return s.getsockname()[1]


def launch(job: job_lib.Job, chosen: Options) -> int:
  """Trains the runs one after the other.

  Raises:
    RunError: a work directory cannot be used.
    ValueError: there is no GPU.

  Returns:
    The exit status: that of the run; of a sweep, 75 or 130 as soon as a run
    ends with that, otherwise 1 where any run failed, or 0.
  """
  if chosen.device == "gpu" and not any(map(glob.glob, _GPUS)):
    raise ValueError(
        f"--device=gpu, and this machine shows none ({' or '.join(_GPUS)}):"
        " leave it out to train on its cores"
    )
  for run in job.runs:
    command_lib.open_folder(run, job.resume)
  with supervision.Signals() as signals:
    return _train_all(job, chosen, signals)


def _train_all(
    job: job_lib.Job, chosen: Options, signals: supervision.Signals
) -> int:
  began, failed = time.monotonic(), []
  for number, run in enumerate(job.runs):
    if signals.received:
      return supervision.asked_for(signals.received)
    if run.name:
      logging.info(_progress(job.runs, number, time.monotonic() - began))
    status = _train(run, job.processes, chosen, signals)
    if status in (exit_status.REQUEUE, exit_status.INTERRUPTED):
      if run.name:
        logging.info("stopped in %s; the same command goes on there", run.name)
      return status
    if status:
      failed.append((run.name, status))
  if failed and job.runs[0].name:
    names = ", ".join(name for name, _ in failed)
    logging.error(
        "%d of %d runs failed: %s", len(failed), len(job.runs), names
    )
  return failed[0][1] if failed else exit_status.FINISHED


def _progress(
    runs: Sequence[job_lib.Run], number: int, seconds: float
) -> str:
  """Such as "run 3 of 9: noise_multiplier=2,key=0, about 12 min to go"."""
  text = f"run {number + 1} of {len(runs)}: {runs[number].name}"
  if number == 0:
    return text
  left = seconds / number * (len(runs) - number)
  shown = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
  return f"{text}, about {shown} to go"


def _train(
    run: job_lib.Run,
    count: int,
    chosen: Options,
    signals: supervision.Signals,
) -> int:
  """One run, started again where that helps; its exit status."""
  attempt = 0
  while True:
    started = processes(
        run,
        count,
        chosen,
        port=chosen.port or free_port(),
        again=attempt > 0,
    )
    ended = supervision.attend(started, signals, grace=chosen.grace)
    requeued = ended.status == exit_status.REQUEUE
    if not ended.restart or (chosen.requeue_is_final and requeued):
      return ended.status
    if signals.received:  # Between its end and here.
      return supervision.asked_for(signals.received)
    if attempt == chosen.restarts:
      logging.error(
          "%s, after %d restarts (--restarts=%d): the same command goes on"
          " from the last checkpoint",
          ended.reason, attempt, chosen.restarts,
      )  # fmt: skip
      return ended.status
    attempt += 1
    logging.warning(
        "%s: starting it again (%d of %d)",
        ended.reason, attempt, chosen.restarts,
    )  # fmt: skip
