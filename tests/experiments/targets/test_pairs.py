"""What is printed and written of a pair of runs."""

import json
import types

from episodic_dp import training
from experiments import targets
from experiments.targets import pairs


def _outcome(mean):
  return {
      "steps": 4,
      "printed": {
          "header": ["model", "test squared error", "tasks", "steps"],
          "rows": [["last checkpoint", f"{mean} ± 0.1", "600", "4"]],
          "guarantees": ["  participant  epsilon = 1.2"],
      },
  }


def test_both_runs_stand_in_one_table_above_the_guarantees(tmp_path, capsys):
  more = training.SquaredError(mean=2.0, low=1.9, high=2.1, tasks=600)
  made = types.SimpleNamespace(
      CHANCE=None,
      finish=lambda outcomes, folder: {
          name: ("not adapted", more) for name in outcomes
      },
  )
  outcomes = {"with_privacy": _outcome(0.5), "without_privacy": _outcome(0.25)}
  pairs.report(made, outcomes, tmp_path, 82.4)
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split() == ["run", *"model test squared error".split(),
                              "tasks", "steps"]  # fmt: skip
  assert [line.split()[0] for line in lines[2:6]] == (
      ["with_privacy"] * 2 + ["without_privacy"] * 2
  )
  assert "not adapted" in lines[2] and "0.25 ± 0.1" in lines[5]
  assert lines[6:8] == [
      "guarantees of the private run:", "  participant  epsilon = 1.2"
  ]
  assert lines[8] == f"82 s; pictures and checkpoints in {tmp_path}"
  results = json.loads((tmp_path / "results.json").read_text())
  assert results["with_privacy"]["steps"] == 4
  assert results["without_privacy"]["not_adapted"]["mean"] == 2.0
  assert results["seconds"] == 82.4 and results["chance"] is None


def test_pairs_differ_in_privacy_alone():
  for name in targets.PAIRS:
    for scale in targets.SCALES:
      private, plain = targets.load(name).runs(scale)
      assert private.load().mechanism.noise_multiplier > 0
      assert plain.load().mechanism.noise_multiplier == 0
      changed = [
          key
          for key, value in private.load().to_dict().items()
          if plain.load().to_dict()[key] != value
      ]
      assert changed == ["mechanism"], name
      assert private.command() == plain.command().replace(
          "private=0", "private=1"
      )
