"""Tables of runs: what is compared, trained once, resumed, and refused."""

import json

from matplotlib import image as image_lib
import pytest

from episodic_dp import accounting
from episodic_dp import training
from episodic_dp.config import presets
from episodic_dp.config import RunConfig
from experiments import reproduce
from experiments import runs as runs_lib
from experiments import targets
from experiments.targets import budget
from experiments.targets import learners
from experiments.targets import panels
from experiments.targets import sample_level
from experiments.targets import stages

MADE = "protonet_private_0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """Folder of one finished run of the smallest scale."""
  folder = tmp_path_factory.mktemp("runs")
  reproduce.main("learners", "smoke", str(folder), only=[MADE])
  return folder


@pytest.mark.slow
def test_a_finished_run_is_reported(finished, capsys):
  result = json.loads((finished / "learners.json").read_text())
  outcome = result["runs"][MADE]
  assert list(result["runs"]) == [MADE]
  assert outcome["steps"] == 2
  assert 0 <= outcome["accuracy"]["single"]["mean"] <= 1
  stated = json.loads((finished / MADE / "guarantee.json").read_text())
  epsilon = stated["guarantees"]["participant"]["epsilon"]
  assert outcome["epsilon"]["participant"]["epsilon"] == epsilon <= 1.5
  assert outcome["config"]["steps"] == 2 and len(outcome["code"]) == 1
  assert outcome["validation"]["steps"] == [1, 2]
  stored = outcome["accuracy"]["single"]
  scores = training.unpack(stored["per_task"])
  assert scores.mean() == pytest.approx(stored["mean"])
  assert len(json.dumps(result["runs"], indent=2)) < 9000
  table = (finished / "learners.md").read_text()
  assert "| prototypical network | yes |" in table
  assert result["command"] in table
  pixels = image_lib.imread(finished / "learners.png")[..., :3]
  assert (pixels.max(-1) - pixels.min(-1) > 0.3).sum() > 50  # A dot.


@pytest.mark.slow
def test_a_finished_run_is_not_done_again(finished, monkeypatch):
  monkeypatch.setattr(training, "train", None)
  before = json.loads((finished / "learners.json").read_text())
  reproduce.main("learners", "smoke", str(finished), only=[MADE])
  assert json.loads((finished / "learners.json").read_text()) == before


@pytest.mark.slow
def test_the_outcome_of_another_command_is_refused(finished, tmp_path):
  outcome = json.loads((finished / MADE / runs_lib.OUTCOME).read_text())
  path = tmp_path / MADE / runs_lib.OUTCOME
  path.parent.mkdir()
  path.write_text(json.dumps(outcome | {"command": "another"}))
  with pytest.raises(training.RunError) as e:
    reproduce.main("learners", "smoke", str(tmp_path))
  assert "another command" in str(e.value) and str(path.parent) in str(e.value)
  path.write_text("{")
  with pytest.raises(training.RunError) as e:
    reproduce.main("learners", "smoke", str(tmp_path))
  assert "damaged" in str(e.value)


def test_wrong_names_are_refused_before_anything_is_trained(tmp_path):
  with pytest.raises(ValueError) as e:
    reproduce.main("learners", "smoke", str(tmp_path / "a"), only=["maml"])
  assert "--only=maml" in str(e.value) and "maml_private_0" in str(e.value)
  with pytest.raises(ValueError) as e:
    reproduce.main("table7", "smoke", str(tmp_path / "a"))
  assert "--target=table7" in str(e.value) and "learners" in str(e.value)
  assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("scale", targets.SCALES)
@pytest.mark.parametrize("name", ["learners", "budget"])
def test_private_runs_spend_the_budget_and_no_more(name, scale):
  runs = targets.load(name).runs(scale)
  assert len({run.name for run in runs}) == len(runs)
  spent = {}
  for run in runs:
    config = run.load()
    if not config.mechanism.noise_multiplier:
      continue
    key = (config.plan.stages[0], config.steps)
    if key not in spent:
      spent[key] = accounting.guarantee(
          RunConfig.parse(config).release,
          steps=config.steps,
          delta=config.delta,
          level="participant",
      ).epsilon
    assert config.delta == budget.DELTA
  assert spent
  for epsilon in spent.values():
    assert 0.99 * budget.EPSILON <= epsilon <= budget.EPSILON


def test_both_kinds_of_clipping_give_a_drawing_the_same_epsilon():
  for run in sample_level.runs("cpu")[-2:]:
    config = run.load()
    asked = run.labels["epsilon"]
    epsilon = accounting.guarantee(
        RunConfig.parse(config).release,
        steps=config.steps,
        delta=config.delta,
        level="drawing",
    ).epsilon
    assert 0.99 * asked <= epsilon <= asked, run.name


def test_every_learner_of_the_library_that_meta_learns_is_compared():
  from episodic_dp import learners as library

  used = {run.load().learner.name for run in learners.runs("cpu")}
  meta = {name for name, entry in library.LEARNERS.items() if entry[3]}
  assert used == meta - {"supervised"}


def test_commands_say_what_the_runs_do():
  for name in targets.NAMES:
    for run in targets.load(name).runs("cpu"):
      if isinstance(run, runs_lib.Computed):
        assert f"--target={name} --scale=cpu --only={run.name}" in run.command()
        continue
      preset = run.config.rpartition(".")[2]
      assert f"episodic-dp {run.program} --config={preset}:" in run.command()
      known = presets.PVI_NAMES if run.program == "pvi" else presets.NAMES
      assert preset in known
      for field, value in run.overrides.items():
        assert f"--config.{field}={value}" in run.command()


def _outcome(mean, **labels):
  score = dict(mean=mean, low=mean - 0.01, high=mean + 0.01, tasks=600)
  models = ("single", "ensemble", "untrained")
  return {
      "labels": labels,
      "accuracy": {name: score for name in models},
      "epsilon": {"drawing": {"epsilon": 1.17, "delta": 1e-5}},
      "seconds": 10.0,
      "cpu_seconds": None,
  }


def test_several_seeds_are_averaged_and_their_spread_is_shown():
  outcomes = {str(i): _outcome(0.5 + i / 10, seed=i) for i in range(3)}
  (found,) = panels.group(outcomes, "seed").values()
  assert panels.accuracy(found) == "60.0 % (50.0 to 70.0)"
  assert panels.accuracy(found[:1]) == "50.0 % ± 1.0"
  assert panels.seconds(found) == "10 s"
  assert panels.seconds(found, "cpu_seconds") == "-"
  assert panels.epsilon(found, "drawing") == "1.17"
  assert panels.epsilon(found, "class") == "none"


def test_a_folder_of_data_is_for_the_runs_that_read_it(tmp_path):
  with pytest.raises(ValueError, match="'glyphs' is generated: leave --data_"):
    reproduce.main("learners", "smoke", str(tmp_path), data_dir="somewhere")
  reads = {run.name: not run.generated for run in stages.runs("cpu")}
  assert reads["omniglot_characters_private"] and not reads["glyphs_private"]
  for run in stages.runs("cpu"):
    assert ("--data_dir=DATA" in run.command()) == reads[run.name]


@pytest.mark.parametrize("target", targets.NAMES)
def test_every_target_has_runs_at_every_scale(target):
  for scale in targets.SCALES:
    names = [run.name for run in targets.load(target).runs(scale)]
    assert names and len(set(names)) == len(names), scale
