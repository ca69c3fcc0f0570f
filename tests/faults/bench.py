"""The run that faults befall: started as its user starts it, and compared.

A perceptron on sinusoids, 60 steps and 14 checkpoints, which take a second or
two behind the start of the process.
"""

from collections.abc import Iterator, Mapping, Sequence
import copy as copy_lib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import jax
import numpy as np
from orbax import checkpoint as ocp

from episodic_dp.training import metrics

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 60
CHECKPOINT_EVERY = 5
_CONFIG = (
    f"--config=sinusoid:participants=64,rate=0.1,steps={STEPS},width=4,"
    "inner_steps=1",
    "--config.data.options.validation_participants=10",
    "--config.data.options.test_participants=10",
    "--config.evaluation.validation_tasks=8",
    "--config.evaluation.test_tasks=8",
    "--config.evaluation.every=20",
    f"--config.checkpoint_every={CHECKPOINT_EVERY}",
    "--config.private_seed=3",  # So that runs can be compared.
)
_LONG = 100.0  # Seconds after which a command hangs.
# What no user is to see.
_TRACES = (
    "Traceback", "Fatal Python error", "stack trace", "terminate called",
    "Exception ignored", "core dumped",
)  # fmt: skip

# Byte code that one process has made the next one loads.
_LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS")

# (module:function, which call of it, what the shell does before it).
Moment = tuple[str, int, str]


