"""Kubernetes: an Indexed Job with a headless Service; JobSet for TPU slices.

  python launch/launch.py --target=kubernetes --processes=2 --device=gpu \\
      --gpus=8 --image=HOST/REPOSITORY/NAME:TAG --claim=runs -- \\
      train --config=glyphs --workdir=/runs/glyphs

What is applied is in manifests.py.
"""

import re
import shutil
import subprocess

from absl import flags

from launch import command as command_lib
from launch import job as job_lib
from launch import manifests
from launch.manifests import MOUNT
from launch.manifests import Options


def define_flags(values: flags.FlagValues) -> None:
  """Those of this target, and --image, which TPU VMs take too."""
  for name, default, what in (
      ("image", None, "the container (launch/Containerfile makes it)."),
      ("memory", Options.memory, "of each pod."),
      ("claim", None, f"a persistent volume claim, mounted at {MOUNT}."),
      ("namespace", None, "that of kubectl's context if absent."),
      ("service_account", None, "of the pods, such as may write the bucket."),
      ("tpu_accelerator", None, "of the nodes: tpu-v5-lite-podslice."),
      ("tpu_topology", None, "of a slice: 4x4."),
  ):
    target = "kubernetes, tpu" if name == "image" else "kubernetes"
    flags.DEFINE_string(name, default, f"{target}: {what}", flag_values=values)
  for name, whole, what in (
      ("cpus", Options.cpus, "cores of each pod."),
      ("gpus", Options.gpus, "GPUs of each pod, or chips with --device=tpu."),
      ("slices", 1, "TPU slices; several are a JobSet of --processes each."),
  ):
    flags.DEFINE_integer(
        name, whole, f"kubernetes: {what}", 1, flag_values=values
    )


def options(values: flags.FlagValues) -> Options:
  """As the flags say.

  Raises:
    ValueError: one is missing, or they do not go together.
  """
  if not values.image:
    raise ValueError(
        "--target=kubernetes needs --image, such as"
        " --image=registry.example.org/episodic-dp:cpu"
    )
  tpu = values.device == "tpu"
  if tpu and not (values.tpu_accelerator and values.tpu_topology):
    raise ValueError(
        "--device=tpu needs the kind of nodes, such as"
        " --tpu_accelerator=tpu-v5-lite-podslice --tpu_topology=4x4"
    )
  if values["gpus"].present and values.device == "cpu":
    raise ValueError(
        f"--gpus={values.gpus} are not asked for with --device=cpu: add"
        " --device=gpu, or --device=tpu, whose chips they are"
    )
  for name in ("tpu_accelerator", "tpu_topology"):
    if values[name].value and not tpu:
      raise ValueError(
          f"--{name}={values[name].value} is of TPUs: add --device=tpu, or"
          " leave it out"
      )
  if values.slices > 1 and not tpu:
    raise ValueError(
        f"--slices={values.slices} are of TPUs: add --device=tpu, or leave it"
        " out and say how many pods there are by --processes=N"
    )
  return Options(
      image=values.image,
      device=values.device,
      cpus=values.cpus,
      memory=values.memory,
      gpus=values.gpus,
      claim=values.claim,
      namespace=values.namespace,
      service_account=values.service_account,
      tpu_accelerator=values.tpu_accelerator,
      tpu_topology=values.tpu_topology,
      slices=values.slices,
      restarts=values.restarts,
      grace=values.grace or Options.grace,
  )


def check(command: command_lib.Command, chosen: Options) -> None:
  """Refuses what the pods would not find.

  Raises:
    ValueError: the work directory is neither on the claim nor in an object
      store, or other files are not on the claim.
  """
  command_lib.check_remote(command)
  if command.resume == "never":
    raise ValueError(
        "--resume=never would refuse a pod that is made anew its own run: leave"
        " it out"
    )
  for flag, path in (
      ("workdir", command.workdir),
      ("data_dir", command.data_dir),
      ("key_file", command.key_file),
  ):
    store = path is not None and command_lib.on_object_store(path)
    if path is None or (store and flag == "workdir"):
      continue
    if not path.startswith(f"{MOUNT}/"):
      raise ValueError(
          f"--{flag}={path} is not in the pods: write --{flag}={MOUNT}/glyphs"
          " with --claim=NAME, a persistent volume claim"
          + ", or --workdir=gs://BUCKET/glyphs" * (flag == "workdir")
      )
    if chosen.claim is None:
      raise ValueError(
          f"--{flag}={path} is lost with the pods: add --claim=NAME, a"
          f" persistent volume claim that is mounted at {MOUNT}"
      )


def check_name(name: str) -> None:
  """Refuses a name that Kubernetes does not take for a job and its pods.

  Raises:
    ValueError: says which it takes.
  """
  if not re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name):
    raise ValueError(
        f"--name={name} is no name for Kubernetes: begin with a letter and use"
        " at most 52 small letters, digits and hyphens, such as --name=glyphs-1"
    )


def launch(job: job_lib.Job, chosen: Options) -> int:
  """Creates the objects; a job of the same name is not touched.

  Raises:
    ValueError: there is no kubectl.
  """
  if shutil.which("kubectl") is None:
    raise ValueError(
        "kubectl is not on this machine: install it, or write the manifests to"
        " a file with --dry_run"
    )
  return subprocess.run(
      ["kubectl", "create", "-f", "-"],
      input=manifests.render(job, chosen),
      text=True,
  ).returncode
