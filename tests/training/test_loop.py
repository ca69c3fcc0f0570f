"""The loop: resuming, signals, budget, secrecy of the key, pictures."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
from matplotlib import image as image_lib
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import private
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.cli import exit_status
from episodic_dp.private import state as state_lib
from episodic_dp.training import checkpoint
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import resume
from tests.training import tiny_run

_SCRIPT = pathlib.Path(tiny_run.__file__)
STEPS = 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A run that nothing interrupted."""
  folder = tmp_path_factory.mktemp("whole")
  result = training.train(tiny_run.spec(STEPS), folder)
  return folder, result


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
  """The same run with diagnostics, in its first steps."""
  folder = tmp_path_factory.mktemp("diagnosed")
  tiny_run.train(tiny_run.spec(12, diagnostics=True), folder)
  return folder


def _same(a, b):
  return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def _lines(folder):
  lines = metrics.read(folder / metrics.FILE)
  for line in lines:
    assert "seconds" not in line  # A step's time tells how much it drew.
  return lines


def _start(folder, steps=STEPS):
  return subprocess.Popen(
      [sys.executable, str(_SCRIPT), str(folder), str(steps)],
      # As here, or what is resumed here would draw other steps.
      env=os.environ | {"JAX_NUM_CPU_DEVICES": str(jax.device_count())},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
  )


def _wait_for_lines(process, folder, count):
  path = folder / metrics.FILE
  for _ in range(60_000):
    # The first line is that of step 0.
    if path.exists() and path.read_bytes().count(b"\n") > count:
      return
    assert process.poll() is None, process.communicate()[0]
    time.sleep(0.002)
  raise AssertionError("the run wrote nothing")


def test_the_run_learns_and_counts(whole):
  folder, result = whole
  assert result.steps == STEPS and result.stopped == "done"
  assert [line["step"] for line in _lines(folder)] == [*range(STEPS + 1)]
  validated = [s["step"] for s in _lines(folder) if "validation_accuracy" in s]
  assert validated == [0, 12, 24, 30]
  start = tiny_run.learner().init(jax.random.key(0))
  assert not _same(start, tiny_run.final_params(folder)[0])


@pytest.mark.slow  # `cli.test_supervised` kills one too.
def test_killed_at_a_random_step_it_ends_with_the_same_bits(whole, tmp_path):
  process = _start(tmp_path)
  moment = random.randrange(3, STEPS - 2)
  _wait_for_lines(process, tmp_path, moment)
  process.kill()
  process.communicate()
  assert process.returncode == -signal.SIGKILL, "it ended before the kill"
  result = tiny_run.train(tiny_run.spec(STEPS), tmp_path)
  assert result.steps == STEPS
  assert _same(
      tiny_run.final_params(whole[0])[0], tiny_run.final_params(tmp_path)[0]
  ), f"killed after line {moment}"
  # No step twice, none missing, each with the values of the whole run.
  assert _lines(tmp_path) == _lines(whole[0])


@pytest.mark.slow  # Two more runs; `test_signals` has the signals alone.
def test_sigterm_saves_and_says_so_and_the_run_goes_on(whole, tmp_path):
  # Many steps, so that the signal arrives before the last.
  process = _start(tmp_path, steps=600)
  _wait_for_lines(process, tmp_path, 5)
  process.send_signal(signal.SIGTERM)
  output = process.communicate(timeout=120)[0]
  assert process.returncode == exit_status.REQUEUE, output
  assert "stopped by SIGTERM after step" in output
  _, step = tiny_run.final_params(tmp_path)
  assert 5 <= step < 600
  assert metrics.read(tmp_path / metrics.FILE)[-1]["step"] == step
  found = json.loads((tmp_path / "guarantee.json").read_text())
  assert (found["steps"], found["planned_steps"]) == (step, 600)
  level = found["guarantees"]["participant"]
  assert level["steps"] == step
  spec = tiny_run.spec(step + 1)
  expected = accounting.guarantee(
      spec.release,
      steps=step, delta=spec.delta, level="participant",
  )
  assert level["epsilon"] == pytest.approx(expected.epsilon, rel=1e-3)
  # A clean stop: the run may be given another length.
  assert tiny_run.train(spec, tmp_path).steps == step + 1


def test_a_longer_run_equals_one_that_was_longer_from_the_start(
    whole, tmp_path
):
  for steps in (9, STEPS):
    tiny_run.train(tiny_run.spec(steps), tmp_path)
  assert _same(
      tiny_run.final_params(whole[0])[0], tiny_run.final_params(tmp_path)[0]
  )


