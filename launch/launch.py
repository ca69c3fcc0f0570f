"""Start a command of `episodic-dp` on this machine or a cluster.

  python launch/launch.py --target=local|slurm|tpu|kubernetes \\
      [--flag=value ...] -- train --config=NAME --workdir=DIR [--flag=value ...]

The command of `episodic-dp` after the separate -- is the same for every target;
the launcher gives each process its number. --dry_run prints what would run or
be applied, and does nothing.

Two processes on this machine, each with half of the cores:
  python launch/launch.py --target=local --processes=2 -- \\
      train --config=glyphs --workdir=runs/two

SLURM, two nodes of four GPUs, a job that requeues itself:
  python launch/launch.py --target=slurm --nodes=2 --processes=8 --gpus=4 \\
      --time=11:00:00 -- train --config=glyphs --workdir=/shared/runs/glyphs

A TPU VM pod, with the container of launch/Containerfile:
  python launch/launch.py --target=tpu --tpu=pod --zone=us-east5-a \\
      --accelerator_type=v5litepod-16 --spot --image=HOST/PROJECT/NAME:tpu -- \\
      train --config=glyphs --workdir=/runs/glyphs

Kubernetes, two pods of eight GPUs, and a volume claim named runs:
  python launch/launch.py --target=kubernetes --processes=2 --gpus=8 \\
      --image=HOST/NAME:cuda --claim=runs -- \\
      train --config=glyphs --workdir=/runs/glyphs

A sweep, three values with two secret keys each: on SLURM one job array, on
Kubernetes one job for each, otherwise the runs in sequence:
  python launch/launch.py --target=slurm --sweep=config.seed=0,1 \\
      --sweep=config.mechanism.noise_multiplier=1,2,4 -- \\
      train --config=glyphs --workdir=/shared/runs/noise

If one process dies the others are stopped. A stopped run (exit status 75:
pre-empted, out of time, a process lost) resumes from its last checkpoint by the
same command; SLURM, Kubernetes and the script of a TPU VM start it again. The
first process makes the secret key and sends it to the others; no launcher knows
it. See docs/clusters.md.
"""

from collections.abc import Sequence
import pathlib
import sys

if __name__ == "__main__":
  # Otherwise a script's own folder comes first, with this file as the package.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from absl import flags
from absl import logging

from episodic_dp import errors
from episodic_dp.cli import app
from launch import job as job_lib
from launch import kubernetes
from launch import local
from launch import slurm
from launch import tpu

_TARGETS = {
    "local": local, "slurm": slurm, "tpu": tpu, "kubernetes": kubernetes,
}
_NEEDED = {"tpu": ("tpu", "zone", "image"), "kubernetes": ("image", "claim")}


def define_flags() -> flags.FlagValues:
  """Define the launcher's flags, apart from those of absl."""
  values = flags.FlagValues()
  flags.DEFINE_enum(
      "target", None, list(_TARGETS), "Where the run is started.",
      flag_values=values, required=True,
  )
  flags.DEFINE_bool(
      "dry_run", False, "Print what would run or be applied, and do nothing.",
      flag_values=values,
  )
  flags.DEFINE_multi_string(
      "sweep", [],
      "A field and its values, such as"
      " --sweep=config.mechanism.noise_multiplier=1,2,4: a run for each, in a"
      " folder below --workdir. Several give the product.",
      flag_values=values,
  )
  for name, whole, text in (
      ("processes", 1, "number of processes that train a run together."),
      ("nodes", 1, "slurm: machines."),
      ("cpus", 4, "slurm, kubernetes: cores of each process."),
  ):
    flags.DEFINE_integer(name, whole, text, 1, flag_values=values)
  flags.DEFINE_integer(
      "gpus", 0, "GPUs of each node or pod; local: 1 gives each process one.",
      0, flag_values=values,
  )
  for name, default, text in (
      ("time", None, "slurm: length of the job, such as 11:00:00."),
      ("image", None, "tpu, kubernetes: launch/Containerfile makes it."),
      ("memory", "16Gi", "kubernetes: of each pod."),
      ("claim", None, f"kubernetes: a volume, at {kubernetes.MOUNT}."),
      ("tpu", None, "tpu: the name of the TPU VM."),
      ("zone", None, "tpu: of the TPU VM."),
      ("accelerator_type", None, "tpu: creates the TPU VM if it is missing."),
  ):
    flags.DEFINE_string(name, default, text, flag_values=values)
  flags.DEFINE_bool(
      "spot", False, "tpu: a pre-emptible VM; it is created again if lost.",
      flag_values=values,
  )
  flags.DEFINE_multi_string(
      "sbatch", [], "slurm: a further option, such as"
      " --sbatch=--partition=long.", flag_values=values,
  )
  return values


def main(argv: Sequence[str] | None = None) -> int:
  """Launch the command after the --; return the exit status.

  Args:
    argv: the program and its arguments; None for those of the process.
  """
  argv = list(sys.argv if argv is None else argv)
  end = argv.index("--") if "--" in argv else len(argv)
  values = define_flags()
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
  if {"--help", "-h"} & set(argv[:end]) or len(argv) == 1:
    print(__doc__, values.get_help(), sep="\n")
    return 0
  try:
    for word in argv:
      job_lib.checked(word)
    rest = app.parse_flags(argv[:end], values)[1:]
    for name in _NEEDED.get(values.target, ()):
      # A name that begins with a hyphen would be an option of a program.
      if (values[name].value or "-").startswith("-"):
        raise errors.RunError(
            f"--target={values.target}: expected --{name}=NAME"
        )
    if rest:
      raise errors.RunError(f"{rest[0]}: expected the command behind a lone --")
    job = job_lib.of_command(argv[end + 1 :], values.sweep)
    target = _TARGETS[values.target]
    if values.dry_run:
      print(target.render(job, values), end="")
      return 0
    return target.launch(job, values)
  except errors.RunError as e:
    return app.fail(str(e))


if __name__ == "__main__":
  sys.exit(main())
