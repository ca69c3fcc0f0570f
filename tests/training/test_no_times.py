"""When steps were taken is in no file: it tells how many tasks they drew."""

import json
import re
import sys
import time

import pytest

from episodic_dp import training
from episodic_dp.training import process_times
from episodic_dp.training import run_log
from tests.training import tiny_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run")
  tiny_run.train(tiny_run.spec(6), folder)
  return folder


def _near_now(digits):
  """Whether a number is a time of today, in s, ms, us or ns since 1970."""
  seconds = int(digits) / 10 ** (len(digits) - 10)
  return abs(seconds - time.time()) < 86400


def test_nothing_that_is_written_holds_a_time(finished):
  texts = [
      p for p in finished.rglob("*")
      if p.is_file() and p.parent.name != "d" and p.name != process_times.FILE
  ]  # fmt: skip
  assert len(texts) > 20
  for path in texts:
    content = path.read_bytes().decode("latin-1")
    numbers = re.findall(r"(?<!\d)\d{10}(?:\d{3}){0,3}(?!\d)", content)
    assert not [n for n in numbers if _near_now(n)], path
    assert not re.search(r"\d\d:\d\d:\d\d", content), path
    assert "seconds" not in content, path


def test_the_time_of_all_steps_together_is_for_the_owner(finished):
  path = finished / "private" / process_times.FILE
  assert path.stat().st_mode & 0o777 == 0o600
  (line,) = map(json.loads, path.read_text().splitlines())
  assert (line["from_step"], line["to_step"]) == (0, 6)
  assert line["seconds"] >= 0 and set(line) == {
      "from_step", "to_step", "seconds"
  }
  assert process_times.total(finished) == line["seconds"]


def test_orbax_keeps_no_time_either(finished):
  for path in finished.glob("checkpoints/*/_CHECKPOINT_METADATA"):
    values = json.loads(path.read_text())
    times = [v for k, v in values.items() if "timestamp" in k]
    assert times == [0, 0]


def test_times_that_a_kill_left_are_removed(finished):
  (path, *_) = finished.glob("checkpoints/*/_CHECKPOINT_METADATA")
  values = json.loads(path.read_text())
  whole = path.read_text()
  values["commit_timestamp_nsecs"] = time.time_ns()
  path.write_text(json.dumps(values))
  training.Checkpoints(finished).close()
  assert path.read_text() == whole


def test_lines_of_a_log_have_no_time(monkeypatch, capsys):
  """They come after numbers of steps, at most a hundred, and validations."""
  monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
  with run_log.ProgressBar(done=0, steps=300) as bar:
    for step in range(1, 7):
      bar.show(step, epsilon=0.50001, score="", validated=step == 4)
  assert capsys.readouterr().err == "".join(
      f"step {step} of 300: epsilon≤0.5001\n" for step in (3, 4, 6)
  )
