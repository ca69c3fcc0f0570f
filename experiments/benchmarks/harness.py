"""What every benchmark here shares: turns, ratios, rows, and one form of JSON.

A benchmark is a function of a module of this folder, named in `registry`:

  def measure(options: harness.Options) -> harness.Found:
    turns = harness.interleaved({"ours": ours, "theirs": theirs}, options)
    found = harness.ratio(turns["ours"], turns["theirs"])
    return harness.Found(
        settings={"width": 64},
        cases=harness.summaries(turns),
        rows=[harness.row("ours / theirs", found, at_most=1.1, unit="×")],
    )

The rows become lines of README.md, where the targets stand beside the numbers.

Cases take turns, another one first in each, so that a busy machine slows all
of them; a ratio is taken inside each turn. `cpu_share` is processor time over
wall time (all threads), `machine_free` the share of the whole machine that
nothing else took meanwhile: far below 1, the time is not worth much.

Nothing is imported here that would make the import of a library look cheaper,
NumPy and JAX among it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from absl import logging

from experiments.benchmarks import machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What every benchmark is asked.

  Attributes:
    smoke: sizes at which it takes seconds, to see that it works; the numbers
      mean nothing.
    repeats: turns of every case.
    only: for benchmarks of many cases, what is asked of those that are
      measured, such as "width=32"; all of them without.
  """

  smoke: bool
  repeats: int
  only: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
  """What a benchmark answers; all of it JSON-able.

  Attributes:
    settings: the sizes that were measured.
    cases: name -> what `summary` returned, or other numbers of the case.
    rows: what `row` returned.
    more: further numbers, by name.
  """

  settings: Mapping[str, Any]
  cases: Mapping[str, Mapping[str, Any]]
  rows: Sequence[Mapping[str, Any]]
  more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Turn(NamedTuple):
  """One measurement of one case.

  Attributes:
    seconds: of wall-clock time.
    cpu_seconds: of processor time, over the threads of the process.
    machine_free: the share of the machine that nothing else took, or None
      where the system does not say.
    value: what the function returned.
  """

  seconds: float
  cpu_seconds: float
  machine_free: float | None
  value: Any = None


def timed(function: Callable[..., Any], *arguments: Any) -> Turn:
  """Runs a function until its arrays are there."""
  before = machine.busy_seconds()
  wall, cpu = time.perf_counter(), time.process_time()
  value = wait(function(*arguments))
  wall = time.perf_counter() - wall
  cpu = time.process_time() - cpu
  return Turn(wall, cpu, free_share(before, wall, cpu), value)


def free_share(
    before: float | None, wall: float, cpu: float
) -> float | None:
  """The share of the machine that nothing else took, or None if unknown.

  Args:
    before: `machine.busy_seconds` when it began.
    wall: seconds since.
    cpu: seconds of processor time that were its own.
  """
  after = machine.busy_seconds()
  if before is None or after is None:
    return None
  others = max(0.0, after - before - cpu)
  return max(0.0, 1 - others / (wall * (os.cpu_count() or 1)))


def wait(value: Any) -> Any:
  """The same value, once the arrays of JAX in it are computed."""
  jax = sys.modules.get("jax")
  return value if jax is None else jax.block_until_ready(value)


def steps(
    step: Callable[[Any], tuple[Any, Any]], state: Any, count: int = 1
) -> Callable[[], Any]:
  """A function that makes `count` steps from where it ended, as a case."""

  def advance() -> Any:
    nonlocal state
    for _ in range(count):
      state, _ = step(state)
    return state

  return advance


def in_a_process(
    function: str, *arguments: Any, env: Mapping[str, str] | None = None
) -> Any:
  """What a function of this folder returns in a process of its own.

  Args:
    function: its module and name, "memory.of_step".
    *arguments: JSON-able, as is what it returns.
    env: variables of its environment besides those of this one.
  """
  module, _, name = function.partition(".")
  code = (
      "import json, sys\n"
      f"from experiments.benchmarks import {module}\n"
      f"print(json.dumps({module}.{name}(*json.loads(sys.argv[1]))))"
  )
  done = subprocess.run(
      [sys.executable, "-c", code, json.dumps(arguments)],
      env=os.environ | dict(env or {}),
      stdout=subprocess.PIPE,
      text=True,
      check=True,
  )
  return json.loads(done.stdout.splitlines()[-1])


