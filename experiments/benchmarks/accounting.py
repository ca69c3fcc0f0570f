"""The accountant's time and tightness, beside dp_accounting's own; prints JSON.

  python -m experiments.benchmarks.accounting > accounting.json
  python -m experiments.benchmarks.accounting --repeats=1 --cases=first,library

Setting: q = 0.004, z = 1, delta = 1e-6, --steps steps, Poisson tasks: 400 000
participants, 1600 tasks a step expected. Every measurement runs in a process
of its own, so nothing is cached that a user would not have cached; the cases
take turns, so that a busy machine slows all of them. A case reports the median,
the smallest and the largest of its repeats in seconds of wall-clock time, its
share of a CPU (processor time / wall time: far below 1 means that the machine
was busy and the time is not worth much), its target, where there is one, and
the epsilon that it found: of two valid bounds the smaller is the tighter.

  import       import episodic_dp.accounting, without JAX
  first        one guarantee, nothing cached
  other_steps  another number of steps, same plan, after that
  other_delta  another delta
  calibrate    the noise for epsilon = 1 within 1 %
  rdp          one guarantee by the Renyi accountant
  allocation   one pass of --pass_steps steps by random allocation
  library      dp_accounting's PLDAccountant, SelfComposedDpEvent, default grid
  library_grid the same with --grid as its grid's step
  library_fine the same with --grid / 50: close to the truth, from above
  library_each the same, --few_steps steps composed one by one
  library_rdp  dp_accounting's RdpAccountant, default orders
  few          our own accountant for --few_steps steps, nothing cached
"""

from collections.abc import Sequence
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any

from absl import flags
from absl import logging

from experiments import cli

_Q, _Z, _DELTA = 0.004, 1.0, 1e-6

# Seconds; what the project wants to stay below on two idle cores.
TARGETS = {
    "import": 0.5,
    "first": 1.0,
    "other_steps": 0.15,
    "other_delta": 0.15,
    "calibrate": 3.0,
}


# What a process of its own does -----------------------------------------------


def _described():
  from episodic_dp import plan

  hierarchy = plan.Hierarchy.regular(
      (400_000, 5, 2), levels=("participant", "class", "image")
  )
  stages = (plan.Poisson(_Q), plan.FixedSize(5), plan.FixedSize(2))
  mechanism = plan.Mechanism(clip_unit="participant", noise_multiplier=_Z)
  return hierarchy, plan.SamplingPlan(stages), mechanism


def _ours(steps: int, delta: float = _DELTA, accountant: str = "pld") -> float:
  from episodic_dp import accounting

  return accounting.guarantee(
      *_described(), steps=steps, delta=delta, level="participant",
      accountant=accountant,
  ).epsilon


def _library(steps: int, grid: float | None, each: bool = False) -> float:
  import dp_accounting
  from dp_accounting.pld import PLDAccountant

  accountant = (
      PLDAccountant() if grid is None
      else PLDAccountant(value_discretization_interval=grid)
  )
  event = dp_accounting.PoissonSampledDpEvent(
      _Q, dp_accounting.GaussianDpEvent(_Z)
  )
  if each:
    for _ in range(steps):
      accountant.compose(event)
  else:
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
  return accountant.get_epsilon(_DELTA)


def _library_rdp(steps: int) -> float:
  import dp_accounting
  from dp_accounting.rdp import RdpAccountant

  event = dp_accounting.PoissonSampledDpEvent(
      _Q, dp_accounting.GaussianDpEvent(_Z)
  )
  accountant = RdpAccountant()
  accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
  return accountant.get_epsilon(_DELTA)


def _calibrated(steps: int) -> float:
  """Epsilon at the calibrated noise."""
  from episodic_dp import accounting

  hierarchy, plan, mechanism = _described()
  found = accounting.calibrate(
      hierarchy, plan, mechanism=mechanism, steps=steps, epsilon=1.0,
      delta=_DELTA, level="participant",
  )
  return accounting.guarantee(
      hierarchy, plan, found, steps=steps, delta=_DELTA, level="participant"
  ).epsilon


def _allocated(steps: int) -> float:
  import dataclasses

  from episodic_dp import accounting
  from episodic_dp import plan

  hierarchy, poisson, mechanism = _described()
  stages = (plan.RandomAllocation(steps), *poisson.stages[1:])
  return accounting.guarantee(
      hierarchy, dataclasses.replace(poisson, stages=stages), mechanism,
      steps=steps, delta=_DELTA, level="participant",
  ).epsilon


def _timed(function, *arguments) -> dict[str, Any]:
  wall, cpu = time.perf_counter(), time.process_time()
  value = function(*arguments)
  wall = time.perf_counter() - wall
  cpu = time.process_time() - cpu
  return {"seconds": wall, "cpu_share": cpu / wall, "epsilon": value}


