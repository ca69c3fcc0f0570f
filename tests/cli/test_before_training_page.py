"""docs/before_training.md: its commands print what it shows."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "before_training.md"


def shown():
  """(command, what the page shows of its output), in order."""
  return re.findall(
      r"```sh\n.venv/bin/episodic-dp ([^`]*)```\n\n```\n([^`]*)```",
      PAGE.read_text(),
  )  # fmt: skip


@pytest.mark.parametrize("command, lines", shown())
def test_commands_print_what_the_page_shows(command, lines):
  printed = subprocess.run(
      [sys.executable, "-m", "episodic_dp", *shlex.split(command)],
      capture_output=True, text=True, check=True,
  ).stdout.splitlines()  # fmt: skip
  assert [x for x in lines.splitlines() if x not in printed] == []


def test_all_are_tried():
  assert len(shown()) == 2


@pytest.mark.slow  # Accounts for records of many units.
def test_it_says_what_other_samplers_cost(call):
  text = PAGE.read_text()
  rows = {}
  for stages in re.findall(r"'(--config.plan.stages=.*?)'", text) + [""]:
    done = call("account", "--config=omniglot", *filter(None, [stages]))
    rows[stages[:8]] = done.stdout
  assert "has ε = 0.4984 and its class 1.770e+9" in text
  assert "0.4984 " in rows[""] and " 1.770e+9 " in rows[""]
  assert "has 6.111\nfor a participant" in text
  assert re.search(r"^participant .* 6\.111 ", rows["--config"], re.MULTILINE)
