"""live.html: what it shows, when it stops asking for itself, what it lacks."""

import re
from xml.etree import ElementTree

import pytest

from episodic_dp.output import files
from episodic_dp.training import live
from episodic_dp.training import metrics
from tests.training import tiny_run

STEPS = 6
_REFRESH = 'http-equiv="refresh"'


def _page(folder, lines=(), **options):
  found = dict(level="participant", epsilon=1.25, caveat="") | options
  return live.Page(folder, lines, tiny_run.spec(STEPS), **found)


def _text(folder):
  return (folder / live.FILE).read_text(encoding="utf-8")


def _line(step, accuracy=0.5):
  return {
      "step": step, "epsilon": 0.125 * step, "validation_accuracy": accuracy,
      "validation_low": accuracy - 0.1, "validation_high": accuracy + 0.1,
  }  # fmt: skip


def test_a_running_page_asks_for_itself_and_a_last_one_does_not(tmp_path):
  page = _page(tmp_path, [_line(0)])
  page.write(0)
  assert _REFRESH in _text(tmp_path) and "<script>" in _text(tmp_path)
  for stopped, said in {
      "done": "done: 6 steps",
      "SIGTERM": "stopped by SIGTERM after step 6 of 6",
      "SIGINT": "stopped by Ctrl-C",
  }.items():
    page.end(STEPS, stopped)
    assert said in _text(tmp_path)
    assert _REFRESH not in _text(tmp_path)
    assert "<script>" not in _text(tmp_path)


def test_scores_epsilon_and_caveats_are_shown_and_escaped(tmp_path):
  page = _page(tmp_path, [_line(0, 0.3)], level="a<b", caveat="only <one>")
  page.add(_line(3))
  page.write(3)
  text = _text(tmp_path)
  assert "step 3 of 6" in text and "50.0 % ± 10.0" in text
  assert "ε of one a&lt;b after step 3" in text and "a<b" not in text
  assert "0.375 at" in text and "1.25" in text and "only &lt;one&gt;" in text
  svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", text, re.S)[0])
  assert len(svg.findall("circle")) == 2
  xs = [float(c.get("cx")) for c in svg.findall("circle")]
  assert xs[0] < xs[1]


def test_nothing_is_loaded_from_elsewhere(tmp_path):
  _page(tmp_path, [_line(0)]).write(0)
  assert not re.findall(r"(?:https?:)?//|src=|@import", _text(tmp_path))
  assert "default-src 'none'" in _text(tmp_path)


@pytest.mark.parametrize("damaged", [
    {"step": 2, "epsilon": None, "validation_accuracy": None},
    {"step": 2, "epsilon": "inf", "validation_accuracy": "nan",
     "validation_low": "nan", "validation_high": "nan"},
])  # fmt: skip
def test_lines_that_hold_no_numbers_do_not_end_a_run(tmp_path, damaged):
  page = _page(tmp_path, [_line(0), damaged])
  page.write(2)
  svg = re.search(r"<svg.*</svg>", _text(tmp_path), re.S)[0]
  assert "nan" not in svg and "inf" not in svg


def test_a_disk_that_takes_no_page_does_not_end_a_run(tmp_path, monkeypatch):
  def full(*unused):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(files, "write_text", full)
  page = _page(tmp_path)
  page.write(1)
  page.end(1, "done")
  assert not (tmp_path / live.FILE).exists()


def test_a_run_that_fails_says_so_where_there_was_a_page(tmp_path):
  page = _page(tmp_path)
  page.fail(0)
  assert not (tmp_path / live.FILE).exists()
  page.write(0)
  page.fail(2)
  assert "ended by an error after step 2" in _text(tmp_path)
  assert _REFRESH not in _text(tmp_path)


def test_a_process_that_ends_at_once_says_so_on_its_running_page(tmp_path):
  page = _page(tmp_path)
  live.abandon()
  assert not (tmp_path / live.FILE).exists()
  page.write(2)
  live.abandon()
  assert "stopped at once; saved: step 2 of 6" in _text(tmp_path)
  assert _REFRESH not in _text(tmp_path) and "running" not in _text(tmp_path)
  page.end(STEPS, "done")
  live.abandon()
  assert "done: 6 steps" in _text(tmp_path)


def test_an_interrupt_that_does_not_wait_leaves_no_page_that_runs(tmp_path):
  def interrupt(line):
    if line["step"] == 2:
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    tiny_run.train(tiny_run.spec(4), tmp_path, callbacks=[interrupt])
  assert "stopped at once; saved: step" in _text(tmp_path)


def test_a_run_leaves_its_last_page_with_the_numbers_of_its_lines(tmp_path):
  seen = []

  def look(line):
    text = _text(tmp_path)
    seen.append((line["step"], _REFRESH in text))

  tiny_run.train(tiny_run.spec(4), tmp_path, callbacks=[look])
  assert seen == [(step, True) for step in range(1, 5)]
  last = metrics.read(tmp_path / metrics.FILE)[-1]
  assert f"{100 * last['validation_accuracy']:.1f} %" in _text(tmp_path)
  assert "done: 4 steps" in _text(tmp_path)
