"""PyTorch programs in processes of their own, which wait while others run.

A worker blocks on its pipe between two runs, so that it takes nothing of the
machine from what is measured meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import ctypes
import importlib
import importlib.util
import multiprocessing
import os
import time
from typing import Any

from absl import logging

from experiments.benchmarks import harness
from experiments.benchmarks import machine

CORES = os.cpu_count() or 1
# One process with a thread for every core, or one of one thread for each.
TOGETHER, SIDE_BY_SIDE = "all threads", "side by side"
SKIPPED = "torch is not installed: pip install -e '.[bench]'"
_STOP = None
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # Of mallopt(3).


class Workers:
  """Processes that compute side by side, with so many threads each.

  To be closed, or used as a context.
  """

  def __init__(self, count: int, threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    self._pipes, self._processes = [], []
    for _ in range(count):
      here, there = context.Pipe()
      process = context.Process(
          target=_serve, args=(there, threads), daemon=True
      )
      process.start()
      there.close()
      self._pipes.append(here)
      self._processes.append(process)

  def __enter__(self) -> "Workers":
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()

  def close(self) -> None:
    """Ends the processes."""
    for pipe, process in zip(self._pipes, self._processes):
      try:
        pipe.send(_STOP)
      except OSError:  # It has ended by itself.
        pass
      process.join()

  @property
  def count(self) -> int:
    """How many there are."""
    return len(self._pipes)

  def make(
      self, name: str, function: str, arguments: Sequence[tuple[Any, ...]]
  ) -> None:
    """Makes a program in each of them.

    Args:
      name: by which it runs; it takes the place of the one of this name.
      function: "MODULE.FUNCTION" of this folder, which returns a function
        without arguments.
      arguments: for every worker.
    """
    for pipe, given in zip(self._pipes, arguments, strict=True):
      pipe.send((name, function, given))
    self._answers()

  def clear(self) -> None:
    """Drops all programs and their memory."""
    for pipe in self._pipes:
      pipe.send(())
    self._answers()

  def run(self, name: str) -> harness.Turn:
    """Runs the program of each, from the word to the last one's end."""
    return self._run(name, False)

  def values(self, name: str) -> list[Any]:
    """What the programs return."""
    return self._run(name, True).value

  def _run(self, name: str, value: bool) -> harness.Turn:
    before = machine.busy_seconds()
    wall, cpu = time.perf_counter(), time.process_time()
    for pipe in self._pipes:
      pipe.send((name, value))
    found = self._answers()
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu + sum(seconds for seconds, _ in found)
    return harness.Turn(
        wall,
        cpu,
        harness.free_share(before, wall, cpu),
        [value for _, value in found],
    )

  def _answers(self) -> list[Any]:
    found = []
    for pipe in self._pipes:
      try:
        found.append(pipe.recv())
      except EOFError:
        raise RuntimeError("a worker failed: see above") from None
    return found


def _serve(pipe: Any, threads: int) -> None:
  """Makes and runs programs as the pipe says."""
  import torch  # Lazy import: it may not be installed.

  torch.set_num_threads(threads)
  libc = _keep_memory()
  programs: dict[str, Callable[[], Any]] = {}
  while (message := pipe.recv()) is not _STOP:
    match message:
      case ():
        programs.clear()
        if libc is not None:
          libc.malloc_trim(0)
        pipe.send(None)
      case (name, function, arguments):
        module, _, attribute = function.partition(".")
        found = importlib.import_module(f"experiments.benchmarks.{module}")
        programs[name] = getattr(found, attribute)(*arguments)
        pipe.send(None)
      case (name, value):
        began = time.process_time()
        result = programs[name]()
        seconds = time.process_time() - began
        pipe.send((seconds, result if value else None))


def _keep_memory() -> ctypes.CDLL | None:
  """Has freed memory kept for the next array, where the C library can.

  New pages for every large array take PyTorch a third of its time on a CPU.
  """
  try:
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_TOP_PAD, 2**26)
  except (AttributeError, OSError, TypeError):  # Not glibc.
    return None
  return libc


@contextlib.contextmanager
def started() -> Iterator[Mapping[str, Workers]]:
  """`TOGETHER` and `SIDE_BY_SIDE`; neither where PyTorch is not installed."""
  if not importlib.util.find_spec("torch"):
    logging.warning("ours is measured alone: %s", SKIPPED)
    yield {}
    return
  with Workers(1, CORES) as one, Workers(CORES, 1) as several:
    yield {TOGETHER: one, SIDE_BY_SIDE: several}
