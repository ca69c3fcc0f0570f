"""Adaptive clip norms cost z to the last bit, or everything."""

import dataclasses
import json
import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import statement
from episodic_dp.accounting.report import RELATIONS

HIERARCHY = plan.Hierarchy.regular(
    (400, 5, 10), levels=("participant", "class", "image")
)
EPISODE = plan.Episode(way=5, shot=1, query=1)
POISSON, FIXED = (
    plan.SamplingPlan(
        (first, plan.FixedSize(5), plan.FixedSize(2)), episode=EPISODE
    )
    for first in (plan.Poisson(0.05), plan.FixedSize(20))
)
PLAIN = plan.Mechanism(
    clip_unit="participant", noise_multiplier=2.0, clip_norm=0.5
)
QUANTILE = dataclasses.replace(
    PLAIN, clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
    count_noise=10.0,
)
WINDOW = dataclasses.replace(
    PLAIN, clipping="percentile_window", clip_percentile=90, clip_window=40
)
SPENT = dict(steps=50, delta=1e-5)


@pytest.mark.parametrize("sampling", [POISSON, FIXED])
def test_a_private_quantile_costs_exactly_what_a_fixed_norm_does(sampling):
  fixed = accounting.guarantees(
    plan.Release(HIERARCHY, sampling, PLAIN), **SPENT
  )
  found = accounting.guarantees(
    plan.Release(HIERARCHY, sampling, QUANTILE), **SPENT
  )
  assert list(found) == list(fixed) == list(HIERARCHY.levels)
  for level, guarantee in found.items():
    assert guarantee.epsilon == fixed[level].epsilon < math.inf
    assert guarantee.unit_profiles == fixed[level].unit_profiles
    (extra,) = set(guarantee.assumptions) - set(fixed[level].assumptions)
    assert "noised counts of earlier steps" in extra


def test_no_epsilon_holds_for_a_percentile_of_raw_norms():
  for relation in RELATIONS:
    found = accounting.guarantee(
      plan.Release(HIERARCHY, FIXED, WINDOW),
      level="participant",
      neighbours=relation,
      **SPENT,
    )
    assert math.isinf(found.epsilon)
    for text in (found.caveat, str(found), " ".join(found.assumptions)):
      assert "un-noised percentile clipping" in text
  found = accounting.guarantee(
    plan.Release(HIERARCHY, POISSON, WINDOW),
    level="image",
    steps=1,
    epsilon=5.0,
  )
  assert found.delta == 1.0


def test_one_such_step_voids_a_whole_ledger_and_its_statement():
  ledger = accounting.Ledger().add(
    plan.Release(HIERARCHY, POISSON, QUANTILE), 20
  )
  assert math.isfinite(ledger.epsilon("participant", 1e-5))
  ledger = ledger.add(plan.Release(HIERARCHY, POISSON, WINDOW), 1)
  assert math.isinf(ledger.epsilon("participant", 1e-5))
  stated = statement.run_statement(ledger, delta=1e-5)
  stated = statement.loads(json.dumps(stated, allow_nan=False))
  for guarantee in stated["guarantees"].values():
    assert guarantee["epsilon"] == "inf"
    assert guarantee["caveat"].startswith("No formal guarantee")
  assert not statement.verify(stated).differences
  stated["entries"][1]["mechanism"]["clipping"] = "fixed"
  with pytest.raises(plan.PlanError, match="clip_percentile is 90.0"):
    statement.verify(stated)
