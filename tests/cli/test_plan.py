"""`episodic-dp plan`: one sentence for what is wrong, and a command that holds.

What it computes: tests/analysis/test_propose.py.
"""

import json
import shlex

import pytest

GLYPHS = "--config=glyphs"


@pytest.mark.slow  # Compiles a network.
def test_the_command_costs_what_is_said(call):
  done = call(
      "plan", "--config=glyphs:width=4,size=16,participants=4000",
      "--config.learner.name=protonet", "--config.checkpoint_every=5",
      "--epsilon=1", "--config.delta=1e-6", "--level=participant",
      "--format=json",
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  assert all(row["shares"][0] > 0 for row in found["rows"])
  assert all(row["epsilon"] <= 1 for row in found["rows"])
  (chosen,) = (row for row in found["rows"] if row["chosen"])
  program, train, *flags = shlex.split(found["command"])
  assert (program, train) == ("episodic-dp", "train")
  assert flags[0] == "--config=glyphs:width=4,size=16,participants=4000"
  assert "--config.checkpoint_every=5" in flags
  again = call("account", *flags, "--format=json")
  statement = json.loads(again.stdout)
  assert statement["delta"] == 1e-6
  spent = statement["guarantees"]["participant"]["epsilon"]
  assert spent == pytest.approx(chosen["epsilon"]) and spent <= 1


@pytest.mark.slow  # Compiles a network.
def test_the_validation_split_as_proxy(call):
  done = call("plan", "--config=sinusoid", "--epsilon=2")
  assert done.returncode == 0, done.stderr
  assert "256 of the validation" in done.stdout and "chosen" in done.stdout
  command = done.stdout.splitlines()[-1]
  assert "--workdir=DIR" in command and "--data_dir" not in command
