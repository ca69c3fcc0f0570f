"""Runs side by side, read from folders as runs write them."""

import csv
import io
import json
import math
import statistics

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import compare
from episodic_dp.analysis import compare_report
from episodic_dp.output import files

RELEASE = plan.Release(
    plan.Hierarchy.regular((1000, 8, 5), levels=("writer", "class", "image")),
    plan.SamplingPlan(
        (plan.Poisson(0.05), plan.FixedSize(5), plan.FixedSize(3)),
        plan.Episode(way=5, shot=1, query=2),
    ),
    plan.Mechanism(clip_unit="writer", noise_multiplier=2.0),
)


@pytest.fixture(scope="module")
def statements():
  """Steps -> statement of that many steps of 20."""
  return {
      steps: accounting.run_statement(
          accounting.Ledger().add(RELEASE, steps, continued=False),
          delta=1e-5,
          planned_steps=20,
      )
      for steps in (10, 20)
  }


@pytest.fixture
def save(tmp_path, statements):
  """save(name, ...) -> a folder as a run leaves it, and its path."""

  def make(
      name, *, seed=0, steps=20, accuracy=0.5, noise=1.0, tested=None,
      stated=20, seconds=(), kind="accuracy", parent=tmp_path,
  ):  # fmt: skip
    folder = parent / name
    config = {
        "steps": 20, "seed": seed,
        "mechanism": {"noise_multiplier": noise},
        "compute": {"devices": 1 + seed, "microbatch_size": 4},
    }  # fmt: skip
    files.write_json(folder / "config.json", config)
    validated = {
        f"validation_{kind}": accuracy,
        "validation_low": accuracy - 0.1, "validation_high": accuracy + 0.1,
    }  # fmt: skip
    lines = [{"step": 10} | validated, {"step": steps}]
    lines[-1] |= validated if steps == 20 else {}
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    if stated:
      files.write_json(folder / "guarantee.json", statements[stated])
    if tested is not None:
      score = {"mean": tested, "low": tested, "high": tested, "tasks": 9}
      files.write_json(folder / "evaluation.json", {
          name: {kind: score, "steps": at}
          for name, at in (("untrained", [0]), ("single", [20]),
                           ("ensemble", [10, 20]))
      })  # fmt: skip
    if seconds:
      (folder / "private").mkdir()
      (folder / "private" / "times.jsonl").write_text(
          "".join(json.dumps({"seconds": s}) + "\n" for s in seconds)
      )
    return folder

  return make


def test_a_run_is_what_its_files_say(save, statements):
  folder = save("a", tested=0.75, seconds=(1.5, 2.0))
  (run,) = compare.compare([folder]).runs
  assert (run.name, run.steps, run.planned_steps) == (str(folder), 20, 20)
  assert run.finished and run.seconds == 3.5
  assert [*run.scores] == ["validation", "single", "ensemble"]
  assert run.scores["validation"] == compare.Measured(
      kind="accuracy", mean=0.5, low=0.4, high=0.6, step=20
  )
  assert run.scores["ensemble"].mean == 0.75
  stated = statements[20]["guarantees"]
  assert {k: v.epsilon for k, v in run.stated.items()} == {
      level: stated[level]["epsilon"] for level in ("writer", "class", "image")
  }
  assert {v.delta for v in run.stated.values()} == {1e-5}


def test_a_run_that_was_killed_says_which_steps_its_epsilon_is_of(save):
  save("killed", steps=13)
  save("stopped", steps=10, stated=10, noise=2.0)
  found = compare.compare([save("killed", steps=13).parent])
  killed, stopped = found.runs
  assert not killed.finished and not stopped.finished
  assert killed.stated["writer"].epsilon > stopped.stated["writer"].epsilon
  lines = compare_report.text(found).splitlines()
  assert "13 of 20" in lines[2] and "(of 20 steps)" in lines[2]
  assert "(step 10)" in lines[2]  # Its last validation.
  assert "10 of 20" in lines[3] and "(of" not in lines[3]


def test_keys_are_grouped_and_nothing_else_is(save, tmp_path):
  values = (0.5, 0.6, 0.8)
  for seed, value in enumerate(values):
    save(f"z=1,key={seed}", seed=seed, accuracy=value, seconds=(10 * value,))
  save("z=2,key=0", noise=2.0)
  save("z=1,key=10", seed=10, steps=13)  # Not finished: listed, not averaged.
  found = compare.compare([tmp_path])
  names = [run.name.rpartition("/")[2] for run in found.runs]
  assert names == [
      "z=1,key=0", "z=1,key=1", "z=1,key=2", "z=1,key=10", "z=2,key=0"
  ]
  (mean,) = found.means
  assert [name[-1] for name in mean.of] == ["0", "1", "2"]
  assert mean.name == "mean of 3: noise_multiplier=1.0"
  score = mean.scores["validation"]
  assert score.mean == pytest.approx(statistics.mean(values))
  # Student's t of two degrees of freedom, from a table.
  half = 4.302653 * statistics.stdev(values) / math.sqrt(3)
  assert score.high - score.mean == pytest.approx(half, rel=1e-6)
  assert mean.seconds == pytest.approx(19 / 3)
  assert mean.stated == found.runs[0].stated


