"""docs/beyond_one_record.md: its study and its group cost what it says."""

import contextlib
import io
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "beyond_one_record.md"


def test_its_study_and_its_group_cost_what_it_says(call, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  text = PAGE.read_text()
  (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  run = tmp_path / "runs" / "first"
  run.mkdir(parents=True)
  done = call(
      "account", "--config=glyphs", "--group=5",
      f"--statement={run / 'guarantee.json'}",
  )  # fmt: skip
  (group,) = re.findall(r"ε = ([\d.]+) for up to 5 participants", text)
  assert f"participant: epsilon {group} at delta 1e-05" in done.stdout
  assert done.stdout.count(": no guarantee (no guarantee for 5 units") == 2
  with contextlib.redirect_stdout(io.StringIO()) as printed:
    exec(compile(code, "beyond_one_record", "exec"), {})
  (together,) = re.findall(r"this prints ([\d.]+)\. ", text)
  (found,) = re.findall(r"participant: epsilon ([\d.]+) at", printed.getvalue())
  # Bounds that another SciPy's search finds are as valid, and differ a little.
  assert float(found) == pytest.approx(float(together), rel=0.01)
  assert (tmp_path / "study.json").exists()
