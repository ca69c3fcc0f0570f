"""What a run is said to have spent, step by step."""

import types

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.training import spending as spending_lib

DELTA = 1e-5
PASS = 32


def run_of(release, steps, privacy_unit=None):
  """What is read of a run, which needs no data for it."""
  network = types.SimpleNamespace(model=types.SimpleNamespace(start=None))
  return types.SimpleNamespace(
      release=release,
      steps=steps,
      delta=DELTA,
      private_seed=None,
      privacy_unit=privacy_unit,
      learner=network,
  )


def test_the_epsilon_that_is_told_is_that_of_the_privacy_unit():
  h = plan.Hierarchy.regular((500, 4), levels=("user", "image"))
  release = plan.Release(
      h,
      plan.SamplingPlan((plan.Poisson(0.1), plan.FixedSize(1))),
      plan.Mechanism(clip_unit="user", noise_multiplier=2.0),
  )
  told = {}
  for unit in (None, "user", "image"):
    spent = spending_lib.Spending(run_of(release, 9, unit), 4, lineage=())
    told[unit] = spent.epsilon()
    level = unit or "user"
    assert told[unit] == spent.ledger.spent(level, DELTA)
  assert told[None] == told["user"] > told["image"]


def test_no_step_of_a_budget_that_ends_in_a_pass_is_shown_above_it():
  h = plan.Hierarchy.regular((500, 4), levels=("user", "image"))
  release = plan.Release(
      h,
      plan.SamplingPlan((plan.RandomAllocation(PASS), plan.FixedSize(2))),
      plan.Mechanism(clip_unit="user", noise_multiplier=1.0),
  )
  budget = accounting.guarantee(
      release, steps=PASS + 3, delta=DELTA, level="user"
  ).epsilon
  steps = accounting.planned_steps(
      release, steps=9 * PASS, delta=DELTA, target_epsilon=budget
  )
  assert steps == PASS + 3
  whole = accounting.Ledger().add(release, steps, continued=False)
  # Quick bounds in a pass are of the end of its current sixteenth.
  assert whole.spent("user", DELTA) > budget
  run = run_of(release, steps)
  spent = spending_lib.Spending(run, PASS - 1, lineage=())
  shown = []
  for _ in range(PASS - 1, steps):
    spent.add_step()
    shown.append(spent.epsilon())
  assert shown == sorted(shown) and shown[-1] == budget
  for curve in spent.epsilon_curves():
    most = accounting.guarantee(
        release, steps=steps, delta=DELTA, level=curve.label
    ).epsilon
    assert list(curve.values) == sorted(curve.values)
    assert curve.values[-1] <= most
