"""A run from Python: what must be said, what is told, what is left behind."""

import dataclasses
import json

import jax
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.training import metrics
from episodic_dp.training import spending
from tests.training import tiny_run


def _lines(folder):
  return metrics.read(folder / metrics.FILE)


def test_steps_are_said_once_and_validation_may_be_left_out(tmp_path):
  described = tiny_run.spec(3)
  spec = training.TrainingSpec(
      train=described.train,
      release=described.release,
      learner=tiny_run.learner(),
      optimizer=optax.adam(0.01),
      steps=3,
      delta=1e-5,
  )
  result = tiny_run.train(spec, tmp_path)
  assert (result.steps, result.stopped, result.score) == (3, "done", None)
  assert len(_lines(tmp_path)) == 3
  assert not any("validation_accuracy" in line for line in _lines(tmp_path))
  assert tiny_run.final_params(tmp_path)[1] == 3


def test_an_optimiser_by_name_is_refused():
  with pytest.raises(training.RunError, match="'adam' must be an optimiser"):
    dataclasses.replace(tiny_run.spec(3), optimizer="adam")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
  """A run with diagnostics, what its callbacks were told, and its result."""
  folder, lines = tmp_path_factory.mktemp("told"), []
  spec = tiny_run.spec(12, diagnostics=True)

  def spoil(line):
    line.clear()

  result = tiny_run.train(spec, folder, callbacks=[spoil, lines.append])
  return folder, lines, result


def test_callbacks_are_told_what_is_released_and_no_more(told):
  folder, lines, _ = told
  diagnostics = (folder / "private" / "diagnostics.jsonl").read_text()
  assert "private/loss" in diagnostics  # There was something to keep quiet.
  assert lines == _lines(folder)[1:]  # Behind that of step 0.
  allowed = {
      "step", "epsilon", "update_norm",
      "validation_accuracy", "validation_low", "validation_high",
  }  # fmt: skip
  assert {name for line in lines for name in line} == allowed
  spec = tiny_run.spec(12)
  expected = accounting.guarantee(
      spec.release, steps=5, delta=spec.delta, level="participant"
  )
  assert lines[4]["epsilon"] == pytest.approx(expected.epsilon, rel=1e-3)


def test_an_error_of_a_callback_ends_the_run_which_goes_on(told, tmp_path):
  steps = []

  def fail(line):
    steps.append(line["step"])
    if line["step"] == 5:
      raise OSError("no space for the log")

  with pytest.raises(OSError, match="no space for the log"):
    tiny_run.train(tiny_run.spec(12), tmp_path, callbacks=[fail])
  # From the checkpoint of step 4 on: step 5 is told again.
  tiny_run.train(
      tiny_run.spec(12), tmp_path, callbacks=[lambda x: steps.append(x["step"])]
  )
  assert steps == [*range(1, 6), *range(5, 13)]
  assert _lines(tmp_path)[1:] == told[1]
  same = jax.tree.map(
      np.array_equal,
      tiny_run.final_params(tmp_path)[0],
      tiny_run.final_params(told[0])[0],
  )
  assert jax.tree.all(same)


def test_a_result_is_shown_in_one_line_with_every_level(told):
  result = told[2]
  text = repr(result)
  assert text.startswith("Result(12 steps; done; validation accuracy ")
  assert "\n" not in text and len(text) < 800
  for level, guarantee in result.guarantees.items():
    assert f"{level} epsilon " in text
    shown = repr(guarantee)
    assert shown.startswith(f"Guarantee({level}: epsilon ")
    assert len(shown) < 500
  # The seed of this run is known: that is said wherever epsilon is.
  (caveat,) = {g.caveat for g in result.guarantees.values()}
  assert caveat and caveat in text
  plain = dataclasses.replace(
      result,
      guarantees={
          level: dataclasses.replace(g, caveat="", epsilon=float("inf"))
          for level, g in result.guarantees.items()
      },
  )
  assert "participant no formal guarantee" in repr(plain)


def _refused(steps=3):
  """A spec whose learner does not fit its plan, which shows late."""
  spec = tiny_run.spec(steps)
  return dataclasses.replace(
      spec,
      release=spec.release.replace(
          plan=plan.SamplingPlan(spec.release.plan.stages),
          mechanism=plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
      ),
  )


def test_a_refused_plan_leaves_nothing_behind(tmp_path):
  folder = tmp_path / "runs" / "mine"
  with pytest.raises(plan.PlanError, match="a plan without an episode"):
    training.train(_refused(), folder)
  assert not (tmp_path / "runs").exists()


def test_a_plan_refused_after_its_key_was_drawn_leaves_no_key(
    tmp_path, monkeypatch
):
  def refuse(*unused):
    raise plan.UnsoundPlanError("no proof")

  monkeypatch.setattr(spending, "ledger_after", refuse)
  (tmp_path / "notes.txt").write_text("mine")
  with pytest.raises(plan.UnsoundPlanError, match="no proof"):
    training.train(tiny_run.spec(3), tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_that_is_refused_a_change_is_left_whole(told):
  folder, _, _ = told
  before = {
      path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
  }
  with pytest.raises(plan.PlanError, match="a plan without an episode"):
    training.train(_refused(12), folder)
  after = {
      path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
  }
  assert after == before
  assert json.loads((folder / "config.json").read_text())["steps"] == 12
