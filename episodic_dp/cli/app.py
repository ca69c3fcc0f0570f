"""Run a main function with one-sentence errors for its user.

The library raises some errors on purpose (an unsound plan, a missing file, the
work directory of another run). These, and errors of the operating system, end
the program with one sentence and exit status 1. Any other error is a bug and
keeps its traceback.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import logging as std_logging
import os
import pathlib
import platform
import re
import sys
from typing import NoReturn

from absl import app
from absl import flags
from absl import logging

from episodic_dp import errors
from episodic_dp.cli import exit_status
from episodic_dp.cli import interrupts
from episodic_dp.output import quoting

CACHE = "EPISODIC_DP_CACHE"  # Environment variable: a folder, or "off".
# In the texts of JAX where memory ends.
_NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory allocating")
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_OURS = tuple(_ROOT / n for n in ("episodic_dp", "experiments", "launch"))


def run(
    main: Callable[[Sequence[str]], None],
    argv: list[str] | None = None,
    *,
    arguments: int = 0,
) -> None:
  """Run `absl.app.run` with one-sentence errors.

  Args:
    main: takes the program's name and its positional arguments.
    argv: the program and its arguments; None for those of the process, whose
      signals are handled from here on.
    arguments: the largest number of positional arguments.
  """

  def checked(argv: Sequence[str]) -> None:
    if len(argv) > 1 + arguments:
      fail(
          f"argument '{argv[1 + arguments]}' is not a flag: flags look like"
          " --name=value (--help lists them)"
      )
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_own_lines)
    logging.get_absl_handler().setFormatter(std_logging.Formatter())
    _keep_compiled_programs()
    try:
      main(argv)
    except BrokenPipeError:  # See `until_unread`.
      raise
    except Exception as e:
      text = sentence(e) or _of_jax(e)
      if text is None:
        raise
      fail(text)

  if argv is None:
    interrupts.install()
  app.run(checked, argv, flags_parser=parse_flags)


def fail(sentence: str) -> NoReturn:
  """Print one sentence to the error stream and exit with status 1."""
  line = quoting.printable(" ".join(sentence.split()))
  print(f"error: {line}", file=sys.stderr)
  sys.exit(exit_status.ERROR)


def parse_flags(
    argv: Sequence[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Parse flags; an invalid flag ends the program with one sentence.

  Args:
    argv: the program and its arguments.
    values: the flag values that define the flags.

  Returns:
    The program and its positional arguments.
  """
  # --config.steps=3 is the value steps=3 of a flag.
  fields = [re.sub(r"^--?config\.", "--config.FIELD=", a) for a in argv[1:]]
  # A shell leaves the ~ of --workdir=~/run.
  fields = [
      re.sub(r"(?<![^=,])~[^/,]*", lambda m: os.path.expanduser(m[0]), text)
      for text in fields
  ]
  try:
    rest = values([argv[0], *fields])
  except SystemExit:  # absl ends its help with 1, the status of an error.
    sys.exit(exit_status.FINISHED)
  except flags.Error as e:
    text = str(e)
    if "flag 'config.FIELD'" in text:
      text = "this command takes no field of a config, --config.FIELD=VALUE"
    text = re.sub(
        r".*Flag (--\w+) must have a value.*", r"the flag \1 is missing", text
    ).replace("\n", ", ")
    if "flag 'epsilon'" in text:
      text += ": for the noise of a target, run episodic-dp calibrate --epsilon"
    elif re.search("Unknown.*'$", text):
      text += ": a field of a config is --config.FIELD=VALUE"
    return fail(f"{text} (--help lists the flags)")
  for name in values:
    # An empty file name would be the folder in which the command runs.
    flag = values[name]
    given = flag.value
    if not isinstance(given, list):
      given = [given]
    if flag.present and "." not in name and (not given or "" in given):
      fail(
          f"--{name}={','.join(map(str, given))} has an empty value: give one,"
          f" as in --{name}=NAME"
      )
  return rest


