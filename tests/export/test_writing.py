"""Contents of exported folders: what they hold, hide and refuse."""

import json
import os
import shutil

import numpy as np
import pytest
import yaml

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import run as run_lib
from episodic_dp.accounting import statement
from episodic_dp.analysis import comparison
from episodic_dp.export import folder
from episodic_dp.export import writing
from episodic_dp.output import files
from episodic_dp.training import reporting
from episodic_dp.training import workdir
from tests import processes
from tests.cli import tiny_runs
from tests.export.conftest import save_run
from tests.export.conftest import state
from tests.refusals import assert_refused


@pytest.fixture
def copy(run, tmp_path):
  """A copy of the work directory, to be changed."""
  return shutil.copytree(run.workdir, tmp_path / "run")


@pytest.fixture
def out(tmp_path):
  """The place of a model."""
  return tmp_path / "model"


def front_matter(model):
  _, text, _ = (model / folder.CARD).read_text().split("---\n", 2)
  return yaml.safe_load(text)


def test_the_card_says_what_the_statement_says(run):
  found = front_matter(run.model)
  assert found["library_name"] == "episodic_dp" and found["license"]
  assert "model-index" not in found  # The hub refuses one without results.
  text = (run.model / folder.CARD).read_text()
  for level, stated in export.Predictor.load(run.model).guarantees.items():
    (row,) = [x for x in text.splitlines() if x.startswith(f"| {level} |")]
    shown = float(row.split("|")[2])
    assert stated["epsilon"] <= shown <= 1.001 * stated["epsilon"]
    assert stated["neighbours"] in row and "1e-05" in row and "| pld |" in row
    for assumption in stated["assumptions"]:
      assert f"- {assumption}" in text
  assert "not measured on test tasks" in text


def test_a_tilde_is_the_home_folder(copy, tmp_path, monkeypatch):
  here = tmp_path / "here"
  here.mkdir()
  monkeypatch.setenv("HOME", str(copy.parent))
  monkeypatch.chdir(here)
  writing.write("~/run", "~/model")
  assert export.Predictor.load("~/model").guarantees
  (found,) = comparison.compare(["~/run"])
  assert found["name"] == str(copy)
  assert statement.verify_file(f"~/run/{reporting.GUARANTEE}").rows()
  assert not any(here.iterdir())


@pytest.mark.slow
def test_what_evaluate_measured_is_in_the_card(copy, tmp_path, out):
  score = {"mean": 0.25, "low": 0.2, "high": 0.3, "tasks": 600}
  files.write_json(
      copy / reporting.EVALUATION, {"single": {"accuracy": score, "steps": [2]}}
  )
  done = writing.write(copy, out)
  assert done.scores["tasks"] == 600
  found = front_matter(out)
  (model,) = found["model-index"]
  assert found["model_name"] == model["name"]
  (result,) = model["results"]
  assert result["task"]["type"] == "image-classification"
  assert result["dataset"].keys() == {"type", "name"}
  (metric,) = result["metrics"]
  assert metric.pop("name")
  assert metric == {"type": "accuracy", "value": 0.25}
  text = (out / folder.CARD).read_text()
  assert "25.0 %" in text and "20.0 to 30.0 %, one image a call, 600" in text
  # Of another checkpoint it says nothing.
  files.write_json(
      copy / reporting.EVALUATION, {"single": {"accuracy": score, "steps": [1]}}
  )
  done = writing.write(copy, tmp_path / "other")
  assert done.scores is None


def test_nothing_private_leaves(copy, tmp_path, out):
  secret = "5f3ab1c09d"
  (copy / "private").mkdir()
  for name in ("key", "diagnostics.jsonl"):
    (copy / "private" / name).write_text(secret)
  config = json.loads((copy / workdir.CONFIG).read_text())
  config["data"]["options"]["seed"] = 90817263
  (copy / workdir.CONFIG).write_text(json.dumps(config))
  writing.write(copy, out)
  held = b"".join(p.read_bytes() for p in out.iterdir())
  for private in (secret, str(tmp_path), "private_seed", "90817263"):
    assert private.encode() not in held


def assert_write_refused(match, *arguments, **options):
  """Require one sentence that says what is wrong."""
  assert_refused(errors.RunError, match, writing.write, *arguments, **options)


def test_a_run_without_a_guarantee_needs_a_flag(run, tmp_path, out):
  config = tiny_runs.maml_config("private=0")
  save_run(config, tmp_path / "run", run.splits)
  assert_write_refused("--without_guarantee", tmp_path / "run", out)
  assert not out.exists()
  writing.write(tmp_path / "run", out, without_guarantee=True)
  text = (out / folder.CARD).read_text()
  assert "**This model has no privacy guarantee.**" in text
  assert "differential-privacy" not in text  # Nor is it found by that tag.
  assert "| unit | ε |" not in text
  assert "Assumptions" not in text


