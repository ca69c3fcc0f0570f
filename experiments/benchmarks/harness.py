"""What every benchmark here shares: turns, shares of the CPU, machine, JSON.

A benchmark is one program of this folder, for example

  def measure(options: harness.Options) -> dict[str, Any]:
    cases = {"ours": lambda: harness.timed(ours), "theirs": ...}
    turns = harness.interleaved(cases, options.repeats)
    found = harness.ratio(turns["ours"], turns["theirs"])
    return {
        "settings": {...},
        "cases": {name: harness.summary(t) for name, t in turns.items()},
        "rows": [harness.row("ours / theirs", found, at_most=1.1, unit="×")],
    }

  if __name__ == "__main__":
    harness.main(measure, repeats=7)

which gives it the flags --out, --smoke and --repeats and adds the machine to
what it prints. The "rows" become lines of README.md (`python -m
experiments.benchmarks --write`), where the targets stand beside the numbers.

Cases take turns, another one first in each, so that a busy machine slows all
of them; a ratio is taken inside each turn. `cpu_share` is processor time over
wall time (all threads), `machine_free` the share of the whole machine that
nothing else took meanwhile: far below 1, the time is not worth much.

Nothing is imported here that would make the import of a library look cheaper,
NumPy and JAX among it.
"""

from collections.abc import Callable, Mapping, Sequence
import ctypes
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from typing import Any, NamedTuple

from absl import flags
from absl import logging

from episodic_dp.cli import app