def test_the_epsilon_of_a_mean_is_the_largest(save, statements):
  folders = [save(str(seed), seed=seed) for seed in range(2)]
  path = folders[1] / "guarantee.json"
  changed = json.loads(path.read_text())
  changed["guarantees"]["writer"]["epsilon"] = 99.0
  files.write_json(path, changed)
  (mean,) = compare.compare(folders).means
  assert mean.stated["writer"].epsilon == 99.0


def test_regressions_have_squared_errors(save):
  found = compare.compare([save("a", kind="squared_error", tested=3.25)])
  text = compare_report.text(found)
  assert "test squared error" in text and "3.250" in text
  assert "%  " not in text.splitlines()[2]
  (row,) = csv.DictReader(io.StringIO(compare_report.as_csv(found)))
  assert row["single_squared_error"] == "3.25"


def test_what_is_not_there_is_said_to_be_missing(save, tmp_path):
  bare = save("bare", stated=None)
  (tmp_path / "begun").mkdir()
  (tmp_path / "begun" / ".lock").touch()
  (tmp_path / "logs").mkdir()
  found = compare.compare([tmp_path])
  run, begun = found.runs
  assert run.name == str(bare) and run.finished and run.stated == {}
  assert begun.name == str(tmp_path / "begun") and not begun.finished
  text = compare_report.text(found)
  assert "0 of ?" in text and "time" not in text.splitlines()[0]


def test_no_guarantee_is_none(save, tmp_path):
  folder = save("plain")
  path = folder / "guarantee.json"
  changed = json.loads(path.read_text())
  for stated in changed["guarantees"].values():
    stated["epsilon"] = "inf"
  files.write_json(path, changed)
  found = compare.compare([folder])
  assert compare_report.text(found).splitlines()[2].split()[-1] == "none"
  (run,) = json.loads(compare_report.as_json(found))["runs"]
  assert run["stated"]["writer"]["epsilon"] == "inf"


def test_formats_hold_the_same(save, tmp_path):
  for seed in range(2):
    save(str(seed), seed=seed, accuracy=0.5 + seed / 10, tested=0.7)
  found = compare.compare([tmp_path])
  rows = [*csv.DictReader(io.StringIO(compare_report.as_csv(found)))]
  assert [row["kind"] for row in rows] == ["run", "run", "mean"]
  assert [row["runs"] for row in rows] == ["1", "1", "2"]
  plain = json.loads(compare_report.as_json(found))
  (mean,) = plain["means"]
  assert float(rows[2]["validation_accuracy"]) == (
      mean["scores"]["validation"]["mean"]
  )
  assert float(rows[0]["epsilon_writer"]) == (
      plain["runs"][0]["stated"]["writer"]["epsilon"]
  )
  assert [*rows[0]][-1] == "seconds" and rows[0]["seconds"] == ""
  # Epsilon is rounded up where it is rounded.
  shown = float(compare_report.text(found).splitlines()[2].split()[-3])
  assert shown >= found.runs[0].stated["writer"].epsilon


def test_a_folder_is_listed_once(save, tmp_path):
  folder = save("a")
  assert len(compare.compare([folder, tmp_path, f"{folder}/"]).runs) == 1


@pytest.mark.parametrize(
    "file, content",
    [
        ("config.json", "{"),
        ("config.json", '{"seed": 1}'),
        ("guarantee.json", '{"guarantees": {"writer": {}}}'),
        ("guarantee.json", "[]"),
        ("evaluation.json", '{"single": 3}'),
        ("evaluation.json", "x"),
        ("evaluation.json", '{"single": {"accuracy": {}, "steps": []}}'),
        ("metrics.jsonl", '{"step": 3, "validation_accuracy": null}'),
    ],
)
def test_a_damaged_run_is_one_sentence_with_its_folder(save, file, content):
  folder = save("a", tested=0.5, stated=None if file == "config.json" else 20)
  (folder / file).write_text(content)
  with pytest.raises(training.RunError, match="a") as error:
    compare.compare([folder])
  assert str(folder) in str(error.value)


@pytest.mark.parametrize("make", [False, True])
def test_a_path_without_a_run_is_named(tmp_path, make):
  folder = tmp_path / "empty"
  if make:
    folder.mkdir()
  with pytest.raises(training.RunError, match="empty"):
    compare.compare([folder])


def test_damaged_times_are_no_times(save):
  folder = save("a", seconds=(1.0,))
  with (folder / "private" / "times.jsonl").open("a") as f:
    f.write('{"seconds": "x"}\n')
  (run,) = compare.compare([folder]).runs
  assert run.seconds is None


def test_runs_on_a_store_are_named_by_its_address(save, tmp_path):
  for key in range(2):
    save(f"sweep/z=1,key={key}", seed=key, tested=0.6, seconds=(5.0,))
  (tmp_path / "sweep/z=1,key=0/private/key").write_text("no reader needs it")
  url = f"file://{tmp_path}/sweep"
  found, expected = (compare.compare([p]) for p in (url, tmp_path / "sweep"))
  assert [run.name for run in found.runs] == [
      f"{url}/z=1,key={key}" for key in range(2)
  ]
  as_rows = [
      compare_report.as_json(c).replace(str(where), "")
      for c, where in ((found, url), (expected, tmp_path / "sweep"))
  ]
  assert as_rows[0] == as_rows[1]
