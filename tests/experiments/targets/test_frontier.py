"""The frontier: one change at a time, judged on validation classes alone."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import models
from episodic_dp.config.run_config import RunConfig
from episodic_dp.models import weights as weights_lib
from experiments import reproduce
from experiments.targets import frontier


def test_every_change_spends_the_same_and_differs_from_the_first_row():
  runs = frontier.runs("cpu")
  assert [r.labels["change"] for r in runs[:3]] == ["base"] * 3
  first = RunConfig.parse(runs[0].load()).as_json()
  spent = {}
  for run in runs[3:]:
    source = run.load()
    if run.start is not None:  # Its weights are there when it is trained.
      source.model.trained = "all"
    config = RunConfig.parse(source)
    rate, steps = config.release.plan.stages[0].rate, config.steps
    mechanism = config.release.mechanism
    if run.name == "noiseless":
      assert not mechanism.noise_multiplier
      continue
    if (rate, steps, mechanism.clipping) not in spent:
      spent[rate, steps, mechanism.clipping] = accounting.guarantee(
          config.release, steps=steps, delta=config.delta, level="participant"
      ).epsilon
    assert config.as_json() != first or run.start is not None, run.name
  assert all(0.49 < epsilon <= 0.5 for epsilon in spent.values()), spent


def outcome(change, key, value):
  return {
      "labels": dict(change=change, about=frontier.CHANGES[change].about,
                     key=key),
      "steps": 120,
      "noise_multiplier": 0.7,
      "epsilon": {"participant": {"epsilon": 0.499}},
      "cpu_seconds": 3.0,
      "validation": {"values": [value], "low": [value - 0.01],
                     "high": [value + 0.01]},
      # Test classes are not looked at here.
      "accuracy": {"single": {"mean": 0.1, "low": 0.1, "high": 0.1}},
  }  # fmt: skip


def test_a_difference_within_the_noise_of_keys_is_told_as_such():
  outcomes = {
      "base_0": outcome("base", 0, 0.90),
      "base_1": outcome("base", 1, 0.93),
      "width": outcome("width", 0, 0.93),
      "rate": outcome("rate", 0, 0.95),
      "steps": outcome("steps", 0, 0.80),
  }
  header, rows = frontier.table(outcomes)
  against = header.index("against the first row")
  found = {row[0]: row[against] for row in rows[2:]}
  assert found["width 32"] == "+1.5 (says nothing)"
  assert found["outer rate 0.03"] == "+3.5"
  sentence = frontier.finding(outcomes)
  assert "outer rate 0.03 (+3.5 points)" in sentence
  assert "more, smaller steps (-11.5 points)" in sentence
  assert "budget" not in sentence
  outcomes["noiseless"] = outcome("noiseless", 0, 0.99)
  sentence = frontier.finding(outcomes)
  assert "gained by: outer rate 0.03 (+3.5 points)" in sentence
  assert "another budget: without noise (no guarantee) +" in sentence
  assert "10.0" not in str(rows)  # No test accuracy.


@pytest.mark.parametrize("name", ["glyphs", "glyphs_scale"])
def test_a_public_start_is_trained_without_privacy(name):
  (run,) = [r for r in frontier.runs("cpu") if r.name == name]
  config = run.start.load()
  assert config.data.name == "glyphs"
  assert config.mechanism.noise_multiplier == 0.0
  assert "--config.model.start=START" in run.command()


@pytest.mark.slow  # Four trainings.
def test_a_run_begins_with_the_weights_of_another(tmp_path):
  reproduce.main("frontier", "smoke", str(tmp_path))
  runs = json.loads((tmp_path / "frontier.json").read_text())["runs"]
  assert [*runs] == ["base_0", "average", "glyphs"]
  begun = runs["glyphs"]["config"]["model"]
  weights = models.read_weights(tmp_path / "glyphs_start.safetensors")
  assert begun["start"] == "glyphs_start.safetensors"  # No path of a machine.
  assert begun["start_digest"] == weights_lib.digest(weights)
  # Not told by accuracies: on 16 tasks two networks can be equal by chance.
  before = runs["base_0"]["config"]["model"]
  assert before["start"] is None and before["start_digest"] is None
