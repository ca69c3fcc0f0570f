"""What a program is doing, said while it does it."""

import re
import time

import pytest

from episodic_dp.output import phases


def test_a_phase_says_what_begins_goes_on_and_how_long_it_took(
    monkeypatch, capsys
):
  monkeypatch.setattr(phases, "_EVERY", 0.05)
  with phases.phase("compiling (a while)", at_once=True):
    assert capsys.readouterr().err == "compiling (a while)\n"
    time.sleep(0.12)
  *going, last = capsys.readouterr().err.splitlines()
  assert going and set(going) == {"compiling: 0 s so far"}
  assert re.fullmatch(r"compiling: took 0\.\d s", last)


def test_a_short_phase_says_nothing(capsys):
  with phases.phase("saving"):
    pass
  assert capsys.readouterr().err == ""


def test_a_phase_that_takes_a_second_speaks_up(monkeypatch, capsys):
  monkeypatch.setattr(phases, "_SILENT", 0.01)
  with phases.phase("saving"):
    time.sleep(0.1)
  first, last = capsys.readouterr().err.splitlines()
  assert first == "saving" and last.startswith("saving: took 0.")


def test_a_phase_that_fails_leaves_the_error_the_last_line(capsys):
  with pytest.raises(ValueError):
    with phases.phase("reading", at_once=True):
      raise ValueError("no")
  assert capsys.readouterr().err == "reading\n"