def test_a_finished_run_is_left_as_it_is_and_keeps_its_score(whole):
  folder, first = whole
  before = (folder / metrics.FILE).read_bytes()
  again = tiny_run.train(tiny_run.spec(STEPS), folder)
  assert again.stopped == "done" and str(again.score) == str(first.score)
  assert (folder / metrics.FILE).read_bytes() == before


def test_step_0_is_the_score_of_the_initial_parameters(whole):
  line = _lines(whole[0])[0]
  start = tiny_run.learner().init(jax.random.key(tiny_run.spec(1).seed))
  score = tiny_run.evaluator().score([start], tiny_run.validation())
  assert (line["step"], line["epsilon"]) == (0, 0.0)
  assert line["validation_accuracy"] == score.mean
  assert line["validation_low"] == score.low


def _public_files(folder):
  files = (*folder.glob("*.json*"), *folder.glob("*.png"))
  return {p.name: p.read_bytes() for p in files}


def test_fewer_steps_than_done_are_refused_and_nothing_is_rewritten(whole):
  before = _public_files(whole[0])
  for asked, remedy in (
      (STEPS - 1, "--config.steps=30 or more"),
      (STEPS, "without --config.target_epsilon"),
  ):
    spec = tiny_run.spec(STEPS - 1, asked_steps=asked)
    with pytest.raises(training.RunError, match=f"has done 30 .*{remedy}") as e:
      tiny_run.train(spec, whole[0])
    assert f"--workdir={whole[0]} (and the --data_dir" in str(e.value)
  assert _public_files(whole[0]) == before


def test_budget_is_named(tmp_path):
  result = tiny_run.train(tiny_run.spec(2, asked_steps=5), tmp_path)
  assert (result.steps, result.stopped) == (2, "budget")


def test_another_mechanism_is_refused_by_name(whole):
  with pytest.raises(training.RunError, match="config.z=1.0.*resumed with 0.5"):
    tiny_run.train(tiny_run.spec(STEPS, noise_multiplier=0.5), whole[0])


def test_guarantees_for_every_level_and_the_seed_is_confessed(whole):
  folder, result = whole
  found = json.loads((folder / "guarantee.json").read_text())
  assert list(found["guarantees"]) == list(tiny_run.LEVELS)
  for level, entry in found["guarantees"].items():
    assert entry["epsilon"] == result.guarantees[level].epsilon
    assert entry["assumptions"][0] == report.SEEDED


def test_every_line_tells_what_was_spent_so_far(whole):
  spec = tiny_run.spec(STEPS)
  for line in _lines(whole[0])[1::9]:
    expected = accounting.guarantee(
        spec.release,
        steps=line["step"], delta=spec.delta, level="participant",
    )
    assert line["epsilon"] == expected.epsilon


def test_the_statement_of_a_run_is_verified(whole):
  data = statement.loads((whole[0] / "guarantee.json").read_text())
  assert (data["steps"], data["planned_steps"]) == (STEPS, STEPS)
  assert data["fixed_seed"]
  assert accounting.verify(data).differences == ()


def _checkpoint(folder):
  return folder / "checkpoints" / str(STEPS)


def _item(folder, name):
  return _checkpoint(folder) / name / "metadata"  # Where Orbax puts JSON.


def test_the_ledger_lies_in_the_checkpoint(whole):
  spec = tiny_run.spec(STEPS)
  expected = accounting.Ledger().add(
      spec.release, STEPS
  )
  found = training.Checkpoints(whole[0], read_only=True).ledger(STEPS)
  assert found == expected.as_dict()


def _store(folder, ledger):
  """Puts another ledger in the checkpoint, with its digest."""
  digests = json.loads(_item(folder, "digest").read_text())
  if ledger is None:
    shutil.rmtree(_checkpoint(folder) / "ledger")
    del digests["ledger"]
  else:
    _item(folder, "ledger").write_text(json.dumps(ledger))
    digests["ledger"] = checkpoint.json_digest(ledger)
  _item(folder, "digest").write_text(json.dumps(digests))


def _of_steps(steps):
  return lambda data: data["entries"][0].update(steps=steps)


def _of_noise(z):
  return lambda data: data["entries"][0]["mechanism"].update(noise_multiplier=z)


@pytest.mark.parametrize(
    "change,match",
    [
        (_of_steps(29), "its ledger has 29 steps.*move this folder away"),
        (_of_noise(9.0), "entries.0.mechanism.noise_multiplier=9.0.*with 1.0"),
        (_of_noise("x"), "is not one of this version.*multiplier is 'x'"),
        (lambda data: data["entries"].clear(), "its ledger has 0 steps"),
        (None, "has no ledger.*earlier versions"),
    ],
)
def test_another_ledger_is_refused_and_nothing_is_rewritten(
    whole, tmp_path, change, match
):
  folder = tmp_path / "run"
  shutil.copytree(whole[0], folder)
  ledger = None
  if change is not None:
    ledger = json.loads(_item(folder, "ledger").read_text())
    change(ledger)
  _store(folder, ledger)
  before = _public_files(folder)
  with pytest.raises(training.RunError, match=match) as e:
    tiny_run.train(tiny_run.spec(STEPS + 1), folder)
  assert "\n" not in str(e.value)
  assert _public_files(folder) == before


