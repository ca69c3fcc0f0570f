"""The command that attacks trained runs: what it refuses and writes."""


import pytest

from episodic_dp.training import workdir
from tests import processes
from tests.cli import tiny_runs
from tests.stored import json_of

READ = "--read_private_training_data"


@pytest.fixture
def run_folder(tmp_path):
  tiny_runs.save(tiny_runs.maml_config("private=1"), tmp_path / "run", 2)
  return tmp_path / "run"


def _run(*arguments):
  return processes.python("-m", "episodic_dp", "membership", *arguments)


@pytest.mark.slow  # The run that it is asked about is trained first.
def test_private_data_are_not_read_unasked(run_folder):
  done = _run(f"--workdir={run_folder}")
  assert done.returncode == 1
  assert "give --read_private_training_data" in done.stderr
  assert done.stderr.count("\n") == 1  # One sentence, and nothing before it.
  assert not (run_folder / workdir.PRIVATE).exists()


@pytest.mark.slow
def test_the_command_writes_into_the_private_folder(run_folder):
  done = _run(f"--workdir={run_folder}", READ, "--participants=4", "--tasks=1")
  assert done.returncode == 0, done.stderr
  made = run_folder / workdir.PRIVATE / "membership.json"
  assert "without protection" in done.stdout
  assert json_of(made)["command"].endswith(
      "--workdir=DIR --participants=4 --tasks=1"
  )
  assert made.parent.stat().st_mode & 0o777 == 0o700
