"""The loop: lines, statements, pictures, callbacks, deadlines, refusals."""

import dataclasses
import io
import os
import re
import sys
import time
import types

import jax
from matplotlib import image as image_lib
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.private import state as state_lib
from episodic_dp.training import checkpoint
from episodic_dp.training import loop
from episodic_dp.training import metrics
from episodic_dp.training import workdir
from tests import plans
from tests.refusals import assert_refused
from tests.stored import json_of
from tests.training import tiny_run

STEPS = 13


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A run that nothing interrupted, its lines and its result."""
  folder, lines = tmp_path_factory.mktemp("whole"), []

  def spoil(line):
    line.clear()

  spec = tiny_run.spec(STEPS, diagnostics=True)
  result = training.train(spec, folder, callbacks=[spoil, lines.append])
  return folder, lines, result


def _same(a, b):
  return jax.tree.all(jax.tree.map(np.array_equal, a, b))


def _lines(folder):
  return metrics.read(folder / metrics.FILE)


def test_the_run_learns_and_counts(whole):
  folder, reported, result = whole
  assert (result.steps, result.stopped) == (STEPS, "done")
  lines = _lines(folder)
  (name,) = json_of(folder / workdir.RECORD)
  assert [line.pop("key") for line in lines] == [name] * (STEPS + 1)
  assert reported == lines[1:]  # Behind the line of step 0.
  assert [line["step"] for line in lines] == [*range(STEPS + 1)]
  validated = [s["step"] for s in lines if "validation_accuracy" in s]
  assert validated == [0, 12, 13]
  # What is released, and no more.
  assert {name for line in lines for name in line} == {
      "step", "epsilon", "update_norm",
      "validation_accuracy", "validation_low", "validation_high",
  }
  start = tiny_run.learner().init(jax.random.key(tiny_run.spec(1).seed))
  assert not _same(start, tiny_run.final_params(folder)[0])
  score = tiny_run.evaluator().score([start], tiny_run.validation())
  assert lines[0]["epsilon"] == 0
  assert lines[0]["validation_accuracy"] == score.mean
  assert (folder / "checkpoints").is_dir()
  assert checkpoint.Checkpoints(folder).steps() == (12, 13)


def test_every_line_tells_what_was_spent_so_far(whole):
  spec = tiny_run.spec(STEPS)
  for line in _lines(whole[0])[1::6]:
    expected = accounting.guarantee(
        spec.release, steps=line["step"], delta=spec.delta, level="participant"
    )
    assert line["epsilon"] == expected.epsilon


def test_the_statement_covers_every_level_and_is_verified(whole):
  folder, _, result = whole
  found = statement.loads((folder / "guarantee.json").read_text())
  assert (found["steps"], found["planned_steps"]) == (STEPS, STEPS)
  assert list(found["guarantees"]) == list(tiny_run.LEVELS)
  for level, entry in found["guarantees"].items():
    assert entry["epsilon"] == result.guarantees[level].epsilon
    assert entry["assumptions"][0] == report.SEEDED
  assert accounting.verify(found).differences == ()
  expected = accounting.Ledger().add(tiny_run.spec(1).release, STEPS)
  ledger = checkpoint.Checkpoints(folder).about(STEPS)["ledger"]
  assert ledger == expected.as_dict()


def test_diagnostics_are_written_only_on_request(tmp_path):
  tiny_run.train(tiny_run.spec(1), tmp_path)
  assert [p.name for p in (tmp_path / "private").iterdir()] == ["key"]


def test_a_finished_run_is_left_as_it_is_and_keeps_its_score(whole):
  folder, _, first = whole
  before = (folder / metrics.FILE).read_bytes()
  again = training.train(tiny_run.spec(STEPS, diagnostics=True), folder)
  assert again.stopped == "done" and str(again.score) == str(first.score)
  assert (folder / metrics.FILE).read_bytes() == before
  fewer = tiny_run.spec(STEPS - 1, diagnostics=True)
  with pytest.raises(training.RunError, match="has already done 13 steps"):
    tiny_run.train(fewer, folder, resume="fork")
  assert (folder / metrics.FILE).read_bytes() == before


@pytest.mark.parametrize("name", ["learning_curve.png", "epsilon_curve.png"])
def test_pictures_show_something(whole, name):
  pixels = image_lib.imread(whole[0] / name)[..., :3]
  assert min(pixels.shape[:2]) > 300
  coloured = (pixels.max(-1) - pixels.min(-1) > 0.3).sum()
  assert coloured > 200, "no line was drawn"


def test_an_error_of_a_callback_ends_the_run_which_is_resumed(tmp_path):
  steps = []

  def fail(line):
    steps.append(line["step"])
    if steps == [1, 2, 3, 4, 5]:
      raise OSError("no space for the log")

  with pytest.raises(OSError, match="no space for the log"):
    tiny_run.train(tiny_run.spec(6), tmp_path, callbacks=[fail])
  tiny_run.train(tiny_run.spec(6), tmp_path, callbacks=[fail])
  assert steps == [*range(1, 6), 5, 6]
  tiny_run.train(tiny_run.spec(6), tmp_path / "whole")
  assert _lines(tmp_path) == _lines(tmp_path / "whole")
  assert _same(*map(tiny_run.final_params, (tmp_path, tmp_path / "whole")))


def test_a_deadline_ends_a_run(tmp_path):
  spec = tiny_run.spec(2)
  result = tiny_run.train(spec, tmp_path, deadline=time.monotonic())
  assert (result.steps, result.stopped) == (0, "time limit")
  assert "nothing spent; the whole run spends\n  participant" in repr(result)
  result = tiny_run.train(spec, tmp_path, deadline=time.monotonic() + 999)
  assert (result.steps, result.stopped) == (2, "done")


def test_a_folder_with_other_files_is_no_work_directory(tmp_path):
  for name in ("notes.txt", "slurm-17.log", ".git", "data"):
    (tmp_path / name).touch()
  with pytest.raises(training.RunError, match="no run, .* as 'data': choose a"):
    tiny_run.train(tiny_run.spec(2), tmp_path)
  (tmp_path / "notes.txt").unlink()
  (tmp_path / "data").unlink()
  assert tiny_run.train(tiny_run.spec(2), tmp_path).steps == 2
  (tmp_path / "notes.txt").touch()  # Of a run that is there already.
  assert tiny_run.train(tiny_run.spec(2), tmp_path).stopped == "done"


@pytest.mark.parametrize("writes", range(4))
def test_a_run_that_is_killed_as_it_begins_is_started_again(
    tmp_path, monkeypatch, writes
):
  left = iter(range(writes))

  def replace(*paths, replace=os.replace):
    if next(left, None) is None:
      raise tiny_run.Killed
    replace(*paths)

  with monkeypatch.context() as patched:
    patched.setattr(os, "replace", replace)
    with pytest.raises(tiny_run.Killed):
      tiny_run.train(tiny_run.spec(2), tmp_path)
  assert tiny_run.train(tiny_run.spec(2), tmp_path).steps == 2


@pytest.mark.parametrize("at", [2, 4, 6])
@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_is_removed_in_mid_run_ends_it(tmp_path, at, again):
  folder = tmp_path / "run"

  def remove(line):
    if line["step"] == at:
      folder.rename(tmp_path / "gone")
      if again:
        (folder / "private").mkdir(parents=True)
        (folder / ".lock").touch()

  assert_refused(
      training.RunError, "removed or replaced", tiny_run.train,
      tiny_run.spec(6), folder, callbacks=[remove],
  )
  left = {path.name for path in folder.rglob("*")}
  assert left == ({"private", ".lock"} if again else set())


def test_a_terminal_shows_minutes_left_and_no_time_of_a_step(
    tmp_path, monkeypatch
):
  clock, screen = iter(range(1, 10**6, 37)), io.StringIO()
  screen.isatty = lambda: True
  monkeypatch.setattr(sys, "stderr", screen)
  monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
  result = tiny_run.train(tiny_run.spec(12, diagnostics=True), tmp_path)
  shown = screen.getvalue()
  assert re.search(r", about \d0? minutes left", shown)
  bars = [line for line in re.split("[\r\n]", shown) if "%|" in line]
  assert len(bars) > 4
  assert not re.search(r"\d:\d\d|s/step|step/s|\d ?s\b", "".join(bars))
  assert repr(result).splitlines()[0] == "done after step 12"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_pipe_and_a_terminal_without_size_show_lines_with_minutes_left(
    monkeypatch, terminal
):
  screen, clock = io.StringIO(), [0.0]
  screen.isatty = lambda: terminal
  screen.fileno = lambda: 2
  size = os.terminal_size((0, 0))
  monkeypatch.setattr(sys, "stderr", screen)
  monkeypatch.setattr(os, "get_terminal_size", lambda unused: size)
  monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
  program = types.SimpleNamespace(steps=600, unit="step", privacy_unit="user")
  bar, began = loop._ProgressBar(program, 0), []
  for step in range(1, 601):
    clock[0] += 500 if step == 1 else 0.3  # The first step compiles.
    before = screen.tell()
    bar.show(step, 1.0, "")
    if screen.tell() > before:
      began.append(clock[0])
  first, second, *others, last = screen.getvalue().splitlines()
  assert first == "step 1 of 600: epsilon≤1.0 of one user"
  assert second == f"step 11 of 600: {first[15:]}, about 3 minutes left"
  assert last.endswith("less than a minute left") and len(others) < 98
  assert np.diff(began).min() >= 1


def test_without_noise_there_is_no_guarantee(tmp_path):
  result = training.train(tiny_run.spec(2, noise_multiplier=0.0), tmp_path)
  assert result.guarantees["participant"].epsilon == float("inf")
  found = json_of(tmp_path / "guarantee.json")
  assert found["guarantees"]["participant"]["epsilon"] == "inf"
  assert {line["epsilon"] for line in _lines(tmp_path)} == {"inf"}


def test_validation_and_configuration_may_be_left_out(tmp_path):
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
  assert not any("validation_accuracy" in line for line in _lines(tmp_path))
  found = json_of(tmp_path / "guarantee.json")
  sentences = found["guarantees"]["participant"]["assumptions"]
  assert report.SEEDED not in sentences


_BAD = {
    "evaluate_every=0": lambda: tiny_run.spec(2, evaluate_every=0),
    "steps=0": lambda: tiny_run.spec(0),
    "no level 'city'|'city'": lambda: tiny_run.spec(3, privacy_unit="city"),
    "is for another sampler": lambda: dataclasses.replace(
        tiny_run.spec(3), train=tiny_run.dataset(participants=21)
    ),
}


@pytest.mark.parametrize("words", _BAD)
def test_impossible_runs_are_refused(words):
  assert_refused(plan.PlanError, words, _BAD[words])


def test_float64_arrays_are_refused_in_one_sentence(tmp_path):
  spec = tiny_run.spec(1)
  with jax.enable_x64(True):
    with pytest.raises(training.RunError, match="JAX_ENABLE_X64 is set"):
      training.train(spec, tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_a_refused_plan_writes_no_key(tmp_path, monkeypatch):
  spec = tiny_run.spec(3)
  refused = dataclasses.replace(
      spec,
      release=spec.release.replace(
          plan=plan.SamplingPlan(spec.release.plan.stages),
          mechanism=plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
      ),
  )
  with pytest.raises(plan.PlanError, match="a plan without an episode"):
    training.train(refused, tmp_path / "runs" / "mine")

  def refuse(*unused):
    raise plan.UnsoundPlanError("no proof")

  monkeypatch.setattr(training.meta_training, "Spending", refuse)
  with pytest.raises(plan.UnsoundPlanError, match="no proof"):
    training.train(spec, tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_tasks_that_share_records_train_with_a_guarantee_for_these(tmp_path):
  spec = tiny_run.spec(3)
  hierarchy = plans.tree("class image", 60, 4)
  described = plans.sampling(
      tiny_run.WAY, 3, way=tiny_run.WAY, shot=1, query=2, form="independent",
      tasks=4,
  )
  spec = dataclasses.replace(
      spec,
      train=dataclasses.replace(spec.train, hierarchy=hierarchy),
      release=plans.release(hierarchy, described, "episode", 8.0),
  )
  result = tiny_run.train(spec, tmp_path)
  for level in ("class", "image"):
    expected = accounting.guarantee(
        spec.release, steps=3, delta=1e-5, level=level
    )
    assert 0 < expected.epsilon == result.guarantees[level].epsilon


# With the quantile the model is an average too.
_CLIPPING = {
    "quantile": dict(
        clipping="private_quantile", clip_quantile=0.5, clip_rate=0.5,
        count_noise=2.0, clip_by="layer",
    ),
    "window": dict(
        clipping="percentile_window", clip_percentile=50, clip_window=4
    ),
}


@pytest.mark.parametrize("name", _CLIPPING)
@pytest.mark.few(1)
def test_what_adapts_is_resumed_to_the_bit(name, tmp_path):
  mechanism = plan.Mechanism(
      clip_unit="participant", noise_multiplier=1.0, clip_norm=2.0,
      **_CLIPPING[name],
  )
  optimizer = optax.adam(0.01)
  if name == "quantile":
    optimizer = state_lib.averaged(optimizer, 0.9)
  spec = tiny_run.spec(
      6, mechanism=mechanism, optimizer=optimizer, config={}
  )
  folders = (tmp_path / "whole", tmp_path / "parts")
  result = tiny_run.train(spec, folders[0])
  tiny_run.kill(spec, folders[1], 5)
  tiny_run.train(spec, folders[1])
  assert _lines(folders[0]) == _lines(folders[1])
  program = training.meta_training.MetaTraining(spec)
  whole, parts = (
      checkpoint.Checkpoints(folder).restore(6, *program.saved(program.init()))
      for folder in folders
  )
  assert _same(whole, parts)
  last = _lines(folders[0])[-1]
  assert ("clip_norm" in last) == (name == "quantile")
  if name == "window":
    assert last["epsilon"] == "inf" and "norm" not in str(
        {*last} - {"update_norm"}
    )
    assert all("No formal" in g.caveat for g in result.guarantees.values())
  else:
    assert not _same(whole[0], whole[1]["iterate"])