def interleaved(
    cases: Mapping[str, Callable[[], Any]],
    options: Options,
    *,
    warm_up: int = 1,
) -> dict[str, list[Turn]]:
  """Measures cases in turns.

  Args:
    cases: name -> function to time; or one that measures itself and returns a
      `Turn`.
    options: how many turns count.
    warm_up: turns before, that compile and do not count.

  Returns:
    name -> its turns, without their values but for the last one's.
  """
  names = list(cases)
  found: dict[str, list[Turn]] = {name: [] for name in names}
  for turn in range(-warm_up, options.repeats):
    # Another first in every turn: what precedes a case may cost it something.
    for k in range(len(names)):
      name = names[(turn + k) % len(names)]
      one = timed(cases[name])
      if isinstance(one.value, Turn):
        one = one.value
      if turn >= 0:
        if found[name]:  # Keep one value: it may be large.
          found[name][-1] = found[name][-1]._replace(value=None)
        found[name].append(one)
      logging.info(
          "%s %s: %.4g s",
          f"turn {turn + 1}/{options.repeats}" if turn >= 0 else "warm-up",
          name,
          one.seconds,
      )
  return found


def summaries(
    turns: Mapping[str, Sequence[Turn]], per: float = 1
) -> dict[str, dict[str, Any]]:
  """`summary` of every case."""
  return {name: summary(found, per) for name, found in turns.items()}


def summary(turns: Sequence[Turn], per: float = 1) -> dict[str, Any]:
  """Median and spread of a case; `per` is how many units one turn did."""
  seconds = [turn.seconds / per for turn in turns]
  free = [t.machine_free for t in turns if t.machine_free is not None]
  return {
      "seconds": statistics.median(seconds),
      "fastest": min(seconds),
      "slowest": max(seconds),
      "quartiles": _quartiles(seconds),
      "cpu_seconds": statistics.median(t.cpu_seconds / per for t in turns),
      "cpu_share": statistics.median(
          t.cpu_seconds / t.seconds for t in turns
      ),
      "machine_free": statistics.median(free) if free else None,
      "repeats": len(seconds),
  }


def ratio(
    turns: Sequence[Turn], base: Sequence[Turn], scale: float = 1
) -> dict[str, Any]:
  """Of a case and another in the same turn: the median, and its spread.

  "cpu_median" is the ratio of processor times, which other work on the machine
  disturbs less.

  Args:
    turns: of the numerator.
    base: of the denominator.
    scale: multiplies the ratio, where the turns did unequal work.
  """
  ratios = [scale * a.seconds / b.seconds for a, b in zip(turns, base)]
  work = [scale * a.cpu_seconds / b.cpu_seconds for a, b in zip(turns, base)]
  return {
      "median": statistics.median(ratios),
      "least": min(ratios),
      "most": max(ratios),
      "quartiles": _quartiles(ratios),
      "cpu_median": statistics.median(work),
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
  """A line of the table in README.md.

  Args:
    what: what was measured, a few words.
    value: the number, or what `ratio` returned (any mapping with "median" and
      perhaps "least", "most" and "cpu_median").
    at_most: the target, where smaller is better.
    at_least: the target, where larger is better.
    unit: of value and target: "×", "s", "ms", "%", ...
    note: printed beside the value.
  """
  parts = value if isinstance(value, Mapping) else {"median": value}
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


def _quartiles(values: Sequence[float]) -> list[float]:
  if len(values) < 2:
    return [values[0]] * 2
  low, _, high = statistics.quantiles(values, n=4, method="inclusive")
  return [low, high]
