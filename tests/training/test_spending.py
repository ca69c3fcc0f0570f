"""Reported ε of a run, step by step."""

import types

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.training import meta_training
from tests import plans

DELTA = 1e-5
PASS = 32


def _spending(first, steps, *ranges, noise=1.0, unit=None):
  """Return release and spending of a run, which needs no data for it."""
  hierarchy = plans.tree("user image", 500, 4)
  release = plans.release(hierarchy, plans.sampling(first, 1), "user", noise)
  spec = types.SimpleNamespace(
      release=release, steps=steps, delta=DELTA, private_seed=None,
      privacy_unit=unit,
      learner=types.SimpleNamespace(
          model=types.SimpleNamespace(start=None, backbone=None)
      ),
  )
  return release, meta_training.Spending(spec, ranges, ranges[-1].stop)


def test_the_epsilon_that_is_reported_is_that_of_the_privacy_unit():
  reported = {}
  for unit in (None, "user", "image"):
    _, spent = _spending(0.1, 9, range(4), noise=2.0, unit=unit)
    reported[unit] = spent.epsilon(spent.level, spent.done)
    assert reported[unit] == spent.ledger(4).spent(unit or "user", DELTA)
  assert reported[None] == reported["user"] > reported["image"]


def test_no_step_of_a_budget_that_ends_in_a_pass_is_shown_above_it():
  first = plan.RandomAllocation(PASS)
  release, spent = _spending(first, PASS + 3, range(PASS - 1))
  budget = accounting.guarantee(
      release, steps=PASS + 3, delta=DELTA, level="user"
  ).epsilon
  # Quick bounds in a pass are of the end of its current sixteenth.
  assert spent.ledger(PASS + 3).spent("user", DELTA) > budget
  shown = [spent.epsilon("user", t) for t in range(PASS, PASS + 4)]
  assert shown == sorted(shown) and shown[-1] == budget


@pytest.mark.parametrize(
    "ranges, paid",
    [
        ([range(0, 12)], [12]),
        # A begun pass of 10 is paid for as a whole, and begins again.
        ([range(0, 12), range(8, 13)], [20, 13]),
        ([range(0, 20), range(20, 20)], [20]),
        ([range(0, 20), range(20, 23)], [20, 3]),
        ([range(0, 12), range(8, 9), range(8, 25)], [20, 10, 25]),
        ([range(0, 0), range(0, 4)], [4]),
    ],
)
def test_a_forked_pass_counts_as_begun_again(ranges, paid):
  _, spent = _spending(plan.RandomAllocation(10), 30, *ranges)
  entries = spent.ledger(spent.done).entries
  assert [entry.steps for entry in entries] == paid
  _, plain = _spending(0.1, 30, *ranges)
  assert plain.ledger(plain.done).steps == sum(map(len, ranges))
