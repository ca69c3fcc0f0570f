"""The README's example runs as it stands; its numbers are a stored run's."""

import json
import math
import pathlib
import re

import pytest

from episodic_dp.output import tables
from experiments import results_pages
from experiments.targets import glyphs

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_what_the_main_job_prints_is_the_stored_run():
  text = README.read_text(encoding="utf-8")
  stored = (results_pages.FOLDER / "glyphs.json").read_text(encoding="utf-8")
  outcomes = json.loads(stored)["runs"]
  assert tables.text(*glyphs.table(outcomes)) in text
  assert glyphs.finding(outcomes) in " ".join(text.split())


def test_what_it_says_of_table_3_is_what_was_run():
  said = " ".join(README.read_text(encoding="utf-8").split())
  stored = (results_pages.FOLDER / "table3.json").read_text(encoding="utf-8")
  ours = [
      row
      for row in json.loads(stored)["rows"]
      if row["private"] and row["clipping"] == "fixed"
  ]
  assert len(ours) == 6 and max(row["epsilon"] for row in ours) < 0.5
  points = [round(row["accuracy"] - row["published"], 1) for row in ours]
  above = sorted(p for p in points if p > 0)
  equal, below = points.count(0), [p for p in points if p < 0]
  number = ("none", "one", "two", "three", "four", "five", "six")
  assert (
      f"{number[len(above)]} of the six private cells of DP-MAML's Table 3 are"
      f" above the published accuracy, by {above[0]} to {above[-1]} points"
  ) in said
  assert equal == ("equal to it" in said)
  assert [f"{-p} below" in said for p in below] == [True] * len(below)
  (keys,) = {row["keys"] for row in ours}
  assert f"(means of {number[keys]} keys)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        "models.mlp(5, (8,), (28, 28, 1))",
        "models.conv4(way=5, width=8)",
    ],
)
def test_example_trains_and_reports_every_level(capsys, network):
  blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
  assert len(blocks) == 1
  # The same names and calls, with fewer participants and steps.
  code = blocks[0].replace(
      'data.load("glyphs")',
      'data.load("glyphs", participants=60, validation_participants=5,'
      " test_participants=5)",
  )
  assert code != blocks[0] and "models.conv4(way=5, width=8)" in code
  code = code.replace("models.conv4(way=5, width=8)", network)
  scope: dict = {}
  exec(compile(code.replace("range(20)", "range(2)"), "README", "exec"), scope)
  assert int(scope["state"].step) == 2
  assert math.isfinite(float(scope["metrics"]["update_norm"]))
  printed = capsys.readouterr().out
  for level in ("participant", "glyph", "drawing"):
    assert f"{level}: epsilon" in printed
