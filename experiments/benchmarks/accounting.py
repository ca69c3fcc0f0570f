"""The accountant's time and tightness, beside dp_accounting's own; prints JSON.

  python -m experiments.benchmarks.accounting --out=accounting.json
  python -m experiments.benchmarks.accounting --repeats=1 --cases=first,library

Setting: q = 0.004, z = 1, delta = 1e-6, --steps steps, Poisson tasks: 400 000
participants, 1600 tasks a step expected. Every measurement runs in a process
of its own, so nothing is cached that a user would not have cached; the cases
take turns, so that a busy machine slows all of them. A case reports the median,
the smallest and the largest of its repeats in seconds of wall-clock time, its
share of a CPU (processor time / wall time: far below 1 means that the machine
was busy and the time is not worth much), its target, where there is one, and
the epsilon that it found: of two valid bounds the smaller is the tighter.

`CASES` says what they are.
"""

from collections.abc import Sequence
import functools
import json
import subprocess
import sys
from typing import Any

from absl import flags

from experiments.benchmarks import harness

_Q, _Z, _DELTA = 0.004, 1.0, 1e-6

# name -> what it is.
CASES = {
    "import": "import episodic_dp.accounting, without JAX",
    "first": "one guarantee, nothing cached",
    "other_steps": "another number of steps, same plan, after that",
    "other_delta": "another delta",
    "calibrate": "the noise for epsilon = 1 within 1 %",
    "rdp": "one guarantee by the Renyi accountant",
    "allocation": "one pass of {pass_steps} steps by random allocation",
    "library": "dp_accounting, PLD, SelfComposedDpEvent, its default grid",
    "library_grid": "dp_accounting, PLD, grid {grid:g}",
    "library_fine": "dp_accounting, PLD, grid {grid:g} / 50",
    "library_each": "dp_accounting, PLD, {few_steps} steps one by one",
    "library_rdp": "dp_accounting, RDP, its default orders",
    "few": "one guarantee of {few_steps} steps, nothing cached",
}
SMOKE = {"steps": 20, "few_steps": 1, "pass_steps": 2, "grid": 5e-3}
SMOKE_CASES = ("import", "other_steps", "library_grid")

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


def measure(case: str, settings: dict[str, Any]) -> harness.Turn:
  """One measurement, in this process; its value is an epsilon, or None.

  Args:
    case: one of `CASES`.
    settings: steps, few_steps, pass_steps, grid.
  """
  steps, few = settings["steps"], settings["few_steps"]
  if case == "import":
    return harness.timed(_import)
  _import()
  if case.startswith("library"):
    import dp_accounting.pld  # noqa: F401  Imports are not timed.
    import dp_accounting.rdp  # noqa: F401
  if case in ("other_steps", "other_delta"):
    _ours(steps)
  grid = settings["grid"]
  return {
      "first": lambda: harness.timed(_ours, steps),
      "other_steps": lambda: harness.timed(_ours, steps - steps // 10),
      "other_delta": lambda: harness.timed(_ours, steps, _DELTA / 10),
      "calibrate": lambda: harness.timed(_calibrated, steps),
      "rdp": lambda: harness.timed(_ours, steps, _DELTA, "rdp"),
      "allocation": lambda: harness.timed(_allocated, settings["pass_steps"]),
      "library": lambda: harness.timed(_library, steps, None),
      "library_grid": lambda: harness.timed(_library, steps, grid),
      "library_each": lambda: harness.timed(_library, few, None, True),
      "library_rdp": lambda: harness.timed(_library_rdp, steps),
      "few": lambda: harness.timed(_ours, few),
      "library_fine": lambda: harness.timed(_library, steps, grid / 50),
  }[case]()


def _import() -> None:
  import episodic_dp.accounting  # noqa: F401


# The program ------------------------------------------------------------------

_CHILD = """
import json, sys
from experiments.benchmarks import accounting
print(json.dumps(accounting.measure(sys.argv[1], json.loads(sys.argv[2]))))
"""


def _in_a_process(case: str, settings: dict[str, Any]) -> harness.Turn:
  done = subprocess.run(
      [sys.executable, "-c", _CHILD, case, json.dumps(settings)],
      stdout=subprocess.PIPE, text=True, check=True,
  )
  return harness.Turn(*json.loads(done.stdout.splitlines()[-1]))


def run(
    cases: Sequence[str], repeats: int, settings: dict[str, Any]
) -> dict[str, Any]:
  """Measures the cases in turns; see the module's docstring."""
  turns = harness.interleaved(
      {
          case: functools.partial(_in_a_process, case, settings)
          for case in cases
      },
      repeats,
      warm_up=0,
  )
  summaries = {case: _summary(case, found) for case, found in turns.items()}
  return {
      "settings": settings | {"q": _Q, "z": _Z, "delta": _DELTA},
      "cases": summaries,
      "rows": rows(summaries, settings),
  }


def rows(
    summaries: dict[str, Any], settings: dict[str, Any]
) -> list[dict[str, Any]]:
  """The lines of the table: milliseconds, and the epsilon found."""
  found = []
  for case, summary in summaries.items():
    target, epsilon = TARGETS.get(case), summary["epsilon"]
    milliseconds = {
        "median": 1e3 * summary["seconds"],
        "least": 1e3 * summary["fastest"],
        "most": 1e3 * summary["slowest"],
    }
    found.append(
        harness.row(
            CASES[case].format(**settings),
            milliseconds,
            at_most=None if target is None else 1e3 * target,
            unit="ms",
            note="" if epsilon is None else f"ε = {epsilon:.5g}",
        )
    )
  return found


def _summary(case: str, turns: Sequence[harness.Turn]) -> dict[str, Any]:
  summary = harness.summary(turns)
  target = TARGETS.get(case)
  return summary | {
      "target": target,
      "reached": None if target is None else summary["seconds"] < target,
      "epsilon": turns[-1].value,
  }


def _measure(options: harness.Options) -> dict[str, Any]:
  names = ("steps", "few_steps", "pass_steps", "grid")
  settings = {name: flags.FLAGS[name].value for name in names}
  if options.smoke:
    settings = dict(SMOKE)
  for case in flags.FLAGS.cases:
    if case not in CASES:
      raise ValueError(
          f"unknown case '{case}': choose among {', '.join(CASES)}"
      )
  cases = list(
      flags.FLAGS.cases or (SMOKE_CASES if options.smoke else CASES)
  )
  return run(cases, options.repeats, settings)


if __name__ == "__main__":  # Flags here: every measurement imports this module.
  flags.DEFINE_integer("steps", 10_000, "Steps of a run.", 2)
  flags.DEFINE_integer("few_steps", 20, "Steps composed one by one.", 1)
  flags.DEFINE_integer("pass_steps", 250, "Steps of a pass.", 2)
  flags.DEFINE_float("grid", 1e-3, "Grid step given to dp_accounting.")
  flags.DEFINE_list("cases", [], "Cases to run; all of them if empty.")
  harness.main(_measure, repeats=5, with_jax=False)
