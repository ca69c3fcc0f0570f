"""Fixtures and options of tests in several folders."""

import dataclasses
import functools
import gc
import itertools
import os
import pathlib
import shutil
import signal
import sys
import tempfile

from absl import flags
import haiku
import hypothesis
import jax
import optax
import pytest

from episodic_dp import backends
from episodic_dp.cli import commands
from episodic_dp.run import Run

# XLA's options that compile a small program sooner: loops written the short
# way, and each program in one piece.
_QUICK_FLAGS = " ".join(
    f"--{name}={str(value).lower()}"
    for name, value in {
        **backends.SHORT_LOOPS, "xla_cpu_parallel_codegen_split_count": 1
    }.items()
)
# The folder, and from how many seconds and bytes on programs are kept.
_CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
# Casts and reshapes are said outright.
_STRICT = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
}
# Functions of other packages that multiply or raise numbers of two types: Adam
# counts its steps in whole numbers, and dropout keeps by truth values.
_LENIENT = [
    (optax.tree, "bias_correction"),
    (optax.tree_utils, "tree_bias_correction"),
    (haiku, "dropout"),
]


def pytest_configure(config):
  """Starts JAX before a test can: with one device, and the quick flags.

  One device whatever the cores: what tests call would ask for more.
  Subprocesses take the flags too. The quick tests draw the same examples every
  time, so that a change is judged by what it changed; the slow ones draw new
  ones.
  """
  # Traces are large and stay: looking through them for garbage takes long.
  gc.set_threshold(50_000, 20, 50)
  if _quick(config):
    hypothesis.settings.load_profile("ci")
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} {_QUICK_FLAGS}".strip()
  if not hasattr(config, "workerinput"):
    _share_programs(config)
    _hear_signals()
  for name in _CACHE:
    value = os.environ[name.upper()]
    jax.config.update(name, value if name == _CACHE[0] else int(value))
  for name, value in _STRICT.items():
    jax.config.update(name, value)
  for module, name in _LENIENT:
    setattr(module, name, _lenient(getattr(module, name)))
  jax.config.update("jax_num_cpu_devices", 1)
  jax.devices()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Leave most cases of a test marked `few(n)` to the slow run.

  The quick run takes n cases, evenly spread.
  """
  marked = (item for item in items if item.get_closest_marker("few"))
  for _, family in itertools.groupby(marked, lambda item: item.function):
    for i, case in enumerate(cases := [*family]):
      most = case.get_closest_marker("few").args[0]
      if i * most // len(cases) == (i - 1) * most // len(cases):
        case.add_marker(pytest.mark.slow)


def _lenient(function):
  """The function, with JAX's standard promotion of types."""

  @functools.wraps(function)
  def run(*arguments, **options):
    with jax.numpy_dtype_promotion("standard"):
      return function(*arguments, **options)

  return run


def _hear_signals():
  """A shell's job in the background ignores Ctrl-C; what tests start must not.

  Processes take over what their parent ignores, these and pytest's workers.
  """
  if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _quick(config) -> bool:
  return config.option.markexpr == "not slow"


def _share_programs(config):
  """Share one compilation cache between all processes of this session."""
  folder = tempfile.mkdtemp(prefix="compiled")
  config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
  for name, value in zip(_CACHE, (folder, "0", "-1"), strict=True):
    os.environ[name.upper()] = value


# Folders and files whose quick tests run programs so small that compiling them
# takes longer; tests of what optimizations do are marked `optimized`, and run
# once more with the slow ones, compiled as users get them.
_SMALL = (
    "analysis", "auditing", "cli", "config", "data", "experiments", "export",
    "golden", "learners", "models", "private", "pvi", "sampling", "training",
    "test_docstrings.py", "test_readme.py", "test_shapes.py",
)


@pytest.fixture(scope="module")
def quickly_compiled():
  """Compiles without most optimizations, in subprocesses too."""
  name = "jax_disable_most_optimizations"
  before = jax.config.values[name]
  jax.config.update(name, True)
  os.environ[name.upper()] = "1"
  yield
  os.environ.pop(name.upper())
  jax.config.update(name, before)


@pytest.fixture(scope="module", autouse=True)
def _quickly_compiled_where_small(request):
  tests = pathlib.Path(__file__).parent
  folder = request.path.relative_to(tests).parts[0]
  optimized = request.node.get_closest_marker("optimized")
  if folder in _SMALL and _quick(request.config) and not optimized:
    request.getfixturevalue("quickly_compiled")


@pytest.fixture(scope="session")
def make_config():
  """A small config to account for.

  Fields that differ -> 4000 tasks of classes of images, and a plan.
  """

  def make(**fields):
    return dict(
        hierarchy=dict(sizes=(4000, 8, 5), levels=("task", "class", "image")),
        plan=dict(
            stages=("Poisson(0.05)", "FixedSize(5)", "FixedSize(3)"),
            episode=dict(way=5, shot=1, query=2),
        ),
        mechanism=dict(clip_unit="task", noise_multiplier=1.0),
        steps=60,
        delta=1e-5,
    ) | fields

  return make


@pytest.fixture(scope="session")
def make_run(make_config):
  """`make_config`, read."""
  return lambda **fields: Run.parse(make_config(**fields)).resolved()


@pytest.fixture(scope="session")
def real_data():
  """Return the folder of the real data; they are prepared once, in the cache.

  Set TFDS_DATA_DIR to keep them elsewhere than in ~/tensorflow_datasets.
  """
  data_dir = os.environ.get("EPISODIC_DP_DATA")
  if not data_dir:
    pytest.skip("EPISODIC_DP_DATA names no folder with the real data sets")
  return data_dir


@dataclasses.dataclass(frozen=True)
class Done:
  """The end of a command, as `subprocess.run` returns it."""

  returncode: int
  stdout: str
  stderr: str


@pytest.fixture
def call(capfd, monkeypatch):
  """Call a command in this process, as the console script does.

  (command, *arguments) -> Done; bugs keep their traceback.
  """
  monkeypatch.setenv("EPISODIC_DP_CACHE", "off")
  monkeypatch.setattr(sys, "argv", sys.argv)  # Commands replace it.

  def run(*arguments):
    before, status = set(flags.FLAGS), 0
    capfd.readouterr()
    try:
      commands.main(["episodic-dp", *map(str, arguments)])
    except SystemExit as e:
      status = e.code or 0
    finally:
      # Another command of this process may define its own of that name.
      for name in [name for name in flags.FLAGS if name not in before]:
        delattr(flags.FLAGS, name)
      flags.FLAGS.unparse_flags()
    return Done(status, *capfd.readouterr())

  return run
