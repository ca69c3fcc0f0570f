"""An audit refutes every planted mistake, and no sound plan."""

import functools

import pytest

from episodic_dp import accounting
from episodic_dp.auditing import attack
from episodic_dp.auditing import canaries
from episodic_dp.auditing import claims
from experiments.targets import audited_plans
from tests.auditing import planted

pytestmark = pytest.mark.usefixtures("quickly_compiled")
PLANS = ("dp-sgd", "poisson participant", "fixed class")
RUNS, SEEDS = 2000, 20


@pytest.mark.slow
@pytest.mark.parametrize("mistake", planted.MISTAKES)
@pytest.mark.parametrize("name", PLANS)
def test_a_mistake_in_the_step_is_refuted(name, mistake, monkeypatch):
  case = audited_plans.CASES[name]
  release, level = case.parts
  planted.MISTAKES[mistake](monkeypatch)
  result = claims.audit(release, level, steps=case.steps, runs=RUNS)
  assert "is refuted" in claims.verdict(result) and not result["holds"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLANS, "pass image", "quantile participant"])
def test_a_sound_plan_is_refuted_by_no_seed(name, monkeypatch):
  case = audited_plans.CASES[name]
  small = canaries.miniature(*case.parts)
  claim = accounting.guarantee(
      small, steps=case.steps, delta=planted.DELTA, level=case.level
  )
  canary = canaries.worst_case(small, case.level, direction=claim.direction)
  monkeypatch.setattr(attack, "_COUNTED", 2**13)
  # Its programs are compiled once for all seeds.
  monkeypatch.setattr(attack, "_sums", functools.cache(attack._sums))
  for seed in range(SEEDS):
    found = claims.measure(
        canary, [case.steps], runs=RUNS, delta=planted.DELTA, confidence=0.95,
        seed=seed,
    )
    assert found.bounds[case.steps].epsilon <= claim.epsilon, seed
    assert found.distance <= found.allowed, seed
