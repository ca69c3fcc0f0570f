"""Runs whose clip norm adapts: resumed to the bit, and honest about privacy."""

import json

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.accounting import statement
from episodic_dp.training import metrics
from tests.training import tiny_run

STEPS = 6
QUANTILE = dict(
    clipping="private_quantile", clip_quantile=0.5, clip_rate=0.5,
    count_noise=2.0, clip_by="layer",
)
WINDOW = dict(clipping="percentile_window", clip_percentile=50, clip_window=4)


def _train(folder, steps, options):
  mechanism = plan.Mechanism(
      clip_unit="participant", noise_multiplier=1.0, clip_norm=2.0, **options
  )
  return tiny_run.train(
      tiny_run.spec(steps, mechanism=mechanism, config={}), folder
  )


@pytest.fixture(scope="module", params=[QUANTILE, WINDOW], ids=["q", "w"])
def runs(request, tmp_path_factory):
  """The options, the folder of a run, and its result."""
  whole = tmp_path_factory.mktemp("whole")
  return request.param, whole, _train(whole, STEPS, request.param)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(runs, tmp_path):
  options, whole, _ = runs
  for steps in (3, STEPS):
    _train(tmp_path, steps, options)
  (first, step), (second, again) = map(
      tiny_run.final_params, (whole, tmp_path)
  )
  assert step == again == STEPS
  assert jax.tree.all(jax.tree.map(np.array_equal, first, second))
  lines, others = (metrics.read(f / metrics.FILE) for f in (whole, tmp_path))
  lines[3] = others[3] | lines[3]  # A run that ends is validated there.
  assert lines == others


def test_only_noised_norms_are_told(runs):
  options, whole, result = runs
  lines = metrics.read(whole / metrics.FILE)
  stated = json.loads((whole / training.reporting.GUARANTEE).read_text())
  text = training.reporting.summary(result, STEPS)
  assert not statement.verify(stated).differences
  if options is QUANTILE:
    norms = [line["clip_norm"] for line in lines[1:]]
    assert norms[0] == 2.0 and len(set(norms)) == STEPS
    assert "epsilon = " in text and "no formal" not in text
    return
  assert all("norm" not in n.replace("update_norm", "") for n in lines[-1])
  assert {line["epsilon"] for line in lines} == {"inf"}
  assert stated["guarantees"]
  for guarantee in stated["guarantees"].values():
    assert guarantee["epsilon"] == "inf"
    assert "No formal guarantee (un-noised" in guarantee["caveat"]
  assert "participant  no formal guarantee\n" in text
  assert "un-noised percentile clipping" in text


def test_no_budget_holds_for_a_window():
  spec = tiny_run.spec(1)
  mechanism = plan.Mechanism(
      clip_unit="participant", noise_multiplier=1.0, **WINDOW
  )
  with pytest.raises(plan.UnsoundPlanError, match="un-noised percentile"):
    accounting.planned_steps(
      spec.release.replace(mechanism=mechanism),
      steps=9,
      delta=1e-5,
      target_epsilon=5.0,
    )
