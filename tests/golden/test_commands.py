"""Exit status and last line of ten commands, recorded from version 1.0.

Record them again with `python -m tests.golden.test_commands`.
"""

import json
import pathlib
import subprocess
import sys

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


def process(*arguments):
  """Run a command as users do."""
  return subprocess.run(
      [sys.executable, "-m", "episodic_dp", *arguments],
      capture_output=True, text=True,
  )


def outcome(command, run):
  """Return [status, last line of the result, or of the error] of a command."""
  done = run(*command.split())
  text = done.stderr if done.returncode else done.stdout
  return [done.returncode, text.strip().splitlines()[-1]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_as_recorded(command, tmp_path, monkeypatch, call):
  monkeypatch.chdir(tmp_path)
  run = process if command.startswith("verify") else call  # Others here.
  assert outcome(command, run) == json.loads(FILE.read_text())[command]


if __name__ == "__main__":
  found = {command: outcome(command, process) for command in COMMANDS}
  FILE.write_text(json.dumps(found, indent=1) + "\n")
