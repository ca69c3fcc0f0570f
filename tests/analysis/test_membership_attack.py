"""The attack on trained runs: who is a member, and what is written."""

import math
import types

from matplotlib import image as image_lib
import numpy as np
import optax
import pytest
from scipy import special
from scipy import stats

from episodic_dp import data
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import membership_attack as membership
from episodic_dp.training import reporting
from tests import plans
from tests.cli import tiny_runs
from tests.refusals import assert_refused
from tests.stored import json_of


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
      membership.find([str(runs)]), participants=4, tasks=4, seed=0
  )


@pytest.mark.slow
def test_runs_of_a_folder_are_attacked_side_by_side(results):
  plain, private = results["runs"]
  assert (plain["name"], private["name"]) == ("plain", "private_one")
  assert plain["guarantee"] is None
  assert private["guarantee"]["epsilon"] > 0
  for run in results["runs"]:
    for side in ("members", "others"):
      assert 2 <= run["participants"][side] <= 4
      # Two of three drawn are queries: some of the 48 drawings of a writer.
      assert 50 < run["examples"][side] <= 4 * 48
    assert [p["at"] for p in run["participants"]["points"]] == [
        0.001, 0.01, 0.1
    ]
    assert run["loss"]["members"] > 0
  # The same parameters, attacked in the same way.
  assert plain["participants"]["auc"] == private["participants"]["auc"]


@pytest.mark.slow
def test_members_are_those_of_the_training_data(runs, monkeypatch):
  loaded = tiny_runs.splits()
  known = {image.tobytes() for image in loaded.train.images}

  def outputs(self, params, tasks):
    """Be right with probability 0.6 on training data, else with 0.1."""
    del self, params
    first = tasks.images[tasks.rows[:, 0, 0]]
    right = [0.6 if image.tobytes() in known else 0.1 for image in first]
    found = np.full((len(first), 10, 5), 0.1)
    found[..., 0] = np.asarray(right)[:, None]
    return found, np.zeros(found.shape[:2], int)

  monkeypatch.setattr(training.Evaluator, "outputs", outputs)
  (run,) = membership.attack(
      membership.find([str(runs / "plain")]), participants=6, tasks=4, seed=1
  )["runs"]
  expected = np.log1p(0.4 / 0.6), np.log1p(0.4 / 0.1)
  assert [*run["loss"].values()] == pytest.approx(expected)
  # One more than the config's test split has.
  assert run["participants"]["others"] == 6
  for what in ("participants", "examples"):
    assert run[what]["auc"] == 1
    assert run[what]["points"][0]["tpr"] == 1


SIZES = [[3, 4], [5, 3, 3], [4, 4], [3, 3, 3, 6]]


@pytest.mark.parametrize("shuffled", [False, True])
def test_tasks_belong_to_their_participant(shuffled):
  participant = [i for i, p in enumerate(SIZES) for c in p for _ in range(c)]
  glyph = [j for p in SIZES for j, c in enumerate(p) for _ in range(c)]
  order = np.arange(len(glyph))
  if shuffled:
    order = np.random.default_rng(2).permutation(order)
  labels = {
      "participant": np.asarray(participant)[order],
      "glyph": np.asarray(glyph)[order],
  }
  images = np.zeros((len(glyph), 3, 3, 1), np.uint8)
  dataset = data.ArrayDataset(
      name="x", images=images,
      hierarchy=plan.Hierarchy.from_labels(labels, leaf="image"),
  )
  config = types.SimpleNamespace(way=2, release=types.SimpleNamespace(
      plan=plans.sampling(1, 3, 3, way=3, shot=1, query=2)
  ))
  tasks, owners = membership.draw_tasks(dataset, config, 3, tasks=10, seed=1)
  assert set(owners) == {0, 1, 2} and len(owners) == len(tasks.rows)
  for owner, rows in zip(owners, tasks.rows):
    assert (labels["participant"][rows] == owner).all()


def test_losses_and_scores_are_means_of_cross_entropies():
  rng = np.random.default_rng(0)
  logits, labels = rng.normal(size=(6, 4, 2)), rng.integers(0, 2, (6, 4))
  losses = membership.query_losses(special.softmax(logits, -1), labels)
  expected = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  # float32 still distinguishes two confident answers.
  sure = np.asarray([[[1, 1e-12], [1, 1e-20], [0, 1]]], np.float32)
  found = membership.query_losses(sure, np.zeros((1, 3), int))
  np.testing.assert_allclose(found[0, :2], [1e-12, 1e-20], rtol=1e-6)
  assert np.isfinite(found).all()
  points = rng.normal(size=(2, 3, 4, 1))
  np.testing.assert_allclose(
      membership.query_losses(*points), np.square(points[0] - points[1])[..., 0]
  )


def test_the_area_is_the_share_of_won_comparisons():
  members, others = [1.0, 2.0, 2.0, 3.0], [-1.0, -1.0, 0.0, 1.5, 2.0]
  wins = [(a > b) + (a == b) / 2 for a in members for b in others]
  found, _ = membership.area(np.asarray(members), np.asarray(others))
  assert found == pytest.approx(np.mean(wins))
  # As few as two pairs that all agree may be of one distribution.
  found, interval = membership.area(np.zeros(2), np.ones(2))
  assert found == 0 and interval == [0, pytest.approx(1 - 0.025**0.5)]


