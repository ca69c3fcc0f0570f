"""The runs of a sweep: every combination of values, and every key."""

from collections.abc import Sequence
import itertools

from episodic_dp.config import key_runs
from launch import command as command_lib
from launch import job as job_lib


def runs(
    command: command_lib.Command, sweeps: Sequence[str], keys: int | None
) -> tuple[job_lib.Run, ...]:
  """The runs that a command stands for; the configs of all are checked.

  Args:
    command: without a sweep, the only run.
    sweeps: "config.mechanism.noise_multiplier=1,2,4"; several give the product.
    keys: runs of each combination, which draw a secret key each and take
      config.seed from 0 up; None for one.

  Raises:
    ValueError: a sweep cannot be read, or a value of it is wrong.
  """
  if not sweeps and keys is None:
    return (
        job_lib.Run(
            name="",
            arguments=command.arguments,
            workdir=command.workdir,
            config=command.parsed,
        ),
    )
  if command.key_file is not None:
    raise ValueError(
        f"--key_file={command.key_file} is of one run, and a sweep has several:"
        " leave it out, so that each work directory has its own key"
    )
  for argument in command.arguments:
    if argument.lstrip("-").partition("=")[0] == "config.seed":
      raise ValueError(
          f"{argument} says nothing to a sweep, whose runs take the seeds 0, 1"
          " and on: leave it out"
      )
  fields = [_field(text) for text in sweeps]
  labels = _labels([name for name, _ in fields])
  given = command_lib.without(command.arguments, "workdir")
  found = []
  combinations = itertools.product(*(values for _, values in fields))
  for values, key in itertools.product(combinations, range(keys or 1)):
    name = ",".join([
        *(f"{label}={value}" for label, value in zip(labels, values)),
        key_runs.name(key),
    ])
    workdir = key_runs.folder(command.workdir, name)
    arguments = (
        *given,
        *(f"--{field}={value}" for (field, _), value in zip(fields, values)),
        f"--config.seed={key}",
        f"--workdir={workdir}",
    )
    found.append(
        job_lib.Run(
            name=name,
            arguments=arguments,
            workdir=workdir,
            config=command_lib.parse(["train", *arguments]).parsed,
        )
    )
  return tuple(found)


def _field(text: str) -> tuple[str, list[str]]:
  """("config.steps", ["10", "20"]) of "config.steps=10,20"."""
  example = "such as --sweep=config.mechanism.noise_multiplier=1,2,4"
  name, equals, rest = text.removeprefix("--").partition("=")
  values = [value.strip() for value in rest.split(",")]
  if not equals or not name.startswith("config.") or "" in values:
    raise ValueError(
        f"--sweep={text} is not a field of the config with its values: write it"
        f" {example}"
    )
  if name == "config.seed":
    raise ValueError(
        f"--sweep={text} would give runs the same name: write"
        f" --keys={len(values)}, which sets the seeds"
    )
  if len(set(values)) < len(values):
    raise ValueError(f"--sweep={text} has a value twice: leave one out")
  for value in values:
    if "/" in value:
      raise ValueError(
          f"--sweep={text}: {value} cannot be part of a folder's name; write a"
          " config file for each such run"
      )
  return name, values


def _labels(names: Sequence[str]) -> list[str]:
  """The last part of each field's name; all of it where two would be alike."""
  last = [name.rpartition(".")[2] for name in names]
  if len(set(names)) < len(names):
    name = max(names, key=names.count)
    raise ValueError(
        f"--sweep={name} is given twice: write all its values into one"
    )
  return [
      part if last.count(part) == 1 else name.removeprefix("config.")
      for part, name in zip(last, names)
  ]
