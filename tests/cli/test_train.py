"""Training and evaluation through their command lines, at the smallest size."""

import json
import pathlib
import random
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from episodic_dp import training
from episodic_dp.config import build

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = (
    "--config=glyphs:"
    "participants=64,rate=0.03,size=16,width=2,steps=2"
)
SMALL = (
    "--config.data.options.validation_participants=10",
    "--config.data.options.test_participants=10",
    "--config.evaluation.validation_tasks=8",
    "--config.evaluation.test_tasks=24",
)


def _run(command, *arguments):
  return subprocess.run(
      [sys.executable, "-m", "episodic_dp", command, *arguments],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=400,
  )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """The folder and the output of a finished run."""
  folder = tmp_path_factory.mktemp("run")
  done = _run("train", CONFIG, *SMALL, f"--workdir={folder}")
  assert done.returncode == 0, done.stderr
  return folder, done


def test_training_prints_guarantees_and_leaves_its_files(trained):
  folder, done = trained
  assert "done: 2 steps" in done.stdout
  for level in ("participant", "glyph", "drawing"):
    assert any(
        line.split()[:1] == [level] and "epsilon" in line
        for line in done.stdout.splitlines()
    ), done.stdout
  assert (folder / "checkpoints" / "2").is_dir()
  assert (folder / "learning_curve.png").exists()
  assert (folder / "epsilon_curve.png").exists()
  lines = (folder / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_evaluation_measures_the_run(trained):
  folder, _ = trained
  done = _run("evaluate", f"--workdir={folder}")
  assert done.returncode == 0, done.stderr
  found = json.loads((folder / "evaluation.json").read_text())
  assert found["untrained"]["steps"] == [0]
  assert found["untrained"]["accuracy"] != found["single"]["accuracy"]
  for name in ("single", "ensemble"):
    accuracy = found[name]["accuracy"]
    assert found[name]["steps"] == [2] and accuracy["tasks"] == 24
    # One member: the ensemble is the model.
    assert accuracy == found["single"]["accuracy"]
    half = 50 * (accuracy["high"] - accuracy["low"])
    assert f"{100 * accuracy['mean']:.1f} % ± {half:.1f}" in done.stdout


def test_another_sampler_under_the_same_key_is_refused_by_name(trained):
  folder, _ = trained
  before = (folder / "config.json").read_bytes()
  other = CONFIG.replace("0.03", "0.04")
  done = _run("train", other, *SMALL, f"--workdir={folder}")
  assert done.returncode == 1
  assert "config.plan.stages" in done.stderr
  assert "Traceback" not in done.stderr
  assert (folder / "config.json").read_bytes() == before


def _final(folder):
  """The parameters and the step of the last checkpoint."""
  config = build.read_config(folder)
  learner = build.make_learner(config, (16, 16, 1))
  checkpoints = training.Checkpoints(folder, read_only=True)
  step = checkpoints.latest()
  like = learner.init(jax.random.key(0))
  return checkpoints.restore(step, like)[0], step


@pytest.mark.slow
def test_killed_convolutions_end_with_the_same_bits(tmp_path):
  options = (
      CONFIG.replace("steps=2", "steps=300"),
      *SMALL,
      "--config.private_seed=3",
      "--config.checkpoint_every=20",
  )
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  assert _run("train", *options, f"--workdir={whole}").returncode == 0
  command = [sys.executable, "-m", "episodic_dp", "train", *options]
  process = subprocess.Popen(
      [*command, f"--workdir={killed}"], cwd=ROOT, stderr=subprocess.DEVNULL
  )
  moment, path = random.randrange(30, 250), killed / "metrics.jsonl"
  while not path.exists() or path.read_bytes().count(b"\n") < moment:
    assert process.poll() is None, "it ended before the kill"
    time.sleep(0.005)
  process.kill()
  process.wait()
  resumed = _run("train", *options, f"--workdir={killed}")
  assert resumed.returncode == 0, resumed.stderr
  assert "resumed from step" in resumed.stderr
  (expected, last), (found, step) = _final(whole), _final(killed)
  assert step == last == 300
  same = jax.tree.map(np.array_equal, found, expected)
  assert jax.tree.all(same), f"killed after line {moment}"