@pytest.mark.slow
def test_a_fixed_seed_is_no_guarantee(copy, out):
  path = copy / reporting.GUARANTEE
  config = run_lib.Run.read(copy)
  ledger = accounting.Ledger().add(config.release, 2, continued=False)
  files.write_json(
      path, accounting.run_statement(ledger, delta=1e-5, fixed_seed=True)
  )
  assert_write_refused("private_seed", copy, out)
  writing.write(copy, out, without_guarantee=True)
  text = (out / folder.CARD).read_text()
  assert "**No privacy guarantee against anyone who knows" in text
  assert "- differential-privacy\n" not in text


def test_a_statement_that_does_not_cover_the_steps_is_refused(copy, out):
  config = run_lib.Run.read(copy)
  state(config, copy, 1)
  assert_write_refused("not cover the 2 steps", copy, out)
  # Nor one of a run with more noise.
  other = config.replace({"mechanism.noise_multiplier": 9.0})
  state(other, copy, 2)
  assert_write_refused("not cover the 2 steps", copy, out)
  state(config, copy, 7)  # What the whole run will cost covers its beginning.
  writing.write(copy, out)


def test_what_a_folder_cannot_say_is_refused(copy, out):
  stages = ("Poisson(0.3)", "FixedSize(1)", "FixedSize(3)")
  config = run_lib.Run.read(copy).replace(
      {"plan.episode.way": 1, "plan.stages": stages}
  )
  files.write_json(copy / workdir.CONFIG, config.as_json())
  assert_refused(ValueError, "way 1", writing.write, copy, out)


def test_what_is_wrong_is_told_before_anything_is_read(copy, tmp_path, out):
  assert_write_refused("none is the best", copy, out, checkpoint="best")
  out.mkdir()
  (out / "mine").touch()
  assert_write_refused("exists already", copy, out)
  assert_write_refused("exists already", copy, out / "mine")
  for place in (copy, copy / workdir.CONFIG, copy / "checkpoints" / "9"):
    assert_write_refused("would change --workdir=", copy, place)
  (copy / reporting.GUARANTEE).unlink()
  with pytest.raises(ValueError, match="guarantee.json: it cannot be read"):
    writing.write(copy, tmp_path / "other")
  with pytest.raises(errors.RunError):
    writing.write(tmp_path, tmp_path / "other")
  assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_its_members(run, tmp_path):
  config = tiny_runs.maml_config()
  for step, quality in ((1, 0.3), (2, 0.6), (3, 0.5)):
    save_run(config, tmp_path / "run", run.splits, step, quality)
  found = {}
  images = run.splits.test.images[:10]
  labels = np.arange(10) % 5
  for choice in writing.CHOICES:
    done = writing.write(
        tmp_path / "run", tmp_path / choice, checkpoint=choice
    )
    loaded = export.Predictor.load(tmp_path / choice)
    assert loaded.description.steps == done.description.steps
    found[choice] = (
        done.description.steps,
        loaded.adapt(images, labels).predict(images).probabilities,
        len(loaded.members),
    )
  assert [found[c][0] for c in writing.CHOICES] == [(3,), (2,), (2, 3, 1)]
  assert found["ensemble"][2] == 3
  spread = np.abs(found["last"][1] - found["best"][1]).max()
  assert spread > 1e-3
  assert np.abs(found["ensemble"][1] - found["best"][1]).max() > 1e-4


@pytest.mark.slow  # Two processes each.
@pytest.mark.parametrize("moment", ["write_weights", "seal"])
def test_a_killed_export_leaves_nothing_in_its_place(
    moment, copy, tmp_path, out
):
  """SIGKILL at each moment; the same command then makes the folder."""
  code = (
      "import os, signal, sys\n"
      "from episodic_dp import models\n"
      "from episodic_dp.export import folder, writing\n"
      "def kill(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
      "at = {'write_weights': (models, 'write_weights'),"
      " 'seal': (folder, 'seal')}\n"
      "if sys.argv[3] in at: setattr(*at[sys.argv[3]], kill)\n"
      "writing.write(*sys.argv[1:3])\n"
  )
  ended = [
      processes.python("-c", code, copy, out, when).returncode
      for when in (moment, "never")
      if not out.exists() or os.listdir(out)
  ]
  assert ended == [-9, 0]
  export.Predictor.load(out)
  assert not list(tmp_path.glob(".model*"))
