"""Runs a main so that its user sees one sentence where they can help.

Errors that the library raises on purpose (a plan that is unsound, a file that
is missing, a work directory of another run) end the program with that sentence
and exit status 1. Anything else is a bug and keeps its traceback.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import errno
import logging as std_logging
import os
import pathlib
import re
import select
import sys
import traceback
from typing import Any, NoReturn

from absl import app
from absl import flags
from absl import logging

from episodic_dp.cli import compilation_cache
from episodic_dp.cli import exit_status
from episodic_dp.cli import interrupts
from episodic_dp.config import presets
from episodic_dp.output import quoting

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_OURS = tuple(_ROOT / n for n in ("episodic_dp", "experiments", "launch"))
# What the library raises on purpose; see `is_expected`.
_EXPECTED = (
    ConnectionError,
    FileNotFoundError,
    PermissionError,
    ValueError,
)
# Errors of a write have no file name.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(
    main: Callable[[Sequence[str]], None],
    argv: Sequence[str] | None = None,
    *,
    arguments: int = 0,
) -> None:
  """`absl.app.run` with one-sentence errors.

  Args:
    main: takes the program's name and the arguments that are no flags.
    argv: the program and its arguments; None for those of the process, whose
      signals are handled from here on.
    arguments: how many that are no flags `main` takes at most; more are
      refused.
  """

  def checked(argv: Sequence[str]) -> None:
    if len(argv) > 1 + arguments:
      fail(
          f"argument '{argv[1 + arguments]}' is not a flag: flags look like"
          " --name=value (--help lists them)"
      )
    logging.set_verbosity(logging.INFO)
    # JAX, Orbax and TensorFlow Datasets tell their own story at this level.
    logging.get_absl_handler().addFilter(_own_lines)
    sys.unraisablehook = _print_unraisable
    compilation_cache.use()
    try:
      with until_unread():
        main(argv)
    except Exception as e:
      told = sentence(e)
      if told is None:
        raise
      fail(told)

  if argv is None:
    interrupts.install()
  else:
    # ml_collections looks for --config.FIELD in sys.argv, whatever is parsed.
    sys.argv = list(argv)
  app.run(checked, flags_parser=parse)


def fail(sentence: str) -> NoReturn:
  """Prints one sentence to the error stream and exits with status 1."""
  line = quoting.printable(" ".join(sentence.split()))
  print(f"error: {line}", file=sys.stderr)
  sys.exit(exit_status.ERROR)


def parse(
    argv: Sequence[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Parses flags; what is wrong with them ends the program in one sentence.

  Args:
    argv: the program and its arguments.
    values: where the flags are defined.

  Returns:
    The program and the arguments that are no flags.
  """
  try:
    rest = values([argv[0], *_with_config_files(*argv)])
  except SyntaxError as e:
    where = f"line {e.lineno} of {e.filename}" if e.lineno else "it"
    return fail(
        f"the config file is no Python ({e.msg}, {where}): repair it, or use"
        f" one of the presets: {', '.join(presets.NAMES)}"
    )
  except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as e:
    told = _wrong_value(e, values) or _explain(e)
    return fail(f"{told} (--help lists the flags)")
  _check_empty(values)
  return rest


def _check_empty(values: flags.FlagValues) -> None:
  """Ends the program where a flag was given with nothing after its sign.

  An empty name of a file would be the folder that the command runs in. A field
  of the config may be empty.
  """
  for name in values:
    flag = values[name]
    given = flag.value if isinstance(flag.value, list) else [flag.value]
    if flag.present and "." not in name and (not given or "" in given):
      out = "" if is_required(flag) else ", or leave the flag out"
      fail(
          f"--{name}={','.join(map(str, given))} has an empty value: give one,"
          f" as in --{name}=NAME{out}"
      )


def is_required(flag: flags.Flag) -> bool:
  """Whether a command has nothing to do without this flag."""
  return any(not validator.checker(None) for validator in flag.validators)


def _with_config_files(program: str, *arguments: str) -> list[str]:
  """The arguments, with the file of a preset where --config names one."""
  result, is_value = [], False
  for argument in arguments:
    flag, equals, value = argument.partition("=")
    if is_value:
      result.append(_config_file(program, argument))
    elif flag in ("-config", "--config") and equals:
      result.append(f"{flag}={_config_file(program, value)}")
    else:
      result.append(argument)
    is_value = not is_value and argument in ("-config", "--config")
  return result


def _config_file(program: str, value: str) -> str:
  """"glyphs:steps=3" as the path of the preset's file and its arguments."""
  name, colon, arguments = value.partition(":")
  of_pvi = program == "episodic-dp pvi"
  known = presets.PVI_NAMES if of_pvi else presets.NAMES
  if name in known:
    return f"{presets.file(name)}{colon}{arguments}"
  if name in (*presets.NAMES, *presets.PVI_NAMES):
    fail(
        f"--config={name} is a preset of episodic-dp"
        f" {'train' if of_pvi else 'pvi'}: those of {program} are"
        f" {', '.join(known)}"
    )
  if not os.path.isfile(name):
    fail(
        f"--config={name} is neither a file nor a preset: the presets are"
        f" {', '.join(presets.NAMES)}, and of episodic-dp pvi"
        f" {', '.join(presets.PVI_NAMES)}"
    )
  return value


