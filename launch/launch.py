"""Starts `episodic-dp train` on this machine or a cluster, and keeps it going.

  python launch/launch.py --target=local|slurm|tpu|kubernetes \\
      [--flag=value ...] -- train --config=NAME --workdir=DIR [--flag=value ...]

What stands behind the lone -- is the command of `episodic-dp`, the same for
every target; which process is which, the launcher says itself. --dry_run prints
what would run or be applied, and does nothing.

On this machine, two processes, each with half of the cores:
  python launch/launch.py --target=local --processes=2 -- \\
      train --config=glyphs --workdir=runs/two

SLURM, two nodes of four GPUs, a job that requeues itself:
  python launch/launch.py --target=slurm --nodes=2 --gpus_per_node=4 \\
      --time=11:00:00 -- train --config=glyphs --workdir=/shared/runs/glyphs

A TPU VM pod, with the container of launch/Containerfile:
  python launch/launch.py --target=tpu --tpu=pod --zone=us-east5-a \\
      --accelerator_type=v5litepod-16 --spot --image=HOST/PROJECT/NAME:tpu -- \\
      train --config=glyphs --workdir=gs://BUCKET/glyphs

Kubernetes, two pods of eight GPUs, and a volume claim that is called runs:
  python launch/launch.py --target=kubernetes --processes=2 --device=gpu \\
      --gpus=8 --image=HOST/NAME:cuda --claim=runs -- \\
      train --config=glyphs --workdir=/runs/glyphs

A sweep, three values with three keys each: on SLURM one job array, here one
run after the other, on Kubernetes a job each:
  python launch/launch.py --target=slurm --keys=3 \\
      --sweep=config.mechanism.noise_multiplier=1,2,4 -- \\
      train --config=glyphs --workdir=/shared/runs/noise

A run that was stopped (exit status 75: pre-empted, out of time, a peer lost)
goes on from its last checkpoint. The secret key is drawn by the first process
and sent to the others by themselves: no launcher knows it. docs/clusters.md
says more.
"""

from collections.abc import Callable, Sequence
import functools
import math
import pathlib
import sys
from typing import NamedTuple

if __name__ == "__main__":
  # A script's own folder comes first, where this file would be the package.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from absl import flags
from absl import logging

from episodic_dp.cli import app
from episodic_dp.cli import commands
from launch import command as command_lib
from launch import job as job_lib
from launch import kubernetes
from launch import local
from launch import manifests
from launch import slurm
from launch import sweep
from launch import tpu

_TARGETS = {
    "local": local, "slurm": slurm, "tpu": tpu, "kubernetes": kubernetes,
}  # fmt: skip
# Flags that some targets read; the others of a target are its own.
_SHARED = {
    "device": ("local", "kubernetes"),
    "image": ("tpu", "kubernetes"),
    "python": ("local", "slurm"),
}
_DAY = 86400  # Seconds.