_PACKAGES = (
    "jax", "jaxlib", "numpy", "scipy", "optax", "flax", "torch",
    "dp_accounting", "jax_privacy",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What every benchmark is asked.

  Attributes:
    smoke: sizes at which it takes seconds, to see that it works; the numbers
      mean nothing.
    repeats: turns of every case.
  """

  smoke: bool
  repeats: int


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
  busy, wall, cpu = _busy(), time.perf_counter(), time.process_time()
  value = wait(function(*arguments))
  wall = time.perf_counter() - wall
  cpu = time.process_time() - cpu
  free = None
  after = _busy()
  if busy is not None and after is not None:
    others = max(0.0, after - busy - cpu)
    free = max(0.0, 1 - others / (wall * (os.cpu_count() or 1)))
  return Turn(wall, cpu, free, value)


def keep_memory() -> None:
  """Lets arrays use memory that others have freed, where the C library can.

  Fresh pages are paid for one by one, which is more than many a program of a
  few milliseconds costs; in the loop of a step they are there already.
  """
  try:
    libc = ctypes.CDLL("libc.so.6")
  except OSError:  # Not Linux with glibc.
    return
  libc.mallopt(-4, 0)  # M_MMAP_MAX: no block comes from the system alone,
  libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: and none goes back.


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


def interleaved(
    cases: Mapping[str, Callable[[], Turn]],
    repeats: int,
    *,
    warm_up: int = 1,
) -> dict[str, list[Turn]]:
  """Measures cases in turns.

  Args:
    cases: name -> function that measures once, usually with `timed`.
    repeats: turns that count.
    warm_up: turns before, that compile and do not count.

  Returns:
    name -> its turns, without their values but for the last one's.
  """
  names = list(cases)
  found: dict[str, list[Turn]] = {name: [] for name in names}
  for turn in range(-warm_up, repeats):
    # Another first in every turn: what precedes a case may cost it something.
    for k in range(len(names)):
      name = names[(turn + k) % len(names)]
      one = cases[name]()
      if turn >= 0:
        if found[name]:  # Keep one value: it may be large.
          found[name][-1] = found[name][-1]._replace(value=None)
        found[name].append(one)
      logging.info(
          "%s %s: %.4g s",
          f"turn {turn + 1}/{repeats}" if turn >= 0 else "warm-up",
          name,
          one.seconds,
      )
  return found


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


def machine(*, with_jax: bool = True) -> dict[str, Any]:
  """What the numbers are measured on; nothing that names the machine itself.

  Args:
    with_jax: also describe JAX's devices, which imports it.
  """
  devices = {}
  if with_jax:
    import jax  # Late: see above.

    device = jax.devices()[0]
    devices = {
        "device": str(device.device_kind),
        "platform": device.platform,
        "devices": jax.device_count(),
    }
  processor = _processor()
  return {"device": processor} | devices | {
      "processor": processor,
      "cpus": _cpus(),
      "load": round(os.getloadavg()[0], 2),
      "python": platform.python_version(),
      **_versions(),
  }


def floors(smoke: bool = False) -> dict[str, float]:
  """What this device can do at best, measured: {"matmul_gflops", "copy_gbs"}.

  A product of two large square float32 matrices (on an accelerator also of
  bfloat16, "matmul_bfloat16_gflops") at JAX's default precision, and a copy,
  whose bytes are counted once read and once written. The fastest of several.
  """
  import jax
  import jax.numpy as jnp

  accelerator = jax.default_backend() != "cpu"
  side = 256 if smoke else 8192 if accelerator else 2048
  length = 2**16 if smoke else 2**28 if accelerator else 2**26
  product = jax.jit(jnp.dot)
  # In place: fresh memory would be paid for, page by page, not the copy.
  copy = jax.jit(lambda x: x + 1, donate_argnums=0)

  def fastest(function, *arguments):
    wait(function(*arguments))
    return min(timed(function, *arguments).seconds for _ in range(5))

  found = {}
  for kind in ["float32"] + ["bfloat16"] * accelerator:
    a = jnp.full((side, side), 0.5, kind)
    name = "matmul_gflops" if kind == "float32" else f"matmul_{kind}_gflops"
    found[name] = 2e-9 * side**3 / fastest(product, a, a)
  vector = [jnp.zeros(length, jnp.float32)]

  def again():
    vector.append(copy(vector.pop()))
    return vector[0]

  found["copy_gbs"] = 8e-9 * length / fastest(again)
  return found


def write(result: Mapping[str, Any], out: str = "") -> None:
  """Prints a result as JSON, or writes it to a file.

  Raises:
    ValueError: a number is not finite.
  """
  text = json.dumps(result, indent=2, allow_nan=False) + "\n"
  if out:
    pathlib.Path(out).write_text(text, encoding="utf-8")
  else:
    print(text, end="")


def main(
    measure: Callable[[Options], Mapping[str, Any]],
    *,
    repeats: int,
    with_jax: bool = True,
) -> None:
  """Runs a benchmark as a program; flags of its own are defined before.

  Args:
    measure: options -> what it found.
    repeats: the default of --repeats; 2 with --smoke.
    with_jax: see `machine`.
  """
  out = flags.DEFINE_string("out", "", "File of the JSON; else it is printed.")
  smoke = flags.DEFINE_bool("smoke", False, "Tiny sizes: does it work?")
  asked = flags.DEFINE_integer(
      "repeats", None, f"Turns of each case; {repeats} by default, 2 if smoke.",
      1,
  )  # fmt: skip

  def run(argv: Sequence[str]) -> None:
    del argv
    turns = asked.value or (2 if smoke.value else repeats)
    began, before = time.perf_counter(), machine(with_jax=with_jax)
    found = measure(Options(smoke=smoke.value, repeats=turns))
    after = {
        "load_after": round(os.getloadavg()[0], 2),
        "took_seconds": round(time.perf_counter() - began, 1),
    }
    asked_for = {"smoke": smoke.value, "repeats": turns}
    write({"machine": before | after, "options": asked_for, **found}, out.value)

  app.run(run)


def _quartiles(values: Sequence[float]) -> list[float]:
  if len(values) < 2:
    return [values[0]] * 2
  low, _, high = statistics.quantiles(values, n=4, method="inclusive")
  return [low, high]


def _busy() -> float | None:
  """Seconds that all CPUs of the machine have worked so far."""
  try:
    with open("/proc/stat", encoding="ascii") as f:
      fields = [int(x) for x in f.readline().split()[1:]]
  except (OSError, ValueError):  # Not Linux.
    return None
  # user, nice, system, idle, iowait, irq, softirq, steal
  return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      for line in f:
        if line.startswith("model name"):
          return line.split(":", 1)[1].strip()
  except OSError:  # Not Linux: the name below has to do.
    pass
  return platform.processor() or platform.machine()


def _cpus() -> int:
  """How many CPUs the process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _versions() -> dict[str, str]:
  found = {}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found
