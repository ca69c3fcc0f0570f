"""What is beyond the epsilon of one run: passes, selections, other notions."""

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import export
from experiments.evidence import pages

_DELTA = 1e-6
_LEVEL = "participant"


def _release(stage: plan_lib.Stage, units: int, z: float) -> plan_lib.Release:
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((units,), levels=(_LEVEL,)),
      plan_lib.SamplingPlan((stage,)),
      plan_lib.Mechanism(clip_unit=_LEVEL, noise_multiplier=z),
  )


def _one_run() -> accounting.Ledger:
  """[M]'s setting, with Poisson tasks."""
  tasks = 400_000
  release = _release(plan_lib.Poisson(1600 / tasks), tasks, 1.0)
  return accounting.Ledger().add(release, 250)


def passes() -> pages.Table:
  """Two steps of one pass, and the first steps of two."""
  release = _release(plan_lib.RandomAllocation(2), 1000, 0.2)
  rows = []
  for what, continued in (("one pass", True), ("two passes", False)):
    ledger = accounting.Ledger().add(release, continued=False)
    ledger = ledger.add(release, continued=continued)
    rows.append((what, ledger.guarantee(_LEVEL, epsilon=1.0).delta))
  return pages.Table(
      ("two steps of RandomAllocation(2), z = 0.2", "δ(1)"), tuple(rows)
  )


def beyond() -> pages.Table:
  """[M]'s setting: one run, the best of several, and other notions."""
  run = _one_run()
  chosen = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(run,), runs=accounting.geometric(10.0))
  )
  rows: list[tuple[pages.Cell, ...]] = [
      ("ε of one run", run.epsilon(_LEVEL, _DELTA)),
      (
          "ε of two together",
          run.guarantee(_LEVEL, delta=_DELTA, group=2).epsilon,
      ),
      ("ε of the best of ten expected, pld", chosen.epsilon(_LEVEL, _DELTA)),
      (
          "ε of the best of ten expected, moments",
          chosen.epsilon(_LEVEL, _DELTA, "rdp"),
      ),
  ]
  found = export.export(run, _LEVEL, delta=_DELTA)
  gaussian, zcdp = found["gaussian"], found["zcdp"]
  rows += [
      ("μ, errors of at least 1e-6", gaussian["mu"]),
      ("μ, every error", gaussian["mu_every_error"]),
  ]
  rows += [
      (f"ρ, up to order {row['order']}", row["rho"])
      for row in zcdp["truncated"] if row["order"] in (8, 16)
  ]
  rows.append(("ρ, every order", zcdp["rho"]))
  return pages.Table(("[M]'s setting, δ = 1e-6", "at most"), tuple(rows))


TABLES = {"passes": passes, "beyond": beyond}
