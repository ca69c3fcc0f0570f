"""The accountant's time and tightness, compared with dp_accounting's.

Setting: q = 0.004, z = 1, delta = 1e-6, 10 000 steps, Poisson tasks: 400 000
participants, 1600 expected tasks a step. Every measurement runs in a new
process, so that only a user's own caches are used; the cases take turns. Of two
valid bounds, the smaller epsilon is the tighter.
"""

import functools
from typing import Any

from experiments.benchmarks import harness

# Lazy imports below: a case times the import of the accountant.
_Q, _Z, _DELTA = 0.004, 1.0, 1e-6
# Name -> text, and the largest acceptable number of milliseconds.
CASES: dict[str, tuple[str, float | None]] = {
    "import": ("import episodic_dp.accounting, without JAX", 500),
    "first": ("one guarantee, nothing cached", 1000),
    "other_steps": ("another number of steps, same plan, after that", 150),
    "other_delta": ("another delta", 150),
    "calibrate": ("the noise for epsilon = 1 within 1 %", 3000),
    "library": (
        "dp_accounting, PLD, SelfComposedDpEvent, its default grid", None
    ),
    "library_fine": ("dp_accounting, PLD, grid 0.001 / 50", None),
}
SMOKE = ("import", "other_steps", "library")

# Queries of one plan ----------------------------------------------------------


def _release() -> Any:
  from episodic_dp import plan

  hierarchy = plan.Hierarchy.regular(
      (400_000, 5, 2), levels=("participant", "class", "image")
  )
  stages = (plan.Poisson(_Q), plan.FixedSize(5), plan.FixedSize(2))
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages),
      plan.Mechanism(clip_unit="participant", noise_multiplier=_Z),
  )


def _ours(
    steps: int,
    delta: float = _DELTA,
    release: Any = None,
) -> float:
  from episodic_dp import accounting

  return accounting.guarantee(
      release or _release(), steps=steps, delta=delta, level="participant"
  ).epsilon


def _calibrated(steps: int) -> float:
  """Return epsilon at the calibrated noise."""
  from episodic_dp import accounting

  release = _release()
  found = accounting.calibrate(
      release, steps=steps, epsilon=1.0, delta=_DELTA, level="participant"
  )
  return _ours(steps, release=release.replace(mechanism=found))


def _library(steps: int, accountant: Any) -> float:
  import dp_accounting

  accountant.compose(dp_accounting.SelfComposedDpEvent(
      dp_accounting.PoissonSampledDpEvent(
          _Q, dp_accounting.GaussianDpEvent(_Z)
      ),
      steps,
  ))
  return accountant.get_epsilon(_DELTA)


def measure_case(case: str, steps: int) -> harness.Turn:
  """Make one measurement in this process; its value is an epsilon, or None.

  Args:
    case: one of `CASES`.
    steps: number of steps of the guarantee.
  """
  if case == "import":
    return harness.timed(_import)
  from dp_accounting import pld

  _import()
  if case in ("other_steps", "other_delta"):
    _ours(steps)
  return harness.timed({
      "first": lambda: _ours(steps),
      "other_steps": lambda: _ours(steps - steps // 10),
      "other_delta": lambda: _ours(steps, _DELTA / 10),
      "calibrate": lambda: _calibrated(steps),
      "library": lambda: _library(steps, pld.PLDAccountant()),
      "library_fine": lambda: _library(
          steps, pld.PLDAccountant(value_discretization_interval=2e-5)
      ),
  }[case])


def _import() -> None:
  import episodic_dp.accounting  # noqa: F401


def measure(options: harness.Options) -> harness.Found:
  """Measure every case in turns: milliseconds, and the epsilon found."""
  steps = 20 if options.smoke else 10_000
  functions = {}
  for name in SMOKE if options.smoke else CASES:
    functions[name] = functools.partial(
        harness.in_a_process, "accountant_queries.measure_case", name, steps
    )
  turns = harness.interleaved(functions, options, warm_up=0)
  cases, rows = harness.summaries(turns), []
  for name, one in cases.items():
    text, target = CASES[name]
    note = ""
    if epsilon := turns[name][-1].value:
      note = f"ε = {epsilon:.5g}"
    milliseconds = {
        "median": 1e3 * one["seconds"],
        "least": 1e3 * one["fastest"],
        "most": 1e3 * one["slowest"],
    }
    rows.append(harness.row(
        text, milliseconds, at_most=target, unit="ms", note=note
    ))
  return harness.Found(
      settings={"steps": steps, "q": _Q, "z": _Z, "delta": _DELTA},
      cases=cases, rows=rows,
  )
