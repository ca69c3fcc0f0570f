"""What is printed and written of a pair of runs."""

from experiments import targets
from experiments.targets import pairs


def _outcome(mean, **more):
  score = dict(mean=mean, low=mean - 0.1, high=mean + 0.1, tasks=600)
  stated = dict(delta=1e-5, neighbours="add or remove one participant")
  return {
      "steps": 4,
      "squared_error": {"single": score, "untrained": score | {"mean": 4.0}},
      "epsilon": {"participant": {"epsilon": 1.2, **stated}},
      **more,
  }


def _outcomes():
  before = dict(mean=2.0, low=1.9, high=2.1, tasks=600)
  private = _outcome(0.5, not_adapted=before)
  plain = _outcome(0.25)
  plain["epsilon"]["participant"]["epsilon"] = "inf"
  return {"with_privacy": private, "without_privacy": plain}


def test_both_runs_stand_in_one_table_with_what_each_model_costs():
  header, rows = pairs.table(_outcomes())
  assert header == [
      "run", "model", "test squared error", "tasks", "ε of one participant",
  ]  # fmt: skip
  assert rows == [
      ["with privacy", "last checkpoint, not adapted", "2.000 ± 0.100", "600",
       "1.2"],
      ["with privacy", "untrained", "4.000 ± 0.100", "600", "0"],
      ["with privacy", "last checkpoint", "0.500 ± 0.100", "600", "1.2"],
      ["without privacy", "untrained", "4.000 ± 0.100", "600", "0"],
      ["without privacy", "last checkpoint", "0.250 ± 0.100", "600", "none"],
  ]  # fmt: skip


def test_the_sentence_states_the_whole_guarantee():
  both = _outcomes()
  assert pairs.finding(both) == (
      "On new tasks: 0.500 ± 0.100 with privacy, 0.250 ± 0.100 without privacy;"
      " guaranteed after 4 steps: ε = 1.2 at δ = 1e-05 (add or remove one"
      " participant)."
  )
  del both["with_privacy"]
  assert "guaranteed" not in pairs.finding(both)


def test_pairs_differ_in_privacy_alone():
  for name in ("glyphs", "sinusoid"):
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
