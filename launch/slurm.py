"""SLURM: one batch script, which requeues itself; a sweep is a job array.

  python launch/launch.py --target=slurm --nodes=2 --gpus_per_node=4 \\
      --time=11:00:00 -- train --config=glyphs --workdir=/shared/runs/glyphs

`srun` starts the processes, and JAX learns from its variables which of them it
is. What does not change from job to job stands in slurm.sh.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl import flags
from absl import logging

from launch import command as command_lib
from launch import job as job_lib
from launch import shell

_BODY = pathlib.Path(__file__).with_name("slurm.sh")
_MOST_DEVICES = 8  # As `backends` takes of a CPU.
# As sbatch takes it: m, m:s, h:m:s, d-h, d-h:m, d-h:m:s, or a word for no end.
_TIME = re.compile(
    r"([0-9]+-)?[0-9]+(:[0-9]+){0,2}|infinite|unlimited|-1", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is asked of SLURM.

  Attributes:
    python: the interpreter on the nodes.
    nodes: how many.
    gpus_per_node: 0 for CPUs.
    cpus_per_process: cores of each process.
    time: of the job, as sbatch takes it, or None for the partition's.
    restarts: how often a job is requeued after a process was killed.
    grace: seconds before the end of `time` at which the run is told to stop.
    sbatch: further options of sbatch, such as "--partition=long".
    setup: lines of shell before the run, such as "module load cuda".
  """

  python: str
  nodes: int = 1
  gpus_per_node: int = 0
  cpus_per_process: int = 1
  time: str | None = None
  restarts: int = 3
  grace: float = 120.0
  sbatch: tuple[str, ...] = ()
  setup: tuple[str, ...] = ()


