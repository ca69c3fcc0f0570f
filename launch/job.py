"""Runs of an `episodic-dp` command, and the sweep that makes several of one."""

from collections.abc import Sequence
import dataclasses
import itertools
import os
import re
import shlex

REQUEUE = 75  # The exit status of a run that the same command resumes.
MOST_DEVICES = 8  # As `episodic_dp.backends` uses on a CPU.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One run of a job.

  Attributes:
    name: name of its folder in a sweep; "" for the only run of a job.
    command: the command of `episodic-dp` and its arguments, without those that
      number a process.
  """

  name: str
  command: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """Runs that are launched together.

  Attributes:
    name: name in the cluster's list of jobs.
    runs: one, or those of a sweep.
    workdir: of the run, or the folder of a sweep's work directories.
  """

  name: str
  runs: tuple[Run, ...]
  workdir: str


def of_command(command: Sequence[str], sweeps: Sequence[str]) -> Job:
  """Describe the job of a command; only --workdir of the command is read.

  Args:
    command: "train", "--config=glyphs", "--workdir=runs/mine", ...
    sweeps: "config.mechanism.noise_multiplier=1,2,4"; several give the product.

  Raises:
    ValueError: there is no command or no --workdir, or a sweep has no values.
  """
  workdirs = [
      argument.partition("=")[2]
      for argument in command if argument.startswith("--workdir=")
  ]
  if not workdirs:
    raise ValueError(
        "expected a command with --workdir=DIR behind a lone --, such as"
        " -- train --config=glyphs --workdir=runs/mine"
    )
  given = tuple(command)
  if command[0] in ("train", "pvi") and "--resume" not in str(command):
    given = (*given, "--resume=auto")
  fields = [_field(text) for text in sweeps]
  runs = []
  for values in itertools.product(*(choices for _, choices in fields)):
    chosen = {field: value for (field, _), value in zip(fields, values)}
    # Seeds are keys: a run with another seed has another secret key.
    name = ",".join(
        f"{'key' if field == 'config.seed' else field.rpartition('.')[2]}"
        f"={value}"
        for field, value in chosen.items()
    )
    flags = [f"--{field}={value}" for field, value in chosen.items()]
    if name:  # The last of two flags counts.
      flags.append(f"--workdir={workdirs[-1].rstrip('/')}/{name}")
    runs.append(Run(name=name, command=(*given, *flags)))
  base = os.path.basename(workdirs[-1].rstrip("/")).lower()
  return Job(
      name=re.sub(r"[^a-z0-9]+", "-", f"run-{base}").strip("-")[:50],
      runs=tuple(runs),
      workdir=workdirs[-1],
  )


def _field(text: str) -> tuple[str, list[str]]:
  """Return ("config.steps", ["10", "20"]) for "config.steps=10,20"."""
  name, _, values = text.partition("=")
  choices = values.split(",")
  if not name.startswith("config.") or "" in choices or "/" in values:
    raise ValueError(
        f"--sweep={text}: expected a field and its values, such as"
        " --sweep=config.mechanism.noise_multiplier=1,2,4"
    )
  return name, choices


def quoted(word: str) -> str:
  """Quote a word for a shell; also words with a comma, for shellcheck."""
  found = shlex.quote(word)
  return f"'{word}'" if found == word and "," in word else found


def joined(words: Sequence[str]) -> str:
  """Quote words for a shell, with spaces between them."""
  return " ".join(map(quoted, words))
