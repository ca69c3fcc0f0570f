"""Messages about the current phase of a program."""

import io
import re
import sys
import time

import pytest

from episodic_dp.output import phases


def test_a_phase_says_what_begins_goes_on_and_how_long_it_took(
    monkeypatch, capsys
):
  monkeypatch.setattr(phases, "_SILENT", 0.05)
  with phases.phase("compiling (a while)", at_once=True):
    begun = capsys.readouterr().err
    time.sleep(0.12)
  text = begun + capsys.readouterr().err
  assert begun.startswith("compiling (a while)\n")  # On a slow machine more.
  _, *going, last = text.splitlines()
  assert going and set(going) == {"compiling: 0 s so far"}
  assert re.fullmatch(r"compiling: took 0\.\d s", last)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_a_bar(monkeypatch, terminal):
  screen = io.StringIO()
  screen.isatty = lambda: terminal
  monkeypatch.setattr(sys, "stderr", screen)
  with phases.progress(7, "image") as progress:
    progress.update(3)
  assert ("| 0/7" in screen.getvalue()) == terminal


def test_a_short_phase_says_nothing(capsys):
  with phases.phase("saving"):
    pass
  assert capsys.readouterr().err == ""


def test_a_phase_that_takes_a_second_speaks_up(monkeypatch, capsys):
  monkeypatch.setattr(phases, "_SILENT", 0.01)
  with phases.phase("saving"):
    time.sleep(0.1)
  first, *_, last = capsys.readouterr().err.splitlines()
  assert first == "saving" and last.startswith("saving: took 0.")
