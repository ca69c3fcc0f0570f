"""Runs a main so that its user sees one sentence where they can help.

Errors that the library raises on purpose (a plan that is unsound, a file that
is missing, a work directory of another run) end the program with that sentence
and exit status 1. Anything else is a bug and keeps its traceback.
"""

from collections.abc import Callable, Sequence
import hashlib
import os
import pathlib
import platform
import re
import sys
import tempfile
import traceback
from typing import NoReturn

from absl import app
from absl import flags
from absl import logging

from episodic_dp.config import presets

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_OURS = (_ROOT / "episodic_dp", _ROOT / "experiments")
CACHE = "EPISODIC_DP_CACHE"
_MOST_CORES = 8  # As devices: what is tested, and what steps have tasks for.
_ERROR = 40  # The level of the standard library's logging.
_EXPECTED = (
    ConnectionError,
    FileNotFoundError,
    PermissionError,
    ValueError,
)


def run(
    main: Callable[[Sequence[str]], None], argv: list[str] | None = None
) -> None:
  """`app.run` with one-sentence errors; leftover arguments are refused.

  Args:
    main: takes the arguments that are no flags.
    argv: the program and its arguments; None for those of the process.
  """

  def checked(argv: Sequence[str]) -> None:
    if len(argv) > 1:
      fail(
          f"argument '{argv[1]}' is not a flag: flags look like --name=value"
          " (--help lists them)"
      )
    logging.set_verbosity(logging.INFO)
    # JAX, Orbax and TensorFlow Datasets tell their own story at this level.
    logging.get_absl_handler().addFilter(_own_lines)
    use_compilation_cache()
    try:
      main(argv)
    except _EXPECTED as e:
      if not _raised_by_us(e):
        raise
      fail(str(e))

  app.run(checked, argv=argv, flags_parser=_parse)


