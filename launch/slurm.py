"""SLURM: one batch script, which requeues itself; a sweep is a job array.

`srun` starts the processes, and JAX reads their numbers from its variables.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

from episodic_dp import errors
from launch import job as job_lib

_BODY = pathlib.Path(__file__).with_name("slurm.sh")
_NOTICE = 120  # Seconds before the end of --time at which a run is stopped.


def render(job: job_lib.Job, values: Any) -> str:
  """Return the batch script.

  Raises:
    RunError: the processes do not fit the nodes.
  """
  if values.processes % values.nodes:
    raise errors.RunError(
        f"--processes={values.processes}: expected a multiple of"
        f" --nodes={values.nodes}"
    )
  several = len(job.runs) > 1
  log = "slurm-%A_%a.log" if several else "slurm-%j.log"
  options = [
      f"--job-name={job.name}",
      f"--nodes={values.nodes}",
      f"--ntasks-per-node={values.processes // values.nodes}",
      f"--cpus-per-task={values.cpus}",
      *([f"--gres=gpu:{values.gpus}"] if values.gpus else []),
      *([f"--time={values.time}"] if values.time else []),
      *([f"--array=0-{len(job.runs) - 1}"] if several else []),
      "--requeue",
      f"--signal=USR1@{_NOTICE}",
      "--open-mode=append",
      f"--output={os.path.abspath(job.workdir).replace('%', '%%')}/{log}",
      *values.sbatch,
  ]
  lines = ["#!/bin/bash"]
  lines += [_directive(option) for option in options]
  lines += ["set -u", f"python={job_lib.quoted(sys.executable)}"]
  if several:
    lines.append('case "$SLURM_ARRAY_TASK_ID" in')
    lines += [
        f"  {i}) run=({job_lib.joined(run.command)}) ;;"
        for i, run in enumerate(job.runs)
    ]
    lines.append("esac")
  else:
    lines.append(f"run=({job_lib.joined(job.runs[0].command)})")
  if values.processes > 1 and not values.gpus:
    devices = min(values.cpus, job_lib.MOST_DEVICES)
    lines.append(f"export JAX_NUM_CPU_DEVICES={devices}")
  return "\n".join([*lines, "", _BODY.read_text(encoding="utf-8")])


def _directive(option: str) -> str:
  """Quote an option as sbatch reads it, where a backslash always escapes."""
  escaped = re.sub(r'(["\\])', r"\\\1", job_lib.checked(option))
  return f'#SBATCH "{escaped}"'


def launch(job: job_lib.Job, values: Any) -> int:
  """Submit the script.

  Raises:
    RunError: there is no sbatch, or processes do not fit the nodes.
  """
  script = render(job, values)
  if shutil.which("sbatch") is None:
    raise errors.RunError("--target=slurm: expected sbatch on this machine")
  os.makedirs(job.workdir, exist_ok=True)  # The log is in it.
  return subprocess.run(
      ["sbatch"], input=script, text=True, check=False
  ).returncode