def setting(name: str, value: int) -> Moment:
  """A moment at which nothing happens, but for a constant of another value.

  Args:
    name: "module:NAME".
    value: a whole number.
  """
  return f"{name}={value}", 0, ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
  """How a command ended.

  Attributes:
    status: negative for a signal.
    output: of its standard output.
    error: of its error stream.
    seconds: that were waited for it.
    hung: whether it had to be killed.
    hide: text -> what stands for it in a table.
  """

  status: int
  output: str
  error: str
  seconds: float
  hung: bool
  hide: Mapping[str, str]

  @property
  def clean(self) -> bool:
    """Whether it showed no trace, of Python or of native code."""
    return not any(word in self.error for word in _TRACES)

  @property
  def sentence(self) -> str:
    """What it said in the end: an error, or by what it was stopped."""
    lines = [*self.error.splitlines(), *self.output.splitlines()]
    said = ("error: ", "stopped by ", "another process ", "not all ",
            "done: ")  # fmt: skip
    found = [line for line in lines if line.startswith(said)]
    text = found[-1] if found else ""
    for path, name in self.hide.items():
      text = text.replace(path, name)
    return re.sub(r" \(\d+ s in this process\)", "", text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
  """What a run has come to.

  Attributes:
    step: of its last checkpoint.
    arrays: parameters and the optimiser's state, by their paths.
    ledger: of the last checkpoint.
    lines: of metrics.jsonl.
    lineage: of the last checkpoint.
  """

  step: int
  arrays: Mapping[str, np.ndarray]
  ledger: Any
  lines: Sequence[Mapping[str, Any]]
  lineage: Sequence[str]

  def differences(self, other: "Contents", *, bits: bool = True) -> list[str]:
    """What differs, whoever took the run on; without `bits` up to rounding."""
    found = []
    if self.step != other.step:
      found.append(f"step {self.step}, not {other.step}")
    if self.ledger != other.ledger:
      found.append("ledger")
    if [line["step"] for line in self.lines] != [
        line["step"] for line in other.lines
    ] or (bits and self.lines != other.lines):
      found.append("metrics")
    if self.arrays.keys() != other.arrays.keys():
      found.append("the tree of arrays")
    elif bits:
      found += [
          name
          for name, array in self.arrays.items()
          if array.tobytes() != other.arrays[name].tobytes()
      ]
    else:
      found += [
          name
          for name, array in self.arrays.items()
          if not np.allclose(array, other.arrays[name], rtol=1e-3, atol=1e-5)
      ]
    return found


def contents(folder: pathlib.Path) -> Contents:
  """Reads a run's folder without the code under test."""
  steps = [
      int(p.name)
      for p in (folder / "checkpoints").iterdir()
      if p.name.isdigit()
  ]
  last = folder / "checkpoints" / str(max(steps))
  arrays = {}
  with ocp.StandardCheckpointer() as reader:
    for item in ("params", "rest"):
      tree = reader.restore(last / item)
      for path, leaf in jax.tree.leaves_with_path(tree):
        arrays[item + jax.tree_util.keystr(path)] = np.asarray(leaf)

  def plain(item: str) -> Any:
    return json.loads((last / item / "metadata").read_text())

  return Contents(
      step=max(steps),
      arrays=arrays,
      ledger=plain("ledger"),
      lines=metrics.read(folder / metrics.FILE),
      lineage=plain("run")["lineage"],
  )


class Bench:
  """Where faults are tried.

  Args:
    folder: takes all runs.

  Attributes:
    folder: the same.
    rng: of the moments and the damage.
  """

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.rng = np.random.default_rng(0)
    self._lock = threading.Lock()

  def seeded(self, *seed: int) -> "Bench":
    """The same bench, with moments of its own."""
    made = copy_lib.copy(self)
    made.rng = np.random.default_rng(seed)
    return made

  def new(self, name: str = "run") -> pathlib.Path:
    """A path for a run; nothing is there."""
    return pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / name

  @property
  def whole_folder(self) -> pathlib.Path:
    """Of a run that nothing befell."""
    folder = self.folder / "whole"
    with self._lock:
      if not folder.exists():
        self._check([self.run(folder)])
    return folder

  @property
  def whole(self) -> Contents:
    """What that run came to."""
    return contents(self.whole_folder)

  @property
  def whole_of_two(self) -> Contents:
    """What two processes come to that nothing befalls."""
    folder = self.folder / "whole_of_two"
    with self._lock:
      if not folder.exists():
        self._check(self.end(*self.start_two(folder)))
    return contents(folder)

  def _check(self, plain: Sequence[Ended]) -> None:
    for ended in plain:
      if ended.status:
        raise RuntimeError(f"the plain run failed: {ended.error}")

  def start(
      self,
      workdir: pathlib.Path,
      *flags: str,
      moment: Moment | None = None,
      prefix: Sequence[str] = (),
      command: str = "train",
      env: Mapping[str, str] | None = None,
  ) -> subprocess.Popen:
    """Starts a command on a work directory.

    Args:
      workdir: of the run.
      *flags: more of them.
      moment: when a shell command interferes.
      prefix: what starts it, such as ("taskset", "-c", "0").
      command: of episodic-dp.
      env: more of the environment.
    """
    program = ["-m", "episodic_dp"]
    if moment is not None:
      program = ["-m", "tests.faults.at_moment", *map(str, moment)]
    config = _CONFIG if command == "train" else ()
    process = subprocess.Popen(
        [*prefix, sys.executable, *program, command, *config,
         f"--workdir={workdir}", *flags],
        cwd=ROOT,
        env=self._environment() | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    return process

  def _environment(self) -> dict[str, str]:
    # The cache's own time and size limits would keep none of these programs.
    kept = {k: v for k, v in os.environ.items() if k not in _LEFT_OUT}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "EPISODIC_DP_CACHE": str(self.folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

  def end(
      self, *processes: subprocess.Popen, seconds: float = _LONG
  ) -> list[Ended]:
    """Waits for commands; kills those that hang."""
    found, began = [], time.monotonic()
    for process in processes:
      hung = False
      try:
        left = max(1.0, seconds - (time.monotonic() - began))
        out, err = process.communicate(timeout=left)
      except subprocess.TimeoutExpired:
        hung = True
        process.send_signal(signal.SIGCONT)
        process.kill()
        out, err = process.communicate()
      found.append(
          Ended(
              status=process.returncode,
              output=out,
              error=err,
              seconds=time.monotonic() - began,
              hung=hung,
              hide=self._hidden(process),
          )
      )
    return found

  def _hidden(self, process: subprocess.Popen) -> dict[str, str]:
    """Paths of this bench, which a table is not to have."""
    (workdir,) = (a[10:] for a in process.args if a.startswith("--workdir="))
    return {workdir: "WORKDIR", str(self.folder): "..."}

  def run(self, workdir: pathlib.Path, *flags: str, **options: Any) -> Ended:
    """Starts a command and waits for it."""
    return self.end(self.start(workdir, *flags, **options))[0]

  def start_two(
      self,
      workdir: pathlib.Path,
      *flags: str,
      numbers: Sequence[int] = (0, 1),
      **options: Any,
  ) -> list[subprocess.Popen]:
    """Starts two processes of one run; the second has no folder.

    Args:
      workdir: of the run.
      *flags: more of them.
      numbers: of those to start.
      **options: as for `start`.
    """
    with socket.socket() as s:
      s.bind(("localhost", 0))
      port = s.getsockname()[1]
    return [
        self.start(
            workdir if number == 0 else pathlib.Path("/proc/nowhere"),
            *flags,
            f"--coordinator=localhost:{port}",
            "--num_processes=2",
            f"--process_id={number}",
            **options,
        )
        for number in numbers
    ]


def wait_for_lines(
    process: subprocess.Popen, workdir: pathlib.Path, count: int
) -> bool:
  """Whether the run wrote the lines of so many steps before it ended."""
  path = workdir / metrics.FILE
  while process.poll() is None:
    # The first line is that of step 0.
    if path.exists() and path.read_bytes().count(b"\n") > count:
      return True
    time.sleep(0.001)
  return False


def wait_for_a_write(
    process: subprocess.Popen, workdir: pathlib.Path
) -> bool:
  """Whether a checkpoint was being written before the run ended."""
  while process.poll() is None:
    if any(_unfinished(workdir)):
      return True
  return False


def is_writing(workdir: pathlib.Path) -> bool:
  """Whether a checkpoint is half written there."""
  return any(_unfinished(workdir))


def _unfinished(workdir: pathlib.Path) -> Iterator[str]:
  """Folders of checkpoints that have yet to get their names."""
  folder = workdir / "checkpoints"
  try:
    names = os.listdir(folder)
  except FileNotFoundError:
    return
  yield from (name for name in names if not name.isdigit())


def copy(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """A copy of a run's folder, with its modes and times."""
  shutil.copytree(folder, target)
  return target
