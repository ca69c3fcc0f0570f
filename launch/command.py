"""The `episodic-dp train` command behind the `--`: read, and checked.

What is wrong with it is said here, before a queue is joined or a machine is
paid for.
"""

from collections.abc import Collection, Sequence
import dataclasses
import os
import re

from absl import flags
from ml_collections import config_flags

from episodic_dp.cli import app
from episodic_dp.config import presets
from episodic_dp.config import RunConfig
from launch import job as job_lib

# Which process this is: the launchers say it.
OF_PROCESSES = ("coordinator", "num_processes", "process_id")
HELP = ("-h", "-help", "--help", "--helpshort", "--helpfull")
_EXAMPLE = "-- train --config=glyphs --workdir=runs/mine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
  """A train command.

  Attributes:
    arguments: those behind "train", as they were given.
    config: the value of --config.
    parsed: what it says, with all that the arguments set of it.
    workdir: of --workdir.
    data_dir: of --data_dir, or None.
    key_file: of --key_file, or None.
    time_limit: of --time_limit, or None.
    resume: of --resume.
  """

  arguments: tuple[str, ...]
  config: str
  parsed: RunConfig
  workdir: str
  data_dir: str | None
  key_file: str | None
  time_limit: str | None
  resume: str


def parse(
    command: Sequence[str], launchers: Collection[str] = ()
) -> Command:
  """Reads a command and checks what can be checked without data.

  Without JAX too, unless there is a --time_limit or a --key_file.

  Args:
    command: what stands behind the `--`.
    launchers: names of the launcher's flags, which stand before it.

  Raises:
    ValueError: it is no train command, a flag or the config is wrong, or the
      launcher is to say it; one sentence.
  """
  if not command:
    raise ValueError(
        f"what is to be launched is missing: write it behind a lone --, such as"
        f" {_EXAMPLE}"
    )
  name, *arguments = command
  if name != "train":
    raise ValueError(
        f"'{name}' is not launched: behind the -- stands episodic-dp's train,"
        f" such as {_EXAMPLE}"
    )
  for argument in arguments:
    flag = argument.lstrip("-").partition("=")[0]
    if argument.startswith("-") and flag in OF_PROCESSES:
      raise ValueError(
          f"{argument} is said by the launcher: leave it out, and say how many"
          " processes there are by launch.py --processes=N before the --"
      )
    if argument.startswith("-") and flag in launchers:
      raise ValueError(
          f"{argument} is of the launcher: write it before the lone --, behind"
          " launch.py"
      )
    if argument in HELP:
      raise ValueError(
          f"{argument} stands behind no command here: launch.py --help lists"
          " the launcher's flags, episodic-dp train --help those of train"
      )
  values = define_flags(arguments)
  rest = app.parse(["launch.py", *arguments], values)[1:]
  if rest:
    raise ValueError(
        f"argument '{rest[0]}' is not a flag of train: flags look like"
        " --name=value"
    )
  parsed = RunConfig.parse(values.config, data_dir=values.data_dir)
  parsed.check_complete()
  _check_start(values)
  return Command(
      arguments=tuple(arguments),
      config=_last(arguments, "config") or "",
      parsed=parsed,
      workdir=values.workdir,
      data_dir=values.data_dir,
      key_file=values.key_file,
      time_limit=values.time_limit,
      resume=values.resume,
  )


def _check_start(values: flags.FlagValues) -> None:
  """Refuses what a run would be refused for when it is started."""
  # Lazy imports: JAX comes with them.
  if values.time_limit is not None:
    from episodic_dp.training import time_limit

    time_limit.parse(values.time_limit)
  if values.key_file is not None:
    from episodic_dp.training import workdir as workdir_lib

    workdir_lib.check_key_file(values.workdir, values.key_file)


def define_flags(arguments: Sequence[str]) -> flags.FlagValues:
  """The flags of train but for `OF_PROCESSES`, as `cli.train` has them.

  Apart from absl's own, since each run of a sweep is read anew, and without
  what train imports.
  """
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
      "config",
      None,
      "The config.",
      flag_values=values,
      lock_config=True,
      sys_argv=["launch.py", *arguments],
  )
  flags.DEFINE_string(
      "workdir", None, "The folder.", flag_values=values, required=True
  )
  flags.DEFINE_string("data_dir", None, "The data.", flag_values=values)
  flags.DEFINE_bool("download", False, "Fetch data.", flag_values=values)
  flags.DEFINE_string("key_file", None, "The key.", flag_values=values)
  flags.DEFINE_string("time_limit", None, "How long.", flag_values=values)
  flags.DEFINE_enum(
      "resume", "auto", ("auto", "must", "never"), "Old or new.",
      flag_values=values,
  )  # fmt: skip
  flags.mark_flag_as_required("config", values)
  return values


