"""The attack on trained runs: who is a member, and what is written."""

import json

from matplotlib import image as image_lib
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import membership_attack as membership
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.training import reporting
from tests.cli import tiny_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """A folder like that of `make train`: a private run and a plain one."""
  parent = tmp_path_factory.mktemp("runs")
  for name, argument in (("private_one", "private=1"), ("plain", "private=0")):
    tiny_runs.save(tiny_runs.maml_config(argument), parent / name, 2)
  return parent


@pytest.fixture(scope="module")
def results(runs):
  return membership.attack(
      membership.find([str(runs)]), participants=4, tasks=3, seed=0
  )


def test_runs_of_a_folder_are_attacked_side_by_side(results):
  plain, private = results["runs"]
  assert (plain["name"], private["name"]) == ("plain", "private_one")
  assert plain["guarantee"] is None
  assert private["guarantee"]["epsilon"] > 0
  for run in results["runs"]:
    counts = [run["participants"][side] for side in ("members", "others")]
    assert counts == [4, 4]
    # Two of three drawn are queries: some of the 48 drawings of a writer.
    assert 60 < run["examples"]["members"] <= 3 * 4 * 10
    assert [p["at"] for p in run["participants"]["points"]] == [
        0.001, 0.01, 0.1
    ]
    assert run["loss"]["members"] > 0
  # The same parameters, attacked in the same way.
  assert plain["participants"]["auc"] == private["participants"]["auc"]


def test_members_are_those_of_the_training_data(runs, monkeypatch):
  loaded, seen = tiny_runs.splits(), []

  def losses(learner, params, dataset, episode, tasks):
    del learner, params, episode
    seen.append(dataset.name)
    known = {image.tobytes() for image in loaded.train.images}
    first = dataset.images[tasks.rows[..., 0, 0]]
    inside = [[image.tobytes() in known for image in unit] for unit in first]
    return np.where(inside, 0.5, 2.0)[..., None] * np.ones(10)

  monkeypatch.setattr(membership.inference, "query_losses", losses)
  (run,) = membership.attack(
      membership.find([str(runs / "plain")]), participants=6, tasks=2, seed=1
  )["runs"]
  assert seen == ["glyphs/train", "glyphs/test"]
  assert run["loss"] == {"members": 0.5, "others": 2.0}
  # One more than the config's test split has.
  assert run["participants"]["others"] == 6
  for what in ("participants", "examples"):
    assert run[what]["auc"] == 1
    assert run[what]["points"][0]["tpr"] == 1


def test_more_held_out_participants_are_the_same_and_others():
  config = membership.with_held_out(
      RunConfig.parse(tiny_runs.maml_config()), 9
  )
  assert config.data.options["test_participants"] == 9
  more = build.load_data(config, data_dir=None).test
  few = tiny_runs.splits().test
  np.testing.assert_array_equal(more.images[: len(few.images)], few.images)
  assert more.hierarchy.num_units(0) == 9
  assert tiny_runs.maml_config().data.options.test_participants == 5
  other = RunConfig.parse(tiny_runs.maml_config()).with_changes(
      {"data.name": "omniglot"}
  )
  assert membership.with_held_out(other, 9) is other


def test_the_files_are_for_their_owner_alone(results, tmp_path):
  path = membership.write(results, tmp_path, "the command")
  made = sorted(p.name for p in tmp_path.iterdir())
  assert made == ["membership.json", "membership.md", "membership.png"]
  assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}
  text = path.read_text()
  assert "the command" in text and "no guarantee" in text
  rows = [line for line in text.splitlines() if line.startswith("| p")]
  assert len(rows) == 4
  epsilon = results["runs"][1]["guarantee"]["epsilon"]
  assert f"{epsilon:.2g}"[:3] in rows[-1] and "allowed" in rows[-1]
  again = json.loads((tmp_path / "membership.json").read_text())
  assert again["runs"] == results["runs"]
  picture = image_lib.imread(tmp_path / "membership.png")
  assert picture.shape[0] > 400 and picture[..., :3].std() > 0.05


def attacked(folder):
  membership.attack(
      membership.find([folder]), participants=2, tasks=1, seed=0
  )


def test_runs_that_cannot_be_attacked_are_refused(tmp_path):
  with pytest.raises(training.RunError, match="does not exist"):
    attacked(tmp_path / "nothing")
  tiny_runs.save(tiny_runs.supervised_config(), tmp_path / "single", 2)
  with pytest.raises(plan.PlanError, match="form='unit'"):
    attacked(tmp_path / "single")
  tiny_runs.save(tiny_runs.maml_config(), tmp_path / "damaged", 2)
  (tmp_path / "damaged" / reporting.GUARANTEE).write_text("{")
  with pytest.raises(training.RunError, match="cannot be read"):
    attacked(tmp_path / "damaged")
