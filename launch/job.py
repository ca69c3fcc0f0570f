"""Runs of an `episodic-dp` command, and the sweep that makes several of one."""

from collections.abc import Sequence
import dataclasses
import itertools
import os
import posixpath
import re
import shlex

from episodic_dp import errors
from episodic_dp.output import quoting

REQUEUE = 75  # The exit status of a run that the same command resumes.
MOST_DEVICES = 8  # As `episodic_dp.backends` uses on a CPU.
# Flags that decide where the files of a run are.
_READ = ("workdir", "key_file")
_TRAIN = ("train", "pvi")  # Commands that resume, and have a secret key.


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
  """Describe the job of a command; its folder and key file alone are read.

  Args:
    command: "train", "--config=glyphs", "--workdir=runs/mine", ...
    sweeps: "config.mechanism.noise_multiplier=1,2,4"; several give the product.

  Raises:
    RunError: there is no command or no --workdir, or a sweep has no values or
      equal ones.
  """
  workdir = _value(command, "workdir")
  if not workdir:
    raise errors.RunError(
        "expected a command with --workdir=DIR behind a lone --, such as"
        " -- train --config=glyphs --workdir=runs/mine"
    )
  for word in command:
    flag = word.partition("=")[0].lstrip("-")
    plainly = flag in _READ and word.startswith(f"--{flag}=")
    if word[:1] == "-" and flag in (*_READ, "flagfile") and not plainly:
      raise errors.RunError(
          f"{quoting.printable(word)}: write --workdir=DIR and --key_file=PATH"
          " as one word each, with two dashes, and no --flagfile"
      )
  key = _value(command, "key_file")
  given = tuple(command)
  resumes = any(word.startswith("--resume") for word in command)
  if command[0] in _TRAIN and not resumes:
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
      flags.append(f"--workdir={workdir.rstrip('/')}/{name}")
    if name and key:
      flags.append(f"--key_file={key}.{name}")
    runs.append(Run(name=name, command=(*given, *flags)))
  if len({run.name for run in runs}) < len(runs):
    raise errors.RunError(
        f"--sweep={' --sweep='.join(sweeps)}: expected different values of"
        " different fields, because each run has a folder of its own"
    )
  base = os.path.basename(workdir.rstrip("/")).lower()
  return Job(
      # A DNS label, with room for the numbers of a run and of a pod.
      name=re.sub(r"[^a-z0-9]+", "-", f"run-{base}")[:50].strip("-"),
      runs=tuple(runs),
      workdir=os.path.expanduser(workdir),
  )


def check_volume(job: Job, mount: str) -> None:
  """Refuse files of a run that would be lost with its container.

  Args:
    job: the job.
    mount: the only folder of the container that is kept.

  Raises:
    RunError: the work directory or the secret key is elsewhere.
  """
  for run in job.runs:
    workdir, key = (
        _value(run.command, flag) for flag in ("workdir", "key_file")
    )
    kept = [workdir, key or workdir]
    if "://" in workdir:
      kept = [key] if run.command[0] in _TRAIN else []
    paths = [f"{posixpath.normpath(path)}/" for path in kept]
    if not all(path.startswith(f"{mount}/") for path in paths):
      raise errors.RunError(
          f"--workdir={workdir}: expected a folder below {mount}, since nothing"
          " else is kept when the container ends; a run in a bucket needs its"
          f" secret key there, as in --key_file={mount}/NAME"
      )


def _value(command: Sequence[str], flag: str) -> str:
  """Return the last value of a flag, which counts; "" without any."""
  given = [word for word in command if word.startswith(f"--{flag}=")]
  return given[-1].partition("=")[2] if given else ""


def _field(text: str) -> tuple[str, list[str]]:
  """Return ("config.steps", ["10", "20"]) for "config.steps=10,20"."""
  name, _, values = text.partition("=")
  choices = values.split(",")
  if not name.startswith("config.") or "" in choices or "/" in text:
    raise errors.RunError(
        f"--sweep={text}: expected a field and its values, such as"
        " --sweep=config.mechanism.noise_multiplier=1,2,4"
    )
  return name, choices


def checked(word: str) -> str:
  """Return a word, which is one line without invisible characters.

  Raises:
    RunError: it is not: behind a line break, a script would run it.
  """
  shown = quoting.printable(word)
  if shown != word:
    raise errors.RunError(
        f"{shown}: expected a word without control characters, such as line"
        " breaks: type it without them"
    )
  return word


def quoted(word: str) -> str:
  """Quote a word for a shell; also words with a comma, for shellcheck."""
  found = shlex.quote(checked(word))
  return f"'{word}'" if found == word and "," in word else found


def joined(words: Sequence[str]) -> str:
  """Quote words for a shell, with spaces between them."""
  return " ".join(map(quoted, words))