def define_flags(values: flags.FlagValues) -> None:
  """Those of this target alone."""
  flags.DEFINE_integer(
      "nodes", 1, "slurm: how many machines.", 1, flag_values=values
  )
  flags.DEFINE_integer(
      "gpus_per_node", 0, "slurm: GPUs of each node; 0 for none.", 0,
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_integer(
      "cpus_per_process", 4, "slurm: cores of each process.", 1,
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_string(
      "time", None, "slurm: how long the job may take, such as 11:00:00.",
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_multi_string(
      "sbatch", [], "slurm: a further option of sbatch, such as"
      " --sbatch=--partition=long.",
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_multi_string(
      "setup", [], "slurm: a line of shell to run before, such as"
      " --setup='module load cuda'.",
      flag_values=values,
  )  # fmt: skip


def options(values: flags.FlagValues) -> Options:
  """As the flags say.

  Raises:
    ValueError: --time is none, or an option of sbatch.
  """
  if values.time is not None and not _TIME.fullmatch(values.time):
    raise ValueError(
        f"--time={values.time} is no time for sbatch: write hours, minutes and"
        " seconds as --time=11:00:00, days and hours as --time=2-12"
    )
  for option in values.sbatch:
    if not option.startswith("-"):
      raise ValueError(
          f"--sbatch={option} is no option of sbatch: write it with its dashes,"
          f" --sbatch=--{option}"
      )
  return Options(
      python=values.python or sys.executable,
      nodes=values.nodes,
      gpus_per_node=values.gpus_per_node,
      cpus_per_process=values.cpus_per_process,
      time=values.time,
      restarts=values.restarts,
      grace=values.grace or 120.0,
      sbatch=tuple(values.sbatch),
      setup=tuple(values.setup),
  )


def process_count(asked: int | None, chosen: Options) -> int:
  """How many processes train a run together.

  Args:
    asked: --processes, or None: one takes the GPUs of one node; of several
      nodes each GPU, or each node without any, has one.
    chosen: the nodes and their GPUs.

  Raises:
    ValueError: the numbers do not go together.
  """
  nodes, gpus = chosen.nodes, chosen.gpus_per_node
  count = asked or (1 if nodes == 1 else nodes * max(1, gpus))
  if count % nodes:
    raise ValueError(
        f"--processes={count} cannot be shared out over --nodes={nodes}: take"
        f" --processes={nodes * max(1, round(count / nodes))}"
    )
  # JAX gives each task of srun the GPU of its number, and one by itself all.
  if gpus and count > 1 and count != nodes * gpus:
    raise ValueError(
        f"--processes={count} would leave GPUs of --nodes={nodes}"
        f" --gpus_per_node={gpus} idle: take --processes={nodes * gpus}, one"
        " for each GPU"
    )
  return count


def render(job: job_lib.Job, chosen: Options) -> str:
  """The batch script."""
  lines = ["#!/bin/bash"]
  lines += [f"#SBATCH {option}" for option in _directives(job, chosen)]
  lines += [
      "# Written by launch/launch.py; docs/clusters.md says what it does.",
      # What a site's own lines read may be unset, as that of many modules is.
      *chosen.setup,
      "set -u",
      "",
      f"restarts={chosen.restarts}",
      f"cpus_per_process={chosen.cpus_per_process}",
  ]
  if job.processes > 1 and not chosen.gpus_per_node:
    devices = min(chosen.cpus_per_process, _MOST_DEVICES)
    lines.append(f"export JAX_NUM_CPU_DEVICES={devices}")
  train = shell.join([chosen.python, "-m", "episodic_dp", "train"])
  lines.append(f"train=({train})")
  lines += _choice_of_run(job.runs)
  lines.append(f"requeued_flags=({command_lib.resume_again(job.workdir)})")
  return "\n".join(lines) + "\n\n" + _BODY.read_text(encoding="utf-8")


def _directives(job: job_lib.Job, chosen: Options) -> list[str]:
  """Options of sbatch."""
  array = len(job.runs) > 1
  found = [
      f"--job-name={job.name}",
      f"--nodes={chosen.nodes}",
      f"--ntasks-per-node={job.processes // chosen.nodes}",
      f"--cpus-per-task={chosen.cpus_per_process}",
  ]
  if chosen.gpus_per_node:
    found.append(f"--gres=gpu:{chosen.gpus_per_node}")
  if chosen.time:
    found.append(f"--time={chosen.time}")
  if array:
    found.append(f"--array=0-{len(job.runs) - 1}")
  log = "slurm-%A_%a.log" if array else "slurm-%j.log"
  if not command_lib.on_object_store(job.workdir):
    # SLURM fills the signs in; of a folder's own name they stay.
    folder = os.path.abspath(job.workdir).replace("%", "%%")
    log = f"{folder}/{log}"
  found += [
      "--requeue",
      f"--signal=USR1@{max(1, round(chosen.grace))}",
      "--open-mode=append",
      f"--output={log}",
  ]
  return [*map(shell.quote, found), *chosen.sbatch]


def _choice_of_run(runs: Sequence[job_lib.Run]) -> list[str]:
  """Lines that add a run's arguments to `train`: the table of the array."""
  if len(runs) == 1:
    return [f"train+=({shell.join(runs[0].arguments)})"]
  lines = ['case "$SLURM_ARRAY_TASK_ID" in']
  for number, run in enumerate(runs):
    lines.append(f"  {number}) train+=({shell.join(run.arguments)}) ;;")
  return [*lines, "esac"]


def launch(job: job_lib.Job, chosen: Options) -> int:
  """Submits the script; its output goes into the work directory.

  Raises:
    RunError: a work directory cannot be used.
    ValueError: this is no cluster.
  """
  if shutil.which("sbatch") is None:
    raise ValueError(
        "sbatch is not on this machine: run the same command on a login node of"
        " the cluster, or look at the script with --dry_run"
    )
  for run in job.runs:
    command_lib.open_folder(run, job.resume)
  submitted = subprocess.run(
      ["sbatch", "--parsable"],
      input=render(job, chosen),
      text=True,
      stdout=subprocess.PIPE,
  )
  if submitted.returncode == 0:
    number = submitted.stdout.strip().partition(";")[0]
    logging.info("submitted as job %s: squeue --job=%s", number, number)
    return 0
  raise ValueError(
      f"sbatch ended with status {submitted.returncode}, and nothing was"
      " submitted: mend what it says above, and run the same command again"
  )