def test_a_point_of_the_curve_has_an_exact_interval():
  members, others = np.arange(50.0) + 70.5, np.arange(100.0)
  point = membership.at_rate(members, others, 0.03)
  hits = int((members > 96).sum())
  assert point["fpr"] == 0.03 and point["tpr"] == pytest.approx(hits / 50)
  low, high = point["tpr_interval"]
  # At each end what was seen, or more, has probability 2.5 %.
  assert stats.binom.sf(hits - 1, 50, low) == pytest.approx(0.025)
  assert stats.binom.cdf(hits, 50, high) == pytest.approx(0.025)
  assert membership.at_rate(members, others, 1e-3)["fpr"] == 0
  everyone = membership.at_rate(members, others, 1.0)
  assert (everyone["fpr"], everyone["tpr"]) == (1, 1)
  with pytest.raises(ValueError, match="NaN"):
    membership.summarize(members, others * np.nan, None)


def test_a_rate_below_one_of_the_others_is_not_measured():
  side = membership.summarize(np.arange(30.0), np.arange(40.0), None)
  text = membership.table({"runs": [{
      "name": "x", "training_participants": 9, "steps": 1, "guarantee": None,
      "loss": {"members": 1.0, "others": 1.0},
      "participants": side, "examples": side,
  }]})
  assert text.count("| needs 1000 others | needs 100 others | 0.00 % (") == 2


def test_intervals_cover_as_often_as_they_say():
  """Members N(1, 1) against N(0, 1): rates and area are known."""
  rng, covered = np.random.default_rng(0), np.zeros(2)
  truth = stats.norm.sf(0), stats.norm.cdf(1 / math.sqrt(2))
  for _ in range(400):
    members = np.sort(rng.normal(1, 1, 60))
    others = np.sort(rng.normal(size=90))
    # The threshold is 1, which does not depend on members.
    point = membership.at_rate(members, np.asarray([1.0]), 0.0)
    _, interval = membership.area(members, others)
    found = (point["tpr_interval"], interval)
    covered += [low <= t <= high for (low, high), t in zip(found, truth)]
  # 400 trials at 95 %: five standard deviations below are 0.896.
  assert (covered / 400 > 0.896).all() and (covered[1] / 400 < 0.99)


def test_no_test_exceeds_what_the_guarantee_allows():
  """The best test between randomized responses reaches it, none is above."""
  epsilon, delta, fpr = 0.7, 0.01, np.linspace(0, 1, 101)
  most = membership.most_true_positives(fpr, epsilon, delta)
  # The pair of outputs that dominates every (epsilon, delta) mechanism.
  share = math.exp(epsilon) / (1 + math.exp(epsilon))
  p = np.asarray([delta, (1 - delta) * share, (1 - delta) * (1 - share), 0])
  q = p[::-1]
  at = np.interp(fpr, np.cumsum([0, *q]), np.cumsum([0, *p]))
  at[0] = delta  # The first outcome never occurs without it.
  np.testing.assert_allclose(most, at, atol=1e-12)
  np.testing.assert_allclose(membership.most_true_positives(fpr, 0, 0), fpr)


def test_what_is_allowed_is_rounded_up():
  at = {"at": 0.1, "tpr": 0.1, "tpr_interval": [0.0, 0.3], "allowed": 0.123441}
  assert membership._rate_cell(at, 100).endswith("allowed 12.35")
  # The factor of a large epsilon is above every double.
  large = membership.most_true_positives(np.asarray([0, 0.1]), 800.0, 1e-5)
  np.testing.assert_allclose(large, [1e-5, 1])


def test_more_held_out_participants_are_the_same_and_others():
  config = membership.with_held_out(
      tiny_runs.maml_config(), 9
  )
  assert config.data.options["test_participants"] == 9
  more = config.data.load().test
  few = tiny_runs.splits().test
  np.testing.assert_array_equal(more.images[: len(few.images)], few.images)
  assert more.hierarchy.num_units(0) == 9
  assert tiny_runs.maml_config().data.options["test_participants"] == 5
  other = tiny_runs.maml_config().replace(
      {"data.name": "omniglot"}
  )
  assert membership.with_held_out(other, 9) is other


@pytest.mark.slow
def test_the_files_are_for_their_owner_alone(results, tmp_path):
  path = membership.write(results, tmp_path, "the command")
  made = sorted(p.name for p in tmp_path.iterdir())
  assert made == ["membership.json", "membership.md", "membership.png"]
  assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}
  text = path.read_text()
  assert "the command" in text and "guarantee covers it" in text
  rows = [line for line in text.splitlines() if line.startswith("| p")]
  assert len(rows) == 4
  epsilon = results["runs"][1]["guarantee"]["epsilon"]
  assert f"{epsilon:.2g}"[:3] in rows[-1] and "allowed" in rows[-1]
  again = json_of(tmp_path / "membership.json")
  assert again["runs"] == results["runs"]
  picture = image_lib.imread(tmp_path / "membership.png")
  assert picture.shape[0] > 400 and picture[..., :3].std() > 0.05


def attacked(folder):
  membership.attack(
      membership.find([folder]), participants=2, tasks=1, seed=0
  )


def test_runs_that_cannot_be_attacked_are_refused(tmp_path):
  with pytest.raises(training.RunError, match="No such file"):
    attacked(tmp_path / "nothing")
  tiny_runs.save(tiny_runs.supervised_config(), tmp_path / "single", 2)
  assert_refused(plan.PlanError, "form='unit'", attacked, tmp_path / "single")
  tiny_runs.save(tiny_runs.maml_config(), tmp_path / "damaged", 2)
  (tmp_path / "damaged" / reporting.GUARANTEE).write_text("{")
  with pytest.raises(training.RunError, match="cannot be read"):
    attacked(tmp_path / "damaged")