def test_other_data_under_the_same_configuration_is_refused(whole):
  spec = tiny_run.spec(STEPS, train=tiny_run.dataset(participants=21))
  with pytest.raises(training.RunError, match="sizes.0=20 .*resumed with 21"):
    tiny_run.train(spec, whole[0])


def test_a_release_of_other_data_is_refused():
  spec = tiny_run.spec(STEPS)
  other = tiny_run.dataset(participants=21)
  with pytest.raises(training.RunError, match="be of another sampler"):
    dataclasses.replace(spec, train=other)


def test_the_key_is_in_its_file_and_in_no_other(tmp_path):
  tiny_run.train(tiny_run.spec(3, seed=None), tmp_path)
  key = keys.load(tmp_path)
  words = np.asarray(jax.random.key_data(key.jax_key()))
  data = words.astype(">u4").tobytes()
  # What the data hold can be guessed and tested by whoever has their digest.
  texts = [key.secret.hex(), data.hex(), *key.segments[0].parts.values()]
  forms = [
      key.secret,
      data,
      words.astype("<u4").tobytes(),
      *(text.encode() for text in texts),
      *(str(int(word)).encode() for word in words),
      str(int.from_bytes(data)).encode(),
  ]
  # A few bytes turn up by chance in compressed files.
  forms = [form for form in forms if len(form) >= 8]
  others = [p for p in tmp_path.rglob("*") if p.is_file()]
  others.remove(keys.path(tmp_path))
  assert len(others) > 10
  for path in others:
    content = path.read_bytes()
    assert not any(form in content for form in forms), path
  found = json.loads((tmp_path / "guarantee.json").read_text())
  sentences = found["guarantees"]["participant"]["assumptions"]
  assert report.SEEDED not in sentences


def test_two_secret_keys_give_two_runs(tmp_path):
  for name in ("a", "b"):
    tiny_run.train(tiny_run.spec(2, seed=None), tmp_path / name)
  first, second = (tiny_run.final_params(tmp_path / n)[0] for n in "ab")
  assert not _same(first, second)


def test_resuming_without_the_key_is_one_sentence(tmp_path):
  tiny_run.train(tiny_run.spec(2), tmp_path)
  keys.path(tmp_path).unlink()
  with pytest.raises(training.RunError, match="is missing: put the file back"):
    tiny_run.train(tiny_run.spec(4), tmp_path)
  assert not keys.path(tmp_path).exists()


def test_damaged_checkpoint_can_be_moved_away(whole, tmp_path):
  tiny_run.train(tiny_run.spec(STEPS), tmp_path)
  folder = tmp_path / "checkpoints" / str(STEPS)
  files = [p for p in folder.rglob("*") if p.is_file()]
  max(files, key=lambda p: p.stat().st_size).write_bytes(b"")
  with pytest.raises(training.RunError, match="move this folder away"):
    tiny_run.train(tiny_run.spec(STEPS), tmp_path)
  # The remedy that the sentence names.
  folder.rename(tmp_path / "damaged")
  assert tiny_run.train(tiny_run.spec(STEPS), tmp_path).steps == STEPS
  assert _same(
      tiny_run.final_params(whole[0])[0], tiny_run.final_params(tmp_path)[0]
  )
  assert _lines(tmp_path) == _lines(whole[0])


def test_diagnostics_are_private_and_only_on_request(whole, diagnosed):
  assert not (whole[0] / "private" / "diagnostics.jsonl").exists()
  lines = metrics.read(diagnosed / "private" / "diagnostics.jsonl")
  assert [line["step"] for line in lines] == [*range(1, 13)]
  assert all("private/loss" in line for line in lines)
  public = (diagnosed / metrics.FILE).read_text()
  board = b"".join(p.read_bytes() for p in diagnosed.glob("tensorboard/*"))
  assert "private" not in public and b"private" not in board
  assert b"update_norm" in board


def test_diagnostics_do_not_change_the_run(whole, diagnosed):
  checkpoints = training.Checkpoints(whole[0], read_only=True)
  start = tiny_run.learner().init(jax.random.key(0))
  expected, _ = checkpoints.restore(12, start)
  np.testing.assert_allclose(
      tiny_run.final_params(diagnosed)[0]["w"],
      expected["w"],
      rtol=1e-4,
      atol=1e-6,
  )


