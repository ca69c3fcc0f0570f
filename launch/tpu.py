"""A TPU VM pod: one container on each of its workers, by gcloud and SSH.

JAX reads the number of each worker from the machines' metadata. The folder
/runs of the containers is on the disk of the worker, and lasts as long as the
TPU VM: put the secret key of a run there (--key_file=/runs/NAME).
"""

import pathlib
import shutil
import subprocess
from typing import Any

from episodic_dp import errors
from launch import job as job_lib

_BODY = pathlib.Path(__file__).with_name("tpu.sh")
_VERSION = "tpu-ubuntu2204-base"


def render(job: job_lib.Job, values: Any) -> str:
  """Return the script, which runs on this machine.

  Raises:
    RunError: a file of a run would be lost with its container.
  """
  job_lib.check_volume(job, "/runs")
  made = []
  if values.accelerator_type:
    made = [
        f"--accelerator-type={values.accelerator_type}",
        f"--version={_VERSION}",
        *["--spot"] * values.spot,
    ]
  variables = {
      "tpu": values.tpu,
      "image": values.image,
      "registry": values.image.partition("/")[0],
      "spot": "yes" if values.spot else "no",
  }
  lines = ["#!/bin/bash", "set -u", "export CLOUDSDK_CORE_DISABLE_PROMPTS=1"]
  lines += [f"{k}={job_lib.quoted(v)}" for k, v in variables.items()]
  lines += [
      f"where=({job_lib.quoted(f'--zone={values.zone}')})",
      f"made=({job_lib.joined(made)})",
      "",
      _BODY.read_text(encoding="utf-8"),
      "prepare || exit",
  ]
  lines += [f"train {job_lib.joined(run.command)} || exit" for run in job.runs]
  return "\n".join(lines) + "\n"


def launch(job: job_lib.Job, values: Any) -> int:
  """Run the script; return its exit status.

  Raises:
    RunError: there is no gcloud.
  """
  if shutil.which("gcloud") is None:
    raise errors.RunError("--target=tpu: expected gcloud on this machine")
  script = render(job, values)
  return subprocess.run(["bash", "-c", script], check=False).returncode
