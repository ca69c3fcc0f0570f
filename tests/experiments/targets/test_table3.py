"""Table 3: its cells, and what is said of several keys."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp.config.run_config import RunConfig
from experiments import published
from experiments import reproduce
from experiments.targets import table3


def score(mean):
  return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}


def outcome(key, mean, *, private=True, **labels):
  return {
      "labels": dict(
          data="cifar_fs", way=5, shot=1, private=private, key=key, **labels
      ),
      "config": {
          "learner": {"name": "protonet"},
          "model": {"width": 32},
          "plan": {"stages": ["Poisson(0.004)", "FixedSize(5)"]},
          "data": {"options": {"participants": 400_000 if private else 16_000}},
      },
      "steps": 250,
      "epsilon": (
          {"participant": {"epsilon": 0.4984, "delta": 1e-6}} if private else {}
      ),
      "accuracy": {"single": score(mean), "untrained": score(0.3)},
      "tests": {
          "5": {"single": score(mean + 0.1), "untrained": score(0.4)},
      },
      "cpu_seconds": 10.0,
  }


def test_a_cell_is_the_mean_of_its_keys():
  outcomes = {
      "a": outcome(0, 0.49),
      "b": outcome(1, 0.52),
      "c": outcome(0, 0.6, private=False),
  }
  rows = table3.more(outcomes)["rows"]
  found = {(r["shot"], r["private"]): r for r in rows}
  assert list(found) == [(1, True), (1, False), (5, True), (5, False)]
  first = found[1, True]
  assert first["keys"] == 2 and first["accuracy"] == pytest.approx(50.5)
  assert first["accuracy_of_keys"] == pytest.approx([49.0, 52.0])
  assert first["epsilon"] == 0.4984 and first["published"] == 48.1
  assert first["half_interval"] == pytest.approx(1.0)
  assert found[5, True]["accuracy"] == pytest.approx(60.5)
  assert found[5, True]["untrained"] == pytest.approx(40.0)
  assert found[1, False]["epsilon"] is None
  assert found[1, False]["published"] == 61.0
  assert table3.finding(outcomes) == (
      "Accuracy with privacy (points below our network without it + points of"
      " that one below the published one): CIFAR-FS 5-way 1-shot 50.5 %"
      " (9.5 + 1.0); CIFAR-FS 5-way 5-shot 60.5 % (9.5 + 8.6)."
  )
  header, cells = table3.table(outcomes)
  assert len(cells) == 4 and all(len(row) == len(header) for row in cells)


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_every_private_run_spends_at_most_half(scale):
  runs = table3.runs(scale)
  private = [run for run in runs if run.labels["private"]]
  cells = {
      (run.labels["data"], run.labels["way"], shot)
      for run in private
      for shot in (1, *run.shots)
  }
  assert cells == set(published.TABLE3)
  assert len({run.name for run in runs}) == len(runs)
  for run in (r for r in private if r.labels["key"] == 0):
    config = RunConfig.parse(run.load())
    if run.labels.get("clipping") == "percentile":
      assert not config.release.mechanism.guaranteed
      continue
    spent = accounting.guarantee(
        config.release,
        steps=config.steps,
        delta=config.delta,
        level="participant",
    )
    assert 0.49 < spent.epsilon <= 0.5 and spent.delta == 1e-6


@pytest.mark.slow  # Trains, and compiles the evaluation of two shots.
def test_one_model_serves_both_shots(tmp_path):
  reproduce.main("table3", "smoke", str(tmp_path))
  rows = json.loads((tmp_path / "table3.json").read_text())["rows"]
  assert [row["shot"] for row in rows] == [1, 2]
  for row in rows:
    assert row["private"] and 0 < row["epsilon"] <= 8
    names = ("accuracy", "ensemble", "untrained", "untrained_ensemble")
    assert all(0 <= row[name] <= 100 for name in names)
  assert len({row["untrained_ensemble"] for row in rows}) == 2
