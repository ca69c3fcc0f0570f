"""The guideline's runs: one budget and one epsilon; a sentence of the means."""

import pytest

from episodic_dp.config import RunConfig
from experiments import reproduce
from experiments.targets import guideline


def test_every_run_spends_the_same():
  found = guideline.runs("cpu")
  assert len(found) == len({run.name for run in found}) == 8
  spent = {}
  for run in found:
    config = RunConfig.parse(run.load())
    tasks = run.labels["tasks"] * config.steps
    assert tasks == pytest.approx(9600, rel=0.02)
    spent[config.release.plan, config.steps] = config
  for config in spent.values():
    epsilon = config.with_changes({"target_epsilon": guideline.EPSILON})
    assert epsilon.planned_steps == config.steps


def test_the_finding_names_all_four():
  outcomes = {}
  for number, run in enumerate(guideline.runs("cpu")):
    mean = 0.5 + 0.1 * (number % 4)
    score = dict(mean=mean, low=mean - 0.01, high=mean + 0.01)
    outcomes[run.name] = {
        "labels": dict(run.labels), "accuracy": {"single": score}, "steps": 9,
        "noise_multiplier": 1.0,
        "epsilon": {"participant": {"epsilon": 2.35, "delta": 1e-5}},
    }  # fmt: skip
  header, rows = guideline.table(outcomes)
  assert len(rows) == 4 and all(len(row) == len(header) for row in rows)
  said = guideline.finding(outcomes)
  assert all(f"{mean}.0 %" in said for mean in (50, 60, 70, 80))
  assert guideline.finding(dict(list(outcomes.items())[:1])) == ""


@pytest.mark.slow  # Trains a run.
def test_it_runs(tmp_path, capsys):
  name = guideline.runs("smoke")[-1].name
  reproduce.main("guideline", "smoke", str(tmp_path), only=[name])
  assert (tmp_path / name / "outcome.json").exists()