def without(arguments: Sequence[str], name: str) -> tuple[str, ...]:
  """The arguments, but for a flag and its value."""
  kept, skip = [], False
  for argument in arguments:
    if skip:
      skip = False
    elif argument in (f"--{name}", f"-{name}"):
      skip = True
    elif not argument.startswith((f"--{name}=", f"-{name}=")):
      kept.append(argument)
  return tuple(kept)


def _last(arguments: Sequence[str], name: str) -> str | None:
  """The value of a flag, the last one where it is given twice."""
  found = None
  for argument, following in zip(arguments, [*arguments[1:], ""]):
    flag, equals, value = argument.partition("=")
    if flag in (f"--{name}", f"-{name}"):
      found = value if equals else following
  return found


def on_object_store(path: str) -> bool:
  """Whether a path is an address such as gs://bucket/folder."""
  return "://" in path


def check_folder(workdir: str) -> None:
  """Refuses a work directory that cannot be made on this machine.

  Raises:
    ValueError: names it.
  """
  if on_object_store(workdir):
    return
  path = there = os.path.abspath(workdir)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK):
    return
  what = "is not a folder" if there == path else "cannot be made"
  raise ValueError(
      f"--workdir={workdir} {what}: {there} is nothing that you can write into,"
      " choose another --workdir"
  )


def check_runs(job: job_lib.Job) -> None:
  """Refuses folders of this machine that hold other runs than those of a job.

  Nothing is written. Object stores are looked at by their runs alone.

  Raises:
    RunError: names what the folder holds; one sentence.
  """
  if on_object_store(job.workdir) or not os.path.isdir(job.workdir):
    return
  # Lazy imports: JAX comes with them, and a new folder needs none.
  from episodic_dp.analysis import several_keys
  from episodic_dp.training import same_run

  if job.runs[0].name:
    several_keys.check_holds_no_run(
        job.workdir, "a sweep", "--sweep and --keys"
    )
  else:
    several_keys.check_alone(job.workdir)
  for run in job.runs:
    if run.config is not None:
      same_run.check_before_data(
          os.path.abspath(run.workdir), run.config.as_json()
      )


def open_folder(run: job_lib.Run, resume: str) -> None:
  """Opens a work directory of this machine once, as its run is about to.

  So it is known to take files, and to be free, before a run waits for its turn;
  and a run that is stopped before it came so far can be started again by
  `resume_again`. An object store is opened by its run alone.

  Args:
    run: whose folder it is.
    resume: "auto", "must" or "never", as the run is started.

  Raises:
    RunError: it cannot be used; one sentence.
  """
  # Lazy import: JAX comes with it, and a dry run opens nothing.
  from episodic_dp.training import workdir as workdir_lib

  if not on_object_store(run.workdir):
    with workdir_lib.opened(run.workdir, resume=resume):
      pass


def resume_again(workdir: str) -> str:
  """The flag with which a run is started again, whatever its command says.

  A folder that no run was begun in is then an error, such as that of a node
  which does not mount it. The address of an object store leads to the same from
  everywhere, and holds nothing yet where a run was stopped early.
  """
  return f"--resume={'auto' if on_object_store(workdir) else 'must'}"


def check_remote(command: Command) -> None:
  """Refuses what a container elsewhere does not have.

  Raises:
    ValueError: the config is a file of this machine.
  """
  preset = command.config.partition(":")[0]
  if preset not in presets.NAMES:
    raise ValueError(
        f"--config={command.config} is a file of this machine, which a"
        " container does not have: add it to episodic_dp/config/presets/ and"
        " build the image anew, or take a preset with --config.FIELD=VALUE"
    )


def job_name(config: str) -> str:
  """A name that all clusters take, after the config."""
  base = os.path.basename(config.partition(":")[0]).removesuffix(".py")
  name = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")
  return name[:40] or "train"
