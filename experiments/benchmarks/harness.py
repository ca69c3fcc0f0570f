"""Turns, ratios, rows, and one form of JSON for every benchmark.

A benchmark is a function of a module of this folder, named in `__main__`:

  def measure(options: harness.Options) -> harness.Found:
    turns = harness.interleaved({"ours": ours, "theirs": theirs}, options)
    found = harness.ratio(turns["ours"], turns["theirs"])
    return harness.Found(
        settings={"width": 64},
        cases=harness.summaries(turns),
        rows=[harness.row("ours / theirs", found, at_most=1.1, unit="×")],
    )

The rows become lines of README.md, where the targets are next to the numbers.

Cases take turns, starting with a different one in each turn, so that a busy
machine slows all of them. A ratio is computed within each turn, for wall-clock
and for processor times.

No module is imported here, such as NumPy or JAX, that would make the import of
a library look faster.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from absl import logging

_PACKAGES = (
    "jax", "jaxlib", "numpy", "scipy", "optax", "flax", "torch",
    "dp_accounting", "jax_privacy",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of every benchmark.

  Attributes:
    smoke: whether to use tiny sizes, which take seconds and only show that it
      works.
    repeats: turns of every case.
  """

  smoke: bool
  repeats: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
  """The result of a benchmark; all of it JSON-able.

  Attributes:
    settings: the sizes that were measured.
    cases: name -> the result of `summaries`, or other numbers of the case.
    rows: results of `row`.
    more: further numbers, by name.
  """

  settings: Mapping[str, Any]
  cases: Mapping[str, Mapping[str, Any]]
  rows: Sequence[Mapping[str, Any]]
  more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Turn(NamedTuple):
  """One measurement of one case.

  Attributes:
    seconds: wall-clock time.
    cpu_seconds: processor time of all threads of the process.
    value: the function's result.
  """

  seconds: float
  cpu_seconds: float
  value: Any = None


def timed(
    function: Callable[[], Any], cpu_of: Callable[[Any], float] | None = None
) -> Turn:
  """Run a function until its arrays are computed.

  Args:
    function: a function without arguments.
    cpu_of: result -> seconds of processor time of other processes.
  """
  wall, cpu = time.perf_counter(), time.process_time()
  value = wait(function())
  wall = time.perf_counter() - wall
  cpu = time.process_time() - cpu
  if cpu_of is not None:
    cpu += cpu_of(value)
  return Turn(wall, cpu, value)


def wait(value: Any) -> Any:
  """Return the same value once its JAX arrays are computed."""
  jax = sys.modules.get("jax")
  if jax is None:
    return value
  return jax.block_until_ready(value)


def steps(
    step: Callable[[Any], tuple[Any, Any]], state: Any
) -> Callable[[], Any]:
  """Return a case that takes a step from its last state."""

  def advance() -> Any:
    nonlocal state
    state, _ = step(state)
    return state

  return advance


def in_a_process(function: str, *arguments: Any) -> Turn:
  """Call a function of this folder in a new process.

  Args:
    function: its module and name, "accountant_queries.measure_case"; it returns
      a `Turn` with a JSON-able value.
    *arguments: JSON-able.
  """
  module, _, name = function.partition(".")
  code = (
      "import json, sys\n"
      f"from experiments.benchmarks import {module}\n"
      f"print(json.dumps({module}.{name}(*json.loads(sys.argv[1]))))"
  )
  done = subprocess.run(
      [sys.executable, "-c", code, json.dumps(arguments)],
      stdout=subprocess.PIPE,
      text=True,
      check=True,
  )
  return Turn(*json.loads(done.stdout.splitlines()[-1]))


def interleaved(
    cases: Mapping[str, Callable[[], Any]],
    options: Options,
    *,
    warm_up: int = 1,
) -> dict[str, list[Turn]]:
  """Measure cases in turns.

  Args:
    cases: name -> function to time; or one that measures itself and returns a
      `Turn`.
    options: the number of turns that count.
    warm_up: turns before, which compile and do not count.

  Returns:
    name -> its turns, with the value of the last turn only.
  """
  names = list(cases)
  found: dict[str, list[Turn]] = {name: [] for name in names}
  for turn in range(-warm_up, options.repeats):
    # A different case first in every turn: a case may slow the next one.
    for k in range(len(names)):
      name = names[(turn + k) % len(names)]
      one = timed(cases[name])
      if isinstance(one.value, Turn):
        one = one.value
      if turn >= 0:
        if found[name]:  # Keep only one value: it may be large.
          found[name][-1] = found[name][-1]._replace(value=None)
        found[name].append(one)
      logging.info("turn %d, %s: %.4g s", turn + 1, name, one.seconds)
  return found


def summaries(
    turns: Mapping[str, Sequence[Turn]], per: float = 1
) -> dict[str, dict[str, Any]]:
  """Return median and spread of every case.

  Args:
    turns: turns of the cases.
    per: units of work of one turn.
  """
  summary = {}
  for name, found in turns.items():
    seconds = [turn.seconds / per for turn in found]
    summary[name] = {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "cpu_seconds": statistics.median(t.cpu_seconds / per for t in found),
        "repeats": len(found),
    }
  return summary


def ratio(
    turns: Sequence[Turn], base: Sequence[Turn], scale: float = 1
) -> dict[str, Any]:
  """Return the ratio of two cases in the same turn: median and spread.

  "cpu_median" is the ratio of processor times, which depend less on other work
  on the machine.

  Args:
    turns: of the numerator.
    base: of the denominator.
    scale: factor of the ratio, if the turns did different amounts of work.
  """
  ratios, of_cpu = [], []
  for a, b in zip(turns, base):
    ratios.append(scale * a.seconds / b.seconds)
    of_cpu.append(scale * a.cpu_seconds / b.cpu_seconds)
  return {
      "median": statistics.median(ratios),
      "least": min(ratios),
      "most": max(ratios),
      "cpu_median": statistics.median(of_cpu),
  }


def row(
    what: str,
    value: float | Mapping[str, Any],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    unit: str = "",
    note: str = "",
) -> dict[str, Any]:
  """Return a line of the table in README.md.

  Args:
    what: the measured quantity, a few words.
    value: the number, or the result of `ratio` (any mapping with "median" and
      perhaps "least", "most" and "cpu_median").
    at_most: the target, if smaller is better.
    at_least: the target, if larger is better.
    unit: of value and target: "×", "s", "ms", "%", ...
    note: printed next to the value.
  """
  parts = value
  if not isinstance(parts, Mapping):
    parts = {"median": parts}
  number = parts["median"]
  reached = None
  if at_most is not None or at_least is not None:
    reached = (at_most is None or number <= at_most) and (
        at_least is None or number >= at_least
    )
  return {
      "what": what,
      "value": number,
      "least": parts.get("least"),
      "most": parts.get("most"),
      "cpu": parts.get("cpu_median"),
      "at_most": at_most,
      "at_least": at_least,
      "unit": unit,
      "note": note,
      "reached": reached,
  }


# The machine ------------------------------------------------------------------


def describe() -> dict[str, Any]:
  """Return processor, versions and, if JAX was imported, its devices."""
  found: dict[str, Any] = {
      "device": platform.processor() or platform.machine(),
      "cpus": os.cpu_count() or 1,
      "python": platform.python_version(),
  }
  jax = sys.modules.get("jax")
  if jax is not None:
    found["device"] = str(jax.devices()[0].device_kind)
    found["devices"] = jax.device_count()
  for package in _PACKAGES:
    if importlib.util.find_spec(package):
      found[package] = importlib.metadata.version(package)
  return found
