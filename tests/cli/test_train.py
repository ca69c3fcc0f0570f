"""Training and evaluation through their command lines, at the smallest size."""

import json

import pytest

from tests import processes

# A perceptron, which compiles in seconds.
CONFIG = (
    "--config=sinusoid:participants=64,rate=0.1,steps=2,width=4,inner_steps=1"
)
SMALL = (
    "--config.data.options.validation_participants=10",
    "--config.data.options.test_participants=10",
    "--config.evaluation.validation_tasks=8",
    "--config.evaluation.test_tasks=24",
)


def _run(command, *arguments):
  return processes.python(
      "-m", "episodic_dp", command, *arguments, **processes.QUICK
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
  assert "done after step 2" in done.stdout
  assert "; untrained " in done.stdout
  assert done.stdout.endswith(f"  results: {folder}\n")
  for level in ("participant", "point"):
    assert any(
        line.split()[:1] == [level] and "epsilon" in line
        for line in done.stdout.splitlines()
    ), done.stdout
  # What takes long says so before it begins, and every step when it ends.
  for line in ("reading the data", "compiling the step", "step 1 of 2: "):
    assert line in done.stderr
  assert ": epsilon≤" in done.stderr and " of one participant" in done.stderr
  assert (folder / "checkpoints" / "2.npz").exists()
  assert {"learning_curve.png", "epsilon_curve.png"} <= {
      path.name for path in folder.iterdir()
  }
  lines = (folder / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


def test_evaluation_measures_the_run(trained, call):
  folder, _ = trained
  done = call("evaluate", f"--workdir={folder}")
  assert done.returncode == 0, done.stderr
  found = json.loads((folder / "evaluation.json").read_text())
  assert found["untrained"]["steps"] == [0]
  assert found["untrained"] != found["single"]
  for name in ("single", "ensemble"):
    error = found[name]["squared_error"]
    assert error["tasks"] == 24
    half = (error["high"] - error["low"]) / 2
    assert f"{error['mean']:.3f} ± {half:.3f}" in done.stdout
  assert found["single"]["steps"] == [2]
  assert "evaluating on 24 test tasks: last checkpoint" in done.stderr


def test_another_sampler_under_the_same_key_is_refused_by_name(trained, call):
  folder, _ = trained
  before = (folder / "config.json").read_bytes()
  other = CONFIG.replace("0.1", "0.2")
  done = call("train", other, *SMALL, f"--workdir={folder}")
  assert done.returncode == 1
  assert "config.plan.stages" in done.stderr
  assert (folder / "config.json").read_bytes() == before