@pytest.mark.parametrize("name", ["learning_curve.png", "epsilon_curve.png"])
def test_pictures_show_something(whole, name):
  pixels = image_lib.imread(whole[0] / name)[..., :3]
  assert min(pixels.shape[:2]) > 300
  coloured = (pixels.max(-1) - pixels.min(-1) > 0.3).sum()
  assert coloured > 200, "no line was drawn"


def test_without_noise_there_is_no_guarantee(tmp_path):
  result = training.train(tiny_run.spec(2, noise_multiplier=0.0), tmp_path)
  assert result.guarantees["participant"].epsilon == float("inf")
  found = json.loads((tmp_path / "guarantee.json").read_text())
  assert found["guarantees"]["participant"]["epsilon"] == "inf"
  lines = metrics.read(tmp_path / metrics.FILE)
  assert {line["epsilon"] for line in lines} == {"inf"}
  assert (tmp_path / "epsilon_curve.png").exists()


def test_a_disk_that_fills_up_is_one_sentence(tmp_path, monkeypatch):
  def full(self, values):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(metrics.Lines, "add", full)
  with pytest.raises(training.RunError, match="No space left.*make room"):
    tiny_run.train(tiny_run.spec(2), tmp_path)


def test_a_time_limit_ends_a_run_after_a_step(whole, tmp_path):
  limit = training.TimeLimit(1e-9)
  result = training.train(tiny_run.spec(STEPS), tmp_path, limit=limit)
  assert (result.steps, result.stopped) == (0, "time limit")
  assert tiny_run.train(tiny_run.spec(STEPS), tmp_path).steps == STEPS
  assert _lines(tmp_path) == _lines(whole[0])


@pytest.mark.parametrize("name", ["private/key", "config.json"])
def test_a_folder_that_is_emptied_does_not_end_as_done(
    tmp_path, monkeypatch, name
):
  folder = tmp_path / "run"
  add = metrics.Lines.add

  def vanish(self, values):
    add(self, values)
    if values["step"] == 2:
      (folder / name).unlink()

  monkeypatch.setattr(metrics.Lines, "add", vanish)
  with pytest.raises(training.RunError, match=f"{name} was deleted while"):
    tiny_run.train(tiny_run.spec(8), folder)


def test_a_folder_that_is_gone_is_one_sentence(tmp_path, monkeypatch):
  folder = tmp_path / "run"
  add = metrics.Lines.add

  def vanish(self, values):
    add(self, values)
    if values["step"] == 2:
      shutil.rmtree(folder)

  monkeypatch.setattr(metrics.Lines, "add", vanish)
  with pytest.raises(training.RunError, match="is gone.*mount or restore it"):
    tiny_run.train(tiny_run.spec(8), folder)
  assert not folder.exists()


def test_no_memory_for_a_step_names_half_of_the_tasks(tmp_path, monkeypatch):
  def exhausted(self, values):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

  monkeypatch.setattr(metrics.Lines, "add", exhausted)
  spec = dataclasses.replace(
      tiny_run.spec(2), compute=private.Compute(microbatch_size=6)
  )
  with pytest.raises(training.RunError, match="microbatch_size=3;"):
    tiny_run.train(spec, tmp_path)


def test_impossible_numbers_are_refused():
  with pytest.raises(training.RunError, match="evaluate_every=0"):
    tiny_run.spec(2, evaluate_every=0)
  with pytest.raises(training.RunError, match="steps=0"):
    tiny_run.spec(0)


@pytest.mark.slow  # Three runs, each of which compiles.
def test_a_run_whose_model_is_an_average_goes_on_from_its_iterate(tmp_path):
  averaged = state_lib.averaged(optax.adam(0.01), 0.9)

  def fail(line):
    if line["step"] == 6:
      raise OSError("stop here")

  def spec():
    return tiny_run.spec(8, optimizer=averaged, validation=None)

  tiny_run.train(spec(), tmp_path / "whole")
  with pytest.raises(OSError, match="stop here"):
    tiny_run.train(spec(), tmp_path / "parts", callbacks=[fail])
  tiny_run.train(spec(), tmp_path / "parts")
  learner = tiny_run.learner()
  state = private.init(
      jax.random.key(0), learner, averaged, spec().release.mechanism
  )
  whole, parts = (
      checkpoint.Checkpoints(tmp_path / name, read_only=True).restore(
          8, state.params, resume.beside_params(state)
      )
      for name in ("whole", "parts")
  )
  assert _same(whole, parts)
  assert _lines(tmp_path / "whole") == _lines(tmp_path / "parts")
  # What is saved as the model is the average, and not the last iterate.
  params, rest = whole
  assert not _same(params, rest["iterate"])
