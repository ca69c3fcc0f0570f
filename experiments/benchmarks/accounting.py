"""The accountant's time and tightness, beside dp_accounting's own.

Setting: q = 0.004, z = 1, delta = 1e-6, 10 000 steps, Poisson tasks: 400 000
participants, 1600 tasks a step expected. Every measurement runs in a process
of its own, so nothing is cached that a user would not have cached; the cases
take turns. Of two valid bounds, the smaller epsilon is the tighter.

`CASES` says what they are.
"""

import dataclasses
import functools
from typing import Any

from experiments.benchmarks import harness

# Lazy imports below: a case times the import of what is measured.
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
    "regular": "slowest query of a regular plan",
    "ragged": "slowest query of 1000 kinds of units",
    "ledger": "slowest ledger query within a pass",
}
FULL = {"steps": 10_000, "few_steps": 20, "pass_steps": 250, "grid": 1e-3,
        "every": 1}
SMOKE = {"steps": 20, "few_steps": 1, "pass_steps": 2, "grid": 5e-3,
         "every": 99}
SMOKE_CASES = ("import", "other_steps", "library_grid", "ledger")
# Of these the value is the name of the slowest query, of many.
SLOWEST = ("regular", "ragged", "ledger")

# Milliseconds; what the project wants to stay below on two idle cores.
TARGETS = {
    "import": 500.0,
    "first": 1000.0,
    "other_steps": 150.0,
    "other_delta": 150.0,
    "calibrate": 3000.0,
    "regular": 1000.0,
    "ragged": 5000.0,
    "ledger": 50.0,
}


# What a process of its own does -----------------------------------------------


def _described():
  from episodic_dp import plan

  hierarchy = plan.Hierarchy.regular(
      (400_000, 5, 2), levels=("participant", "class", "image")
  )
  stages = (plan.Poisson(_Q), plan.FixedSize(5), plan.FixedSize(2))
  mechanism = plan.Mechanism(clip_unit="participant", noise_multiplier=_Z)
  return plan.Release(hierarchy, plan.SamplingPlan(stages), mechanism)


def _ours(steps: int, delta: float = _DELTA, accountant: str = "pld") -> float:
  from episodic_dp import accounting

  return accounting.guarantee(
      _described(), steps=steps, delta=delta, level="participant",
      accountant=accountant,
  ).epsilon


def _library(
    steps: int, grid: float | None = None, *, each: bool = False,
    rdp: bool = False,
) -> float:
  import dp_accounting
  from dp_accounting import pld as pld_lib
  from dp_accounting import rdp as rdp_lib

  options = {} if grid is None else {"value_discretization_interval": grid}
  accountant = (
      rdp_lib.RdpAccountant() if rdp else pld_lib.PLDAccountant(**options)
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


def _calibrated(steps: int) -> float:
  """Epsilon at the calibrated noise."""
  from episodic_dp import accounting

  release = _described()
  found = accounting.calibrate(
      release, steps=steps, epsilon=1.0, delta=_DELTA, level="participant"
  )
  return accounting.guarantee(
      release.replace(mechanism=found),
      steps=steps, delta=_DELTA, level="participant",
  ).epsilon


def _allocated(steps: int) -> float:
  from episodic_dp import accounting
  from episodic_dp import plan

  release = _described()
  stages = (plan.RandomAllocation(steps), *release.plan.stages[1:])
  return accounting.guarantee(
      release.replace(plan=dataclasses.replace(release.plan, stages=stages)),
      steps=steps, delta=_DELTA, level="participant",
  ).epsilon


def measure_case(case: str, settings: dict[str, Any]) -> harness.Turn:
  """One measurement, in this process; its value is an epsilon, or None.

  Of `SLOWEST` the time is processor time, and the value says of which query.

  Args:
    case: one of `CASES`.
    settings: steps, few_steps, pass_steps, grid, every.
  """
  if case in SLOWEST:
    from experiments.benchmarks import accountant_queries

    seconds, name, many = accountant_queries.slowest(case, settings["every"])
    return harness.Turn(seconds, seconds, None, f"of {many}: {name}")
  steps, few = settings["steps"], settings["few_steps"]
  grid = settings["grid"]
  if case == "import":
    return harness.timed(_import)
  _import()
  if case.startswith("library"):
    import dp_accounting.pld
    import dp_accounting.rdp  # noqa: F401
  if case in ("other_steps", "other_delta"):
    _ours(steps)
  function = {
      "first": lambda: _ours(steps),
      "other_steps": lambda: _ours(steps - steps // 10),
      "other_delta": lambda: _ours(steps, _DELTA / 10),
      "calibrate": lambda: _calibrated(steps),
      "rdp": lambda: _ours(steps, _DELTA, "rdp"),
      "allocation": lambda: _allocated(settings["pass_steps"]),
      "library": lambda: _library(steps),
      "library_grid": lambda: _library(steps, grid),
      "library_fine": lambda: _library(steps, grid / 50),
      "library_each": lambda: _library(few, each=True),
      "library_rdp": lambda: _library(steps, rdp=True),
      "few": lambda: _ours(few),
  }[case]
  return harness.timed(function)


def _import() -> None:
  import episodic_dp.accounting  # noqa: F401


# The benchmark ----------------------------------------------------------------


def measure(options: harness.Options) -> harness.Found:
  """Every case in turns; milliseconds, and the epsilon found."""
  settings = dict(SMOKE if options.smoke else FULL)

  def case(name: str) -> harness.Turn:
    return harness.Turn(
        *harness.in_a_process(
            "accounting.measure_case", name, settings,
            # Threads that wait would count as processor time.
            env={"OPENBLAS_NUM_THREADS": "1"} if name in SLOWEST else None,
        )
    )

  names = SMOKE_CASES if options.smoke else tuple(CASES)
  turns = harness.interleaved(
      {n: functools.partial(case, n) for n in names if n not in SLOWEST},
      options,
      warm_up=0,
  )
  # Hundreds of queries each: once is enough.
  turns |= {name: [case(name)] for name in SLOWEST if name in names}
  cases, rows = harness.summaries(turns), []
  for name, one in cases.items():
    value = turns[name][-1].value
    if name in SLOWEST:
      one["query"], note = value, value
    else:
      one["epsilon"] = value
      note = "" if value is None else f"ε = {value:.5g}"
    rows.append(
        harness.row(
            CASES[name].format(**settings),
            {
                "median": 1e3 * one["seconds"],
                "least": 1e3 * one["fastest"],
                "most": 1e3 * one["slowest"],
            },
            at_most=TARGETS.get(name),
            unit="ms",
            note=note,
        )
    )
  return harness.Found(
      settings=settings | {"q": _Q, "z": _Z, "delta": _DELTA},
      cases=cases,
      rows=rows,
  )