def define_flags() -> flags.FlagValues:
  """Those of the launcher, apart from those of train and of absl."""
  values = flags.FlagValues()
  flags.DEFINE_enum(
      "target", None, list(_TARGETS),
      "Where the run is started.", flag_values=values, required=True,
  )  # fmt: skip
  flags.DEFINE_bool(
      "dry_run", False, "Print what would run or be applied, and do nothing.",
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_multi_string(
      "sweep", [],
      "A field and its values, such as"
      " --sweep=config.mechanism.noise_multiplier=1,2,4: a run for each, in a"
      " folder of its own below --workdir. Several give the product.",
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_integer(
      "keys", None, "Runs of each combination, each with its own secret key.",
      1, flag_values=values,
  )  # fmt: skip
  flags.DEFINE_integer(
      "processes", None,
      "How many processes train a run together: of this machine, of all nodes,"
      " or pods (of each slice).",
      1, flag_values=values,
  )  # fmt: skip
  flags.DEFINE_integer(
      "restarts", 3,
      "How often a run is started again after a process was killed.",
      0, flag_values=values,
  )  # fmt: skip
  flags.DEFINE_float(
      "grace", None,
      "Seconds from being told to stop until being killed (default: 30 on this"
      " machine, 120 elsewhere).",
      0.1, _DAY, flag_values=values,
  )  # fmt: skip
  flags.DEFINE_enum(
      "device", "cpu", ("cpu", "gpu", "tpu"),
      "What computes: gpu gives each local process one GPU.",
      flag_values=values,
  )  # fmt: skip
  flags.DEFINE_string(
      "name", None, "Of the job; the config's if absent.", flag_values=values
  )
  flags.DEFINE_string(
      "python", None, "local, slurm: the interpreter; this one if absent.",
      flag_values=values,
  )  # fmt: skip
  for module in _TARGETS.values():
    module.define_flags(values)
  return values


def _check_target(values: flags.FlagValues) -> None:
  """Refuses flags that the target does not read, and seconds that are none.

  Raises:
    ValueError: names the first.
  """
  if values.grace is not None and math.isnan(values.grace):
    raise ValueError(
        f"--grace=nan must be a number from 0.1 to {_DAY}, such as --grace=30"
    )
  readers: dict[str, tuple[str, ...]] = dict(_SHARED)
  for target, module in _TARGETS.items():
    own = flags.FlagValues()
    module.define_flags(own)
    readers = {name: (target,) for name in own} | readers
  for name, targets in sorted(readers.items()):
    if values[name].present and values.target not in targets:
      raise ValueError(
          f"--{name} says nothing to --target={values.target}: leave it out, it"
          f" is read by --target={'|'.join(targets)}"
      )


def main(argv: Sequence[str] | None = None) -> int:
  """Launches what the arguments say.

  Args:
    argv: the program and its arguments; None for those of the process.

  Returns:
    The exit status.
  """
  argv = list(sys.argv if argv is None else argv)
  end = argv.index("--") if "--" in argv else len(argv)
  own, command = argv[:end], argv[end + 1 :]
  values = define_flags()
  if any(argument in command_lib.HELP for argument in own) or len(argv) == 1:
    print((__doc__ or "").strip() + "\n\nflags:")
    print("\n".join(commands.flag_lines(values[n] for n in sorted(values))))
    return 0
  flags.FLAGS.mark_as_parsed()  # absl logs as it is told by its own flags.
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
  if "train" in own:
    # Of its flags the first would be called unknown, which is no remedy.
    return app.fail(
        "the lone -- before 'train' is missing: what is launched stands behind"
        " it, such as -- train --config=glyphs --workdir=runs/mine"
    )
  for argument in own:
    flag = argument.lstrip("-").partition("=")[0].partition(".")[0]
    if argument.startswith("-") and flag in command_lib.define_flags(()):
      return app.fail(
          f"{argument} is of train: write it behind a lone --, such as -- train"
          " --config=glyphs --workdir=runs/mine"
      )
  rest = app.parse(own, values)[1:]
  try:
    if rest:
      raise ValueError(
          f"argument '{rest[0]}' is not a flag of the launcher: write the"
          " command that is launched behind a lone --, and a value that holds"
          " blanks in quotes"
      )
    _check_target(values)
    return _launch(values, command)
  except Exception as e:
    told = app.sentence(e)
    if told is None:
      raise
    return app.fail(told)


def _launch(values: flags.FlagValues, command: Sequence[str]) -> int:
  """Checks everything, then renders, or launches."""
  parsed = command_lib.parse(command, launchers=set(values))
  target = _target(values, parsed)
  job = job_lib.Job(
      name=values.name or command_lib.job_name(parsed.config),
      runs=sweep.runs(parsed, values.sweep, values.keys),
      workdir=parsed.workdir,
      processes=target.processes,
      resume=parsed.resume,
  )
  if values.target == "kubernetes":
    kubernetes.check_name(job.name)
  if values.target in ("local", "slurm"):
    command_lib.check_runs(job)
  if values.dry_run:
    print(target.render(job), end="")
    return 0
  status = target.launch(job)
  if status == 0 and job.runs[0].name:
    print(f"to compare the runs: episodic-dp compare {job.workdir}")
  return status


class _Target(NamedTuple):
  """Where a job goes: how many processes a run has there, and what is done."""

  processes: int
  render: Callable[[job_lib.Job], str]
  launch: Callable[[job_lib.Job], int]


def _target(
    values: flags.FlagValues, command: command_lib.Command
) -> _Target:
  """The target that the flags name; refuses a command that it cannot run."""
  asked = values.processes
  if values.target in ("local", "slurm"):
    command_lib.check_folder(command.workdir)
  if values.target == "local":
    here = local.options(values, command)
    return _Target(
        asked or 1,
        functools.partial(local.render, chosen=here),
        functools.partial(local.launch, chosen=here),
    )
  if values.target == "slurm":
    nodes = slurm.options(values)
    return _Target(
        slurm.process_count(asked, nodes),
        functools.partial(slurm.render, chosen=nodes),
        functools.partial(slurm.launch, chosen=nodes),
    )
  if values.target == "tpu":
    workers = tpu.options(values)
    tpu.check(command, asked)
    return _Target(
        1,
        functools.partial(tpu.render, chosen=workers),
        functools.partial(tpu.launch, chosen=workers),
    )
  pods = kubernetes.options(values)
  kubernetes.check(command, pods)
  return _Target(
      asked or 1,
      functools.partial(manifests.render, chosen=pods),
      functools.partial(kubernetes.launch, chosen=pods),
  )


if __name__ == "__main__":
  sys.exit(main())
