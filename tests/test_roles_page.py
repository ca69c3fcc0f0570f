"""docs/roles.md: its code runs, and prints what it shows."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "roles.md"


@pytest.mark.slow  # Compiles a participant's gradient.
def test_its_code_runs_and_prints_what_it_shows(capsys):
  pairs = re.findall(
      r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL
  )
  assert len(pairs) == 2
  scope: dict = {"__name__": "page"}
  for code, shown in pairs:
    exec(compile(code, "roles", "exec"), scope)
    assert capsys.readouterr().out == shown
