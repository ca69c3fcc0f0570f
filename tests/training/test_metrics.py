"""metrics.jsonl after kills."""

import json

from episodic_dp.training import metrics


def test_drops_steps_after_the_checkpoint_and_half_a_line(tmp_path):
  path = tmp_path / "metrics.jsonl"
  whole = [{"step": s, "x": s / 2} for s in range(1, 6)]
  text = "".join(json.dumps(line) + "\n" for line in whole)
  path.write_text(text + '{"step": 6, "x"')
  assert metrics.read(path) == whole
  lines = metrics.Lines(path, keep=3)
  lines.add({"step": 4, "x": 9.0})
  # Flushed: readable before the file is closed.
  assert metrics.read(path) == whole[:3] + [{"step": 4, "x": 9.0}]
  lines.close()


def test_infinity_is_strict_json(tmp_path):
  lines = metrics.Lines(tmp_path / "m", keep=0)
  lines.add({"step": 1, "epsilon": float("inf"), "x": float("nan")})

  def refuse(name):
    raise AssertionError(name)

  text = (tmp_path / "m").read_text()
  found = json.loads(text, parse_constant=refuse)
  assert found == {"step": 1, "epsilon": "inf", "x": "nan"}


def test_no_file_has_no_lines(tmp_path):
  assert metrics.read(tmp_path / "absent") == []