def log_devices() -> None:
  """One line about where the program computes."""
  import jax  # Late: a command that only accounts runs without JAX.

  devices = ", ".join(map(str, jax.devices()))
  logging.info("jax %s on %s", jax.__version__, devices)
  if jax.process_count() > 1:
    logging.info(
        "process %d of %d", jax.process_index(), jax.process_count()
    )


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Makes this program one of several that train together, where it is one.

  A program that is alone takes the cores of its CPU for devices (`use_cores`).

  Args:
    coordinator: HOST:PORT of process 0, with the numbers below; "auto" where
      JAX knows the cluster (TPU, SLURM, Open MPI, ...); None for one process,
      unless `srun` or `mpirun` started several.
    num_processes: how many there are.
    process_id: the number of this one, from 0.

  Raises:
    ValueError: flags that do not go together.
  """
  numbers = num_processes is not None, process_id is not None
  if coordinator not in (None, "auto"):
    if not all(numbers):
      raise ValueError(
          f"--coordinator={coordinator} needs --num_processes and --process_id"
      )
    if not 0 <= process_id < num_processes:  # type: ignore[operator]
      raise ValueError(
          f"--process_id={process_id} must be at least 0 and less than"
          f" --num_processes={num_processes}"
      )
  elif any(numbers):
    raise ValueError(
        f"--num_processes={num_processes} --process_id={process_id} need"
        " --coordinator=HOST:PORT"
    )
  # Of a step of srun, not of the allocation: its batch script is one process.
  counts = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
  if coordinator is None and not any(
      os.environ.get(name, "1") != "1" for name in counts
  ):
    use_cores()
    return
  import jax  # Late, as above.

  jax.distributed.initialize(
      None if coordinator == "auto" else coordinator,
      num_processes,
      process_id,
      # Of a process that was killed; the others would wait for longer.
      heartbeat_timeout_seconds=60,
  )


def use_cores() -> None:
  """Lets JAX see one CPU device for every core, before it computes.

  A core with tasks of its own does more than several that share the products
  of one task. A count in XLA_FLAGS or JAX_NUM_CPU_DEVICES stays, and so do the
  devices of a program that has computed already.
  """
  name = "JAX_NUM_CPU_DEVICES"
  flag = "xla_force_host_platform_device_count"
  if name in os.environ or flag in os.environ.get("XLA_FLAGS", ""):
    return
  import jax  # Late, as above.

  try:
    cores = len(os.sched_getaffinity(0))
  except AttributeError:  # Not Linux.
    cores = os.cpu_count() or 1
  try:
    jax.config.update("jax_num_cpu_devices", min(cores, _MOST_CORES))
  except RuntimeError:
    logging.info("JAX has computed already: it keeps its devices")


def use_compilation_cache() -> str | None:
  """Lets programs that JAX compiled before be read from a folder.

  The folder is that of the environment variable EPISODIC_DP_CACHE, by default
  episodic_dp/ in the user's cache directory; "off" goes without. A folder that
  JAX was given already (JAX_COMPILATION_CACHE_DIR) stays.

  Returns:
    The folder, or None where there is no cache: none is wanted, or it cannot be
    written.
  """
  jax = sys.modules.get("jax")
  name = "JAX_COMPILATION_CACHE_DIR"
  given = os.environ.get(name) if jax is None else (
      jax.config.jax_compilation_cache_dir
  )
  if given:
    return given
  wanted = os.environ.get(CACHE, "")
  if wanted == "off":
    return None
  # Compiled for this processor: homes are shared between unlike machines.
  folder = pathlib.Path(wanted or _user_cache() / "episodic_dp") / _processor()
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as e:
    logging.info(
        "no compilation cache in %s (%s): programs are compiled again; %s names"
        " another folder", folder, e.strerror, CACHE,
    )
    return None
  if jax is None:  # Imported later, or not at all.
    os.environ[name] = str(folder)
  else:
    jax.config.update("jax_compilation_cache_dir", str(folder))
  return str(folder)


def _user_cache() -> pathlib.Path:
  folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
  # A relative one is to be ignored, says the XDG Base Directory Specification.
  if folder.is_absolute():
    return folder
  return pathlib.Path(os.path.expanduser("~")) / ".cache"


def _processor() -> str:
  """A name for what programs are compiled for."""
  text = platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      told = {s for s in f if s.startswith(("model", "flags", "Features"))}
    text += "".join(sorted(told))
  except OSError:  # Not Linux.
    text += platform.processor()
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def fail(sentence: str) -> NoReturn:
  """Prints one sentence to the error stream and exits with status 1."""
  print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
  sys.exit(1)


def _parse(argv: Sequence[str]) -> list[str]:
  """Parses flags; the errors of config files and overrides are shortened."""
  try:
    return flags.FLAGS([argv[0], *map(_with_config_file, argv[1:])])
  except SyntaxError as e:
    where = f"line {e.lineno} of {e.filename}" if e.lineno else "it"
    return fail(
        f"the config file is no Python ({e.msg}, {where}): repair it, or use"
        f" one of the presets: {', '.join(presets.NAMES)}"
    )
  except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as e:
    return fail(f"{_explain(e)} (--help lists the flags)")


def _with_config_file(argument: str) -> str:
  """`--config=NAME:...` with the file of the preset of this name."""
  flag, equals, value = argument.partition("=")
  if flag.lstrip("-") != "config" or not equals:
    return argument
  name, colon, arguments = value.partition(":")
  if name in presets.NAMES:
    return f"{flag}={presets.file(name)}{colon}{arguments}"
  if not os.path.isfile(name):
    fail(
        f"--config={name} is neither a file nor a preset: the presets are"
        f" {', '.join(presets.NAMES)}"
    )
  return argument


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
    return f"the config has no field '{alone[1]}'"
  # The trace of a broken config file comes first, its error last.
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  last = lines[-1] if lines else type(error).__name__
  return re.sub(r"^\w*Error: ", "", last)


def _raised_by_us(error: BaseException) -> bool:
  """Whether the innermost frame is in this repository, not in a library."""
  frames = traceback.extract_tb(error.__traceback__)
  where = pathlib.Path(frames[-1].filename).resolve() if frames else _ROOT
  return any(where.is_relative_to(folder) for folder in _OURS)


def _own_lines(record) -> bool:
  """Whether a log record is ours, or an error of anyone."""
  where = pathlib.Path(record.pathname)
  return record.levelno >= _ERROR or any(
      where.is_relative_to(folder) for folder in _OURS
  )
