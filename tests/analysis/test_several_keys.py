"""Runs that differ in their keys: one after another, and what all cost."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import several_keys
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import sinusoid
from episodic_dp.output import files

RELEASE = plan.Release(
    plan.Hierarchy.regular((500, 20), levels=("participant", "point")),
    plan.SamplingPlan(
        (plan.Poisson(0.05), plan.FixedSize(20)),
        plan.Episode(way=1, shot=10, query=10, form="unit"),
    ),
    plan.Mechanism(clip_unit="participant", noise_multiplier=2.0),
)
STEPS = 20


def _finished(folder, seed, accuracy, release=RELEASE):
  """A folder as a run leaves it."""
  files.write_json(folder / "config.json", {"steps": STEPS, "seed": seed})
  line = {
      "step": STEPS, "validation_accuracy": accuracy,
      "validation_low": accuracy - 0.1, "validation_high": accuracy + 0.1,
  }
  files.write_text(folder / "metrics.jsonl", json.dumps(line) + "\n")
  ledger = accounting.Ledger().add(release, STEPS, continued=False)
  files.write_json(
      folder / "guarantee.json",
      accounting.run_statement(ledger, delta=1e-5, planned_steps=STEPS),
  )


def _config(**changes):
  config = sinusoid.get_config(
      "participants=64,rate=0.1,steps=2,width=4,inner_steps=1"
  )
  config.data.options.validation_participants = 10
  config.data.options.test_participants = 10
  config.evaluation.validation_tasks = config.evaluation.test_tasks = 8
  config.update(changes)
  return RunConfig.parse(config)


def test_one_run_and_all_together_have_an_epsilon_of_their_own(tmp_path):
  places = several_keys.folders(str(tmp_path), 3)
  assert [place.rpartition("/")[2] for place in places] == [
      "key=0", "key=1", "key=2"
  ]
  for seed, accuracy in enumerate((0.5, 0.6, 0.7)):
    _finished(tmp_path / f"key={seed}", seed, accuracy)
  text = several_keys.text(places)
  assert "mean of 3" in text and "60.0 % ± 24.8" in text
  three = accounting.Ledger().add(RELEASE, 3 * STEPS, continued=False)
  single, *_, together = [
      [float(word) for word in line.split()[1:]]
      for line in text.splitlines()
      if line.startswith(("together  ", places[0])) and "%" not in line
  ]
  for level, first, second in zip(RELEASE.levels, single, together):
    one = accounting.guarantee(RELEASE, steps=STEPS, delta=1e-5, level=level)
    assert first == pytest.approx(one.epsilon, rel=1e-3)
    # Never below what as many steps of one run cost.
    assert second >= three.epsilon(level, 1e-5) * (1 - 1e-9) > first


def test_a_run_does_not_begin_among_those_of_several_keys(tmp_path):
  several_keys.check_alone(str(tmp_path))
  for key in range(2):
    _finished(tmp_path / f"key={key}", key, 0.5)
  with pytest.raises(training.RunError, match="holds folders of runs"):
    several_keys.check_alone(str(tmp_path))


def test_a_run_that_is_stopped_is_the_last_and_every_folder_was_opened(
    tmp_path, monkeypatch
):
  seeds = []

  def stopped(spec, workdir, resume, deadline):
    seeds.append(spec.seed)
    return training.Result(
        steps=1, planned=1, stopped="done" if len(seeds) < 2 else "SIGTERM",
        guarantees={}, seconds=1.0, score=None,
    )

  monkeypatch.setattr(training, "train", stopped)
  places = several_keys.folders(str(tmp_path), 3)
  result = several_keys.train(_config(), places)
  assert result.stopped == "SIGTERM" and seeds == [0, 1]
  # So that --resume=must goes on, whichever run the first attempt came to.
  several_keys.train(_config(), places, resume="must")
  with pytest.raises(training.RunError, match="no run was ever begun"):
    several_keys.train(
        _config(), several_keys.folders(str(tmp_path / "x"), 2), resume="must"
    )


@pytest.mark.slow  # Two runs, which compile.
def test_runs_differ_in_keys_and_start_and_go_on(tmp_path):
  places = several_keys.folders(str(tmp_path), 2)
  config = _config(private_seed=None)
  assert several_keys.train(config, places).stopped == "done"
  secrets = {
      (tmp_path / f"key={k}" / "private" / "key").read_text() for k in (0, 1)
  }
  assert len(secrets) == 2
  starts = [
      (tmp_path / f"key={k}" / "metrics.jsonl").read_text().splitlines()[0]
      for k in (0, 1)
  ]
  assert starts[0] != starts[1]
  before = (tmp_path / "key=1" / "metrics.jsonl").read_bytes()
  assert several_keys.train(config, places).score is not None
  assert (tmp_path / "key=1" / "metrics.jsonl").read_bytes() == before