def measure(case: str, settings: dict[str, Any]) -> dict[str, Any]:
  """One measurement, in this process: seconds, cpu_share, epsilon (or None).

  Args:
    case: one of `CASES`.
    settings: steps, few_steps, pass_steps, grid.
  """
  steps, few = settings["steps"], settings["few_steps"]
  if case == "import":
    return _timed(_import)
  _import()
  if case.startswith("library"):
    import dp_accounting.pld  # noqa: F401  Imports are not timed.
    import dp_accounting.rdp  # noqa: F401
  if case in ("other_steps", "other_delta"):
    _ours(steps)
  return {
      "first": lambda: _timed(_ours, steps),
      "other_steps": lambda: _timed(_ours, steps - steps // 10),
      "other_delta": lambda: _timed(_ours, steps, _DELTA / 10),
      "calibrate": lambda: _timed(_calibrated, steps),
      "rdp": lambda: _timed(_ours, steps, _DELTA, "rdp"),
      "allocation": lambda: _timed(_allocated, settings["pass_steps"]),
      "library": lambda: _timed(_library, steps, None),
      "library_grid": lambda: _timed(_library, steps, settings["grid"]),
      "library_each": lambda: _timed(_library, few, None, True),
      "library_rdp": lambda: _timed(_library_rdp, steps),
      "few": lambda: _timed(_ours, few),
      "library_fine": lambda: _timed(_library, steps, settings["grid"] / 50),
  }[case]()


CASES = (
    "import", "first", "other_steps", "other_delta", "calibrate", "rdp",
    "allocation", "library", "library_grid", "library_fine",
    "library_each", "library_rdp", "few",
)


def _import() -> None:
  import episodic_dp.accounting  # noqa: F401


# The program ------------------------------------------------------------------

_CHILD = """
import json, sys
from experiments.benchmarks import accounting
print(json.dumps(accounting.measure(sys.argv[1], json.loads(sys.argv[2]))))
"""


def _in_a_process(case: str, settings: dict[str, Any]) -> dict[str, Any]:
  done = subprocess.run(
      [sys.executable, "-c", _CHILD, case, json.dumps(settings)],
      stdout=subprocess.PIPE, text=True, check=True,
  )
  return json.loads(done.stdout.splitlines()[-1])


def run(
    cases: Sequence[str], repeats: int, settings: dict[str, Any]
) -> dict[str, Any]:
  """Measures the cases in turns; see the module's docstring."""
  found: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
  for k in range(repeats):
    for case in cases:
      found[case].append(_in_a_process(case, settings))
      logging.info(
          "%d/%d %s: %.3f s", k + 1, repeats, case, found[case][-1]["seconds"]
      )
  return {
      "machine": machine(),
      "settings": settings | {"q": _Q, "z": _Z, "delta": _DELTA,
                              "repeats": repeats},
      "cases": {case: _summary(case, runs) for case, runs in found.items()},
  }


def _summary(case: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
  seconds = [r["seconds"] for r in runs]
  median = statistics.median(seconds)
  target = TARGETS.get(case)
  return {
      "seconds": median,
      "fastest": min(seconds),
      "slowest": max(seconds),
      "cpu_share": statistics.median(r["cpu_share"] for r in runs),
      "target": target,
      "reached": None if target is None else median < target,
      "epsilon": runs[-1]["epsilon"],
  }


def machine() -> dict[str, Any]:
  """What the numbers were measured on."""
  name = platform.processor() or platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      names = [line for line in f if line.startswith("model name")]
    name = names[0].split(":", 1)[1].strip() if names else name
  except OSError:  # Not Linux: the name above has to do.
    pass
  return {
      "device": name,
      "cpus": len(os.sched_getaffinity(0))
      if hasattr(os, "sched_getaffinity") else os.cpu_count(),
      "load": os.getloadavg()[0],
      "python": platform.python_version(),
      **{
          package: importlib.metadata.version(package)
          for package in ("numpy", "scipy", "dp_accounting")
      },
  }


def main(argv: Sequence[str]) -> None:
  del argv
  for case in flags.FLAGS.cases:
    if case not in CASES:
      raise ValueError(
          f"unknown case '{case}': choose among {', '.join(CASES)}"
      )
  settings = {
      "steps": flags.FLAGS.steps, "few_steps": flags.FLAGS.few_steps,
      "pass_steps": flags.FLAGS.pass_steps, "grid": flags.FLAGS.grid,
  }
  print(json.dumps(
      run(flags.FLAGS.cases or CASES, flags.FLAGS.repeats, settings), indent=2,
      allow_nan=False,
  ))


if __name__ == "__main__":  # Flags here: every measurement imports this module.
  flags.DEFINE_integer("repeats", 5, "Runs of each case.", 1)
  flags.DEFINE_integer("steps", 10_000, "Steps of a run.", 2)
  flags.DEFINE_integer("few_steps", 20, "Steps composed one by one.", 1)
  flags.DEFINE_integer("pass_steps", 250, "Steps of a pass.", 2)
  flags.DEFINE_float("grid", 1e-3, "Grid step given to dp_accounting.")
  flags.DEFINE_list("cases", [], "Cases to run; all of them if empty.")
  cli.run(main)
