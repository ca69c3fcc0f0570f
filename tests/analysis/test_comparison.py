"""Runs side by side, read from folders as runs write them."""

import functools
import json
import math
import statistics

import pytest

from episodic_dp import accounting
from episodic_dp import training
from episodic_dp.analysis import comparison
from episodic_dp.output import files
from tests import plans
from tests.refusals import assert_refused
from tests.stored import json_of

RELEASE = plans.release(
    plans.tree("writer class image", 1000, 8, 5),
    plans.sampling(0.05, 5, 3, way=5, shot=1, query=2), "writer", 2.0,
)


OTHERS = RELEASE.replace(
    hierarchy=plans.tree(RELEASE.levels, 999, 8, 5)
)


@functools.cache
def statement(steps, release=RELEASE):
  """Return the statement of that many steps of 20."""
  ledger = accounting.Ledger().add(release, steps, continued=False)
  return accounting.run_statement(ledger, delta=1e-5, planned_steps=20)


@pytest.fixture
def save(tmp_path):
  """save(name, ...) -> a folder as a run leaves it."""

  def make(
      name, *, seed=0, steps=20, accuracy=0.5, noise=1.0, tested=None,
      stated=20, kind="accuracy", release=RELEASE, digest="1",
  ):
    folder = tmp_path / name
    files.write_json(folder / "config.json", {
        "steps": 20, "seed": seed, "data": {"validation_digest": digest},
        "mechanism": {"noise_multiplier": noise},
        "compute": {"devices": 1 + seed, "microbatch_size": 4},
    })
    validated = {
        f"validation_{kind}": accuracy,
        "validation_low": accuracy - 0.1, "validation_high": accuracy + 0.1,
    }
    lines = [{"step": 10} | validated, {"step": steps}]
    lines[-1] |= validated if steps == 20 else {}
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    if stated:
      files.write_json(folder / "guarantee.json", statement(stated, release))
    if tested is not None:
      score = {"mean": tested, "low": tested, "high": tested, "tasks": 9}
      files.write_json(folder / "evaluation.json", {
          "single": {kind: score, "steps": [20]},
          "ensemble": {kind: score, "steps": [10, 20]},
      })
    return folder

  return make


def test_a_run_is_what_its_files_say(save):
  folder = save("a", tested=0.75)
  (run,) = comparison.compare([folder, folder.parent, f"{folder}/"])
  assert (run["name"], run["steps"]) == (str(folder), 20)
  assert run["planned_steps"] == 20 and run["finished"]
  assert [*run["scores"]] == ["validation", "single", "ensemble"]
  assert run["scores"]["validation"] == {
      "kind": "accuracy", "mean": 0.5, "low": 0.4, "high": 0.6, "step": 20
  }
  assert run["scores"]["ensemble"]["step"] == 20
  stated = statement(20)["guarantees"]
  assert {k: v["epsilon"] for k, v in run["stated"].items()} == {
      level: stated[level]["epsilon"] for level in RELEASE.levels
  }


def test_unfinished_runs_show_the_steps_of_score_and_epsilon(save):
  folder = save("killed", steps=13)
  save("stopped", steps=10, stated=10, noise=2.0)
  found = comparison.compare([folder.parent])
  killed, stopped = (run["stated"]["writer"]["epsilon"] for run in found)
  assert not any(run["finished"] for run in found) and killed > stopped
  _, _, first, second, *_ = comparison.text(found).splitlines()
  assert "13 of 20" in first and "(of 20 steps)" in first
  assert "(step 10)" in first
  assert "10 of 20" in second and "(of" not in second


def test_runs_of_other_test_tasks_are_told_apart(save, tmp_path):
  for name, way in (("a", 5), ("b", None), ("c", 3)):
    config = save(name) / "config.json"
    files.write_json(config, json_of(config) | {
        "plan": {"episode": {"way": 5}},
        "evaluation": {"way": way, "shot": 1},
    })
  found = comparison.compare([tmp_path])
  tasks = [run["task"] for run in found]
  assert tasks == ["5-way 1-shot", "5-way 1-shot", "3-way 1-shot"]
  header, _, *lines = comparison.text(found).splitlines()
  assert "test tasks" in header
  assert [task in line for task, line in zip(tasks, lines)] == [True] * 3
  assert "test tasks" not in comparison.text(found[:2])


def test_only_runs_that_differ_in_their_keys_are_averaged(save, tmp_path):
  values = (0.5, 0.6, 0.8)
  for seed, value in enumerate(values):
    save(f"z=1,key={seed}", seed=seed, accuracy=value)
  save("z=2,key=0", noise=2.0)
  save("z=1,key=10", seed=10, steps=13)  # Not finished: listed, not averaged.
  save("z=1,key=11", seed=11, release=OTHERS)  # Other people.
  save("z=1,key=12", seed=12, digest="2")  # As many, with other images.
  found = comparison.compare([tmp_path])
  assert [run["name"].rpartition("/")[2] for run in found] == [
      "z=1,key=0", "z=1,key=1", "z=1,key=2", "z=1,key=10",
      "mean of 3: noise_multiplier=1.0", "z=2,key=0", "z=1,key=11",
      "z=1,key=12",
  ]
  mean = found[4]
  assert mean["runs"] == 3 and mean["stated"] == found[0]["stated"]
  score = mean["scores"]["validation"]
  assert score["mean"] == pytest.approx(statistics.mean(values))
  # Student's t of two degrees of freedom, from a table.
  half = 4.302653 * statistics.stdev(values) / math.sqrt(3)
  assert score["high"] - score["mean"] == pytest.approx(half, rel=1e-6)


def test_no_guarantee_and_missing_files_are_shown(save, tmp_path):
  folder = save("plain", kind="squared_error", tested=3.25)
  path = folder / "guarantee.json"
  changed = json_of(path)
  for stated in changed["guarantees"].values():
    stated["epsilon"] = "inf"
  files.write_json(path, changed)
  (tmp_path / "begun").mkdir()
  (tmp_path / "begun" / ".lock").touch()
  (tmp_path / "logs").mkdir()
  found = comparison.compare([tmp_path])
  text = comparison.text(found)
  assert "0 of ?" in text and "3.250 ± 0.000" in text
  assert text.splitlines()[3].split()[-1] == "none"
  assert found[1]["stated"]["writer"]["epsilon"] == "inf"
  assert found[1]["scores"]["single"]["mean"] == 3.25


@pytest.mark.parametrize(
    "file, content",
    [
        ("config.json", "{"),
        ("config.json", '{"seed": 1}'),
        ("guarantee.json", '{"guarantees": {"writer": {}}}'),
        ("guarantee.json", "[1]"),
        ("evaluation.json", '{"single": 3}'),
        ("evaluation.json", "x"),
        ("evaluation.json", '{"single": {"accuracy": {}, "steps": []}}'),
    ],
)
def test_a_damaged_run_is_one_sentence_with_its_folder(save, file, content):
  folder = save("a", tested=0.5, stated=None if file == "config.json" else 20)
  (folder / file).write_text(content)
  with pytest.raises(training.RunError) as error:
    comparison.compare([folder])
  assert str(folder) in str(error.value)


@pytest.mark.parametrize("make", [False, True])
def test_a_path_without_a_run_is_named(tmp_path, make):
  folder = tmp_path / "empty"
  if make:
    folder.mkdir()
  assert_refused(training.RunError, "empty", comparison.compare, [folder])
