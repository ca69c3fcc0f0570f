"""Exit status and last line of ten commands, recorded from version 1.0.

Record them again with `python -m tests.golden.test_commands`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import pytest

FILE = pathlib.Path(__file__).with_name("commands.json")
COMMANDS = (
    "--help",
    "account --config=glyphs",
    "account --config=glyphs --nope=1",
    "account --config=glyphs --config.plan.stages=Poisson(2)",
    "calibrate --config=glyphs --epsilon=2 --level=participant",
    "verify missing.json",
    "compare missing",
    "evaluate --workdir=missing",
    "train --config=glyphs",
    "train --config=sinusoid --workdir=w --config.steps=-1",
)


def outcome(command, folder):
  """Return [status, last line of both streams] of a command in a folder."""
  done = subprocess.run(
      [sys.executable, "-m", "episodic_dp", *command.split()],
      cwd=folder, capture_output=True, text=True,
  )
  lines = (done.stdout + done.stderr).strip().splitlines()
  return [done.returncode, lines[-1]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_as_recorded(command, tmp_path):
  assert outcome(command, tmp_path) == json.loads(FILE.read_text())[command]


if __name__ == "__main__":
  with tempfile.TemporaryDirectory() as folder:
    FILE.write_text(json.dumps(
        {command: outcome(command, folder) for command in COMMANDS}, indent=1
    ) + "\n")
