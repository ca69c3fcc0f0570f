"""A TPU VM pod: one container on each of its workers, by gcloud and SSH.

  python launch/launch.py --target=tpu --tpu=pod --zone=us-east5-a \\
      --accelerator_type=v5litepod-16 --image=HOST/PROJECT/NAME:TAG \\
      -- train --config=glyphs --workdir=gs://BUCKET/glyphs

JAX learns from the machines' metadata which worker is which. What does not
change from job to job stands in tpu.sh.
"""

import dataclasses
import pathlib
import shutil
import subprocess

from absl import flags

from launch import command as command_lib
from launch import job as job_lib
from launch import shell

_BODY = pathlib.Path(__file__).with_name("tpu.sh")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is asked of Google Cloud.

  Attributes:
    tpu: the name of the TPU VM; made unless it is there.
    zone: of it.
    image: the container, with JAX for TPUs.
    project: None for that of gcloud's configuration.
    accelerator_type: of a TPU VM that is made.
    runtime_version: likewise.
    spot: whether it may be taken away; then it is deleted and made again.
    delete: whether it is deleted at the end.
    restarts: how often a run is started again after it was stopped.
    grace: seconds between SIGTERM and SIGKILL.
  """

  tpu: str
  zone: str
  image: str
  project: str | None = None
  accelerator_type: str | None = None
  runtime_version: str = "tpu-ubuntu2204-base"
  spot: bool = False
  delete: bool = False
  restarts: int = 3
  grace: float = 120.0


def define_flags(values: flags.FlagValues) -> None:
  """Those of this target alone."""
  for name, what in (
      ("tpu", "the name of the TPU VM; made unless it is there."),
      ("zone", "its zone, such as us-east5-a."),
      ("project", "of Google Cloud; that of gcloud's configuration if absent."),
      ("accelerator_type", "of a TPU VM that is made: v5litepod-16."),
  ):
    flags.DEFINE_string(name, None, f"tpu: {what}", flag_values=values)
  flags.DEFINE_string(
      "runtime_version",
      Options.runtime_version,
      "tpu: of a TPU VM that is made.",
      flag_values=values,
  )
  flags.DEFINE_bool(
      "spot",
      False,
      "tpu: cheaper, and may be taken away; it is made again then.",
      flag_values=values,
  )
  flags.DEFINE_bool(
      "delete", False, "tpu: delete the TPU VM at the end.", flag_values=values
  )


def options(values: flags.FlagValues) -> Options:
  """As the flags say.

  Raises:
    ValueError: one is missing.
  """
  for name, example in (
      ("tpu", "pod"),
      ("zone", "us-east5-a"),
      ("image", "europe-docker.pkg.dev/PROJECT/REPOSITORY/episodic-dp:tpu"),
  ):
    if not getattr(values, name):
      raise ValueError(
          f"--target=tpu needs --{name}, such as --{name}={example}"
      )
  if values.spot and not values.accelerator_type:
    raise ValueError(
        "--spot needs --accelerator_type, to make a TPU VM again that was taken"
        " away, such as --accelerator_type=v5litepod-16"
    )
  return Options(
      tpu=values.tpu,
      zone=values.zone,
      image=values.image,
      project=values.project,
      accelerator_type=values.accelerator_type,
      runtime_version=values.runtime_version,
      spot=values.spot,
      delete=values.delete,
      restarts=values.restarts,
      grace=values.grace or Options.grace,
  )


def check(command: command_lib.Command, processes: int | None) -> None:
  """Refuses what every worker would not find.

  Raises:
    ValueError: the work directory or the data are on this machine.
  """
  command_lib.check_remote(command)
  if processes is not None:
    raise ValueError(
        f"--processes={processes} is said by --accelerator_type: a TPU VM has a"
        " process on each of its workers, leave --processes out"
    )
  if not command.workdir.startswith("gs://"):
    raise ValueError(
        f"--workdir={command.workdir} is lost with the TPU VM: choose a bucket,"
        " such as --workdir=gs://BUCKET/glyphs"
    )
  if command.key_file is not None:
    raise ValueError(
        f"--key_file={command.key_file} is lost with the container, and the run"
        " could not go on: leave it out, and give the bucket to the TPU VM's"
        " account alone"
    )
  if command.data_dir is not None:
    raise ValueError(
        f"--data_dir={command.data_dir} is not on the workers: take data that"
        " are built in, or build an image that holds them and launch it on"
        " Kubernetes"
    )


def render(job: job_lib.Job, chosen: Options) -> str:
  """The script, which runs on this machine."""
  where = [f"--zone={chosen.zone}"]
  if chosen.project:
    where.append(f"--project={chosen.project}")
  made = []
  if chosen.accelerator_type:
    made = [
        f"--accelerator-type={chosen.accelerator_type}",
        f"--version={chosen.runtime_version}",
        *["--spot"] * chosen.spot,
    ]
  lines = [
      "#!/bin/bash",
      "# Written by launch/launch.py; docs/clusters.md says what it does.",
      "set -u",
      "export CLOUDSDK_CORE_DISABLE_PROMPTS=1",
      "",
      f"tpu={shell.quote(chosen.tpu)}",
      f"where=({shell.join(where)})",
      f"made=({shell.join(made)})",
      f"image={shell.quote(chosen.image)}",
      f"registry={shell.quote(chosen.image.partition('/')[0])}",
      f"spot={'yes' if chosen.spot else 'no'}",
      f"delete={'yes' if chosen.delete else 'no'}",
      f"restarts={chosen.restarts}",
      f"grace={max(1, round(chosen.grace))}",
      "",
      _BODY.read_text(encoding="utf-8"),
      "prepare || fail",
  ]
  for run in job.runs:
    lines.append(f"train {shell.join(run.arguments)} || fail")
  return "\n".join([*lines, "finish 0"]) + "\n"


def launch(job: job_lib.Job, chosen: Options) -> int:
  """Runs the script; its exit status.

  Raises:
    ValueError: there is no gcloud.
  """
  if shutil.which("gcloud") is None:
    raise ValueError(
        "gcloud is not on this machine: install Google Cloud's SDK and log in,"
        " or look at the script with --dry_run"
    )
  return subprocess.run(["bash", "-c", render(job, chosen)]).returncode
