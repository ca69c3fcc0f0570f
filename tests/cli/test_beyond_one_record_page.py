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
  # What a run writes after its last step costs as much as what account writes.
  for name in re.findall(r"train --config=glyphs --workdir=(\S+)", text):
    done = call(
        "account", "--config=glyphs", "--group=5",
        f"--statement={name}/guarantee.json",
    )  # fmt: skip
  (group,) = re.findall(r"ε = ([\d.]+) for up to 5 participants", text)
  assert f"participant: epsilon {group} at delta 1e-05" in done.stdout
  assert done.stdout.count(": no guarantee (no guarantee for 5 units") == 2
  ((one, both),) = re.findall(
      r"([\d.]+) for a participant, and of both\ntogether, ([\d.]+)\.", text
  )
  runs, study = re.findall(r"account (--ledger=\S+)\n", text)
  done = call("account", runs)
  assert f"runs/second        {one}" in done.stdout
  assert f"participant: epsilon {both} at" in done.stdout
  with contextlib.redirect_stdout(io.StringIO()) as printed:
    exec(compile(code, "beyond_one_record", "exec"), {})
  (together,) = re.findall(r"This prints ([\d.]+): ", text)
  (found,) = re.findall(r"participant: epsilon ([\d.]+) at", printed.getvalue())
  # Bounds that another SciPy's search finds are as valid, and differ a little.
  assert float(found) == pytest.approx(float(together), rel=0.01)
  (whole,) = re.findall(r"all of it costs a participant ([\d.]+):", text)
  (found,) = re.findall(
      r"participant: epsilon ([\d.]+) at", call("account", study).stdout
  )
  assert float(found) == pytest.approx(float(whole), rel=0.01)
