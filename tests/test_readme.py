"""The examples of the README and the quick start train and report epsilon."""

import math
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SMALL = ("validation_participants=5", "test_participants=5")


def executed(document, holding, changes):
  """Run the example that holds a text, made smaller; return its names."""
  text = (ROOT / document).read_text("utf-8")
  blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  (code,) = (block for block in blocks if holding in block)
  for old, new in changes.items():
    assert old in code
    code = code.replace(old, new)
  scope: dict = {}
  exec(compile(code, document, "exec"), scope)
  return scope


@pytest.mark.filterwarnings("ignore::UserWarning")  # It is far too small.
@pytest.mark.slow  # Compiles a network for images.
def test_arrays_become_a_private_model(capsys, tmp_path):
  scope = executed("README.md", "FewShotClassifier", {
      "participants=500": ", ".join(("participants=40", *SMALL)),
      "epsilon=2.0, way=5": "epsilon=20.0, way=2, steps=2, start='none'",
      "runs/ten_lines": str(tmp_path / "model"),
  })
  assert 0 < scope["model"].guarantee.epsilon <= 20
  assert "person: epsilon" in capsys.readouterr().out
  assert (tmp_path / "model" / "privacy_statement.json").exists()


def test_single_steps_train_and_every_level_is_reported(capsys):
  scope = executed("docs/quick_start.md", "make_meta_step", {
      '"glyphs"': ", ".join(('"glyphs"', "participants=60", *SMALL)),
      "models.conv4(way=5, width=8)": "models.mlp(5, (8,), (28, 28, 1))",
      "range(20)": "range(2)",
  })
  assert int(scope["state"].step) == 2
  assert math.isfinite(float(scope["metrics"]["update_norm"]))
  printed = capsys.readouterr().out
  assert re.fullmatch(r"[\d.]+ % ± [\d.]+", printed.splitlines()[-1])
  for level in ("participant", "glyph", "drawing"):
    assert f"{level}: epsilon" in printed
