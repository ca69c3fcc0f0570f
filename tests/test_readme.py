"""The example in the README trains and reports every level."""

import math
import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_example_trains_and_reports_every_level(capsys):
  (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
  for old, new in (
      ('"glyphs"', '"glyphs", participants=60, validation_participants=5,'
                   ' test_participants=5'),
      ("models.conv4(way=5, width=8)", "models.mlp(5, (8,), (28, 28, 1))"),
      ("range(20)", "range(2)"),
  ):
    assert old in code
    code = code.replace(old, new)
  scope: dict = {}
  exec(compile(code, "README", "exec"), scope)
  assert int(scope["state"].step) == 2
  assert math.isfinite(float(scope["metrics"]["update_norm"]))
  printed = capsys.readouterr().out
  for level in ("participant", "glyph", "drawing"):
    assert f"{level}: epsilon" in printed