def _wrong_value(error: Exception, values: flags.FlagValues) -> str | None:
  """The sentence for a flag that takes a number, or true and false."""
  text = str(error)
  name = re.match(r"flag --([\w.]+)=", text)
  if not isinstance(error, flags.IllegalFlagValueError) or not name:
    return None
  flag, given = values[name[1]], text.removesuffix(f": {error.__context__}")
  parser, example = flag.parser, flag.default
  if isinstance(parser, flags.BooleanParser):
    kind, example = "true or false", "true"
  elif isinstance(parser, (flags.IntegerParser, flags.FloatParser)):
    whole = isinstance(parser, flags.IntegerParser)
    kind = "a whole number" if whole else "a number"
    if parser.lower_bound is not None:
      example = parser.lower_bound
      kind += f" of at least {parser.lower_bound}"
    if parser.upper_bound is not None:
      kind += f" and at most {parser.upper_bound}"
  else:
    return None
  told = f"{given.removeprefix('flag ')} must be {kind}"
  return told + f", such as --{flag.name}={example}" * (example is not None)


def _explain(error: Exception) -> str:
  """The sentence in an error of absl or ml_collections."""
  missing = re.search(r"Flag (--\w+) must have a value", str(error))
  if missing:
    return f"the flag {missing[1]} is missing"
  hint = re.search(r'Did you mean "(\S+)" instead of "(\S+)"', str(error))
  if hint:
    return f"the config has no field '{hint[2]}': did you mean '{hint[1]}'?"
  text = str(error)
  alone = re.fullmatch(r"\W*(\w+)\W*", text)
  if alone and isinstance(error, (AttributeError, KeyError)):
    told = f"the config has no field '{alone[1]}'"
    names = ", ".join(_fields(error))
    return f"{told}: there are {names}" if names else told
  # The trace of a broken config file comes first, its error last.
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  last = lines[-1] if lines else type(error).__name__
  return re.sub(r"^\w*Error: ", "", last)


def _fields(error: Exception) -> list[str]:
  """Those of the part of the config in which one was looked for."""
  found: list[str] = []
  for frame, _ in traceback.walk_tb(error.__traceback__):
    held: Any = frame.f_locals.get("self")
    if type(held).__name__ == "ConfigDict":  # Its library may not be loaded.
      found = sorted(held)
  return found


@contextlib.contextmanager
def until_unread() -> Iterator[None]:
  """Ends the program where nobody reads what it prints, as behind `| head`."""
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:
    if not _reader_left():
      raise
    # Python would say that it could not write the rest when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_status.ERROR)


def _reader_left() -> bool:
  poll = select.poll()
  poll.register(sys.stdout.fileno())
  return any(event & select.POLLERR for _, event in poll.poll(0))


def sentence(error: BaseException) -> str | None:
  """What a user is told of an error; None where it is a bug."""
  if isinstance(error, OSError) and (error.filename or error.errno in _FULL):
    path = error.filename or "a file"
    return f"{path} cannot be read or written ({error.strerror})"
  if is_expected(error):
    return str(error)
  # By its name: a command that only accounts never imports JAX.
  of_jax = type(error).__name__ == "JaxRuntimeError"
  if isinstance(error, MemoryError) or (
      of_jax and "RESOURCE_EXHAUSTED" in str(error)
  ):
    return (
        "there is not enough memory, of this machine or of its device: end what"
        " else uses it, or ask for less at a time"
    )
  return None


def is_expected(error: BaseException) -> bool:
  """Whether an error's text is a sentence for the user.

  It is where the type is one that the library raises on purpose, and the
  innermost frame is the library's own: a ValueError out of NumPy is a bug.
  """
  if not isinstance(error, _EXPECTED):
    return False
  frames = traceback.extract_tb(error.__traceback__)
  where = pathlib.Path(frames[-1].filename).resolve() if frames else _ROOT
  return any(where.is_relative_to(folder) for folder in _OURS)


def _print_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
  """Prints errors that could not be raised, as Python does.

  But for that of a write of a checkpoint that ends after another one's error
  has ended them all.
  """
  if str(unraisable.exc_value) != "Event loop is closed":
    sys.__unraisablehook__(unraisable)


def _own_lines(record: std_logging.LogRecord) -> bool:
  """Whether a log record is ours, which is put on one line, or any error.

  Not of Orbax and of asyncio, on which it runs: they raise what has failed, and
  print it with its trace besides, for each array of a checkpoint.
  """
  where = pathlib.Path(record.pathname)
  if record.name == "asyncio" or "orbax" in where.parts:
    return False
  ours = any(where.is_relative_to(folder) for folder in _OURS)
  if ours:  # Names in it may hold anything, such as the end of the line.
    record.msg = quoting.printable(record.getMessage())
    record.args = None
  return ours or record.levelno >= std_logging.ERROR
