"""What a program is doing, said while it does it."""

import io
import re
import sys
import time

from episodic_dp.output import phases


def test_a_phase_says_what_begins_goes_on_and_how_long_it_took(
    monkeypatch, capsys
):
  monkeypatch.setattr(phases, "_EVERY", 0.05)
  with phases.phase("compiling (a while)", at_once=True):
    begun = capsys.readouterr().err
    time.sleep(0.12)
  text = begun + capsys.readouterr().err
  assert begun.startswith("compiling (a while)\n")  # On a slow machine more.
  _, *going, last = text.splitlines()
  assert going and set(going) == {"compiling: 0 s so far"}
  assert re.fullmatch(r"compiling: took 0\.\d s", last)


def test_what_is_done_stands_in_the_lines(monkeypatch, capsys):
  monkeypatch.setattr(phases, "_EVERY", 0.01)
  text, deadline = "", time.monotonic() + 20
  with phases.phase("reading", at_once=True):
    with phases.progress(7, "image") as progress:
      progress.update(2)
      progress.update()
      while "image 3 of 7" not in text and time.monotonic() < deadline:
        text += capsys.readouterr().err
  assert "reading: 0 s so far, image 3 of 7\n" in text


def test_a_terminal_has_a_bar_in_their_place(monkeypatch):
  screen = io.StringIO()
  screen.isatty = lambda: True
  monkeypatch.setattr(sys, "stderr", screen)
  monkeypatch.setattr(phases, "_EVERY", 0.05)
  with phases.phase("reading", at_once=True):
    with phases.progress(7, "image") as progress:
      assert progress.on_terminal
      progress.update(3)
      time.sleep(0.08)
  assert "so far" not in screen.getvalue() and "| 0/7" in screen.getvalue()


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