def is_required(flag: flags.Flag) -> bool:
  """Return whether a command needs this flag."""
  return any(not validator.checker(None) for validator in flag.validators)


@contextlib.contextmanager
def until_unread() -> Iterator[None]:
  """End the program if nobody reads its output, as behind `| head`."""
  try:
    try:
      yield
    finally:  # Also at the SystemExit with which absl ends.
      sys.stdout.flush()
  except BrokenPipeError:
    # Otherwise Python would report the remaining output when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_status.ERROR)


def sentence(error: BaseException) -> str | None:
  """Return the text of an error that a user can fix; None for a bug.

  These are the library's own errors and those of the operating system. Any
  other ValueError is a bug.
  """
  if isinstance(error, (*errors.OF_USERS, OSError)):
    return str(error) or type(error).__name__
  if isinstance(error, ModuleNotFoundError):
    package = (error.name or "").partition(".")[0]
    if package not in ("", "episodic_dp", "experiments", "launch"):
      return (
          f"the package '{package}' is not installed: install episodic_dp with"
          " its dependencies (pip install . in its folder); account, calibrate"
          " and verify need only NumPy, SciPy and absl, and Pillow for own data"
      )
  # By name: a command that only accounts never imports JAX.
  of_jax = type(error).__name__ == "JaxRuntimeError"
  if isinstance(error, MemoryError) or (
      of_jax and any(words in str(error) for words in _NO_MEMORY)
  ):
    return (
        "there is not enough memory, of this machine or of its device: end"
        " other programs, set a smaller --config.compute.microbatch_size, or"
        " keep the images on the host with --config.compute.resident=False"
    )
  return None


def _of_jax(error: BaseException) -> str | None:
  """Return the text of an error of JAX that settings cause; None for others.

  For one of several processes such an error may mean that another is lost; see
  `devices.leaving`.
  """
  text = str(error)
  strict = re.search("jax_numpy_(dtype|rank)_promotion", text)
  if strict:
    return (
        f"{strict[0].upper()} is set, which optimisers of optax do not support:"
        " unset it and run the same command again"
    )
  if type(error).__name__ == "JaxRuntimeError":
    return (
        f"XLA failed ({text.strip().splitlines()[0]}): if XLA_FLAGS or other"
        " settings of XLA are set, unset them and run the same command again"
    )
  return None


def _own_lines(record: std_logging.LogRecord) -> bool:
  """Return whether a log record is ours, or an error; put ours on one line.

  Orbax, and asyncio below it, raise their errors, and also print them with a
  trace for each array of a checkpoint.
  """
  where = pathlib.Path(record.pathname)
  if record.name == "asyncio" or "orbax" in where.parts:
    return False
  ours = any(where.is_relative_to(folder) for folder in _OURS)
  if ours:  # Names in it may hold any character, such as a line break.
    record.msg = quoting.printable(record.getMessage())
    record.args = None
  return ours or record.levelno >= std_logging.ERROR


def _keep_compiled_programs() -> None:
  """Let JAX read compiled programs of earlier commands from a folder.

  The folder is that of the environment variable EPISODIC_DP_CACHE, by default
  ~/.cache/episodic_dp; "off" keeps none. A folder that is already set in JAX
  (JAX_COMPILATION_CACHE_DIR) is kept.
  """
  wanted = os.environ.get(CACHE) or "~/.cache/episodic_dp"
  name = "jax_compilation_cache_dir"
  if wanted == "off" or os.environ.get(name.upper()):
    return
  # Programs are for one processor, but homes are shared between machines.
  folder = str(pathlib.Path(wanted).expanduser() / platform.node())
  os.environ[name.upper()] = folder
  jax = sys.modules.get("jax")
  if jax is not None and not jax.config.jax_compilation_cache_dir:
    jax.config.update(name, folder)
