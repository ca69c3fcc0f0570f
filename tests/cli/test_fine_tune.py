"""The command that compares initialisations."""

import pathlib
import subprocess
import sys

import pytest

from tests.cli import tiny_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_command_prints_a_table(tmp_path):
  runs = [str(tmp_path / "pre_training"), str(tmp_path / "maml")]
  tiny_runs.save(tiny_runs.supervised_config(), tmp_path / "pre_training", 4)
  tiny_runs.save(tiny_runs.maml_config("private=0"), tmp_path / "maml", 2)
  done = subprocess.run(
      [
          sys.executable, "-m", "episodic_dp", "fine-tune",
          f"--workdir={','.join(runs)}", f"--out={tmp_path}", "--shots=1",
          "--steps=2",
      ],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=200,
  )
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert lines[0].split() == ["initialisation", "learner", "1", "shot"]
  assert [line.split()[0] for line in lines[2:5]] == [
      "random", "pre_training", "maml"
  ]
  assert (tmp_path / "fine_tuning.json").exists()
