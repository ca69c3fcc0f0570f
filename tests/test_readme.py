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
