"""Processes hear who is lost, who failed and who just left."""

import queue
import socket
import struct
import time

import pytest

from episodic_dp.cli import watch

_LIMIT = 0.5


class _Process:
  """A watch, and what it was told."""

  def __init__(self):
    self.told = queue.Queue()
    self.watch = watch.Watch(
        _LIMIT,
        lambda: self.told.put("lost"),
        lambda: self.told.put("failed"),
    )


@pytest.fixture
def quick_beats(monkeypatch):
  monkeypatch.setattr(watch, "_EVERY", 0.05)


@pytest.fixture
def two(quick_beats):
  first, second = _Process(), _Process()
  port = first.watch.serve(1, 5.0)
  second.watch.connect("localhost", port, 1)
  while not first.watch._peers:  # Until it was let in.
    time.sleep(0.01)
  return first, second


def _stays_silent(process, seconds=3 * _LIMIT):
  with pytest.raises(queue.Empty):
    process.told.get(timeout=seconds)


def test_two_that_live_hear_nothing(two):
  for process in two:
    _stays_silent(process)


def test_two_that_end_do_not_lose_each_other(two):
  first, second = two
  second.watch.end(failed=False, seconds=0.0)
  first.watch.end(failed=False, seconds=5.0)
  for process in two:
    _stays_silent(process)


@pytest.mark.parametrize("number", [0, 1])
def test_who_fails_says_so(two, number):
  two[number].watch.end(failed=True, seconds=0.0)
  assert two[1 - number].told.get(timeout=5) == "failed"


@pytest.mark.parametrize("silent", [True, False])
def test_who_hangs_or_is_killed_is_lost(quick_beats, silent):
  first = _Process()
  port = first.watch.serve(1, 5.0)
  with socket.create_connection(("localhost", port)) as other:
    other.sendall(struct.pack("<I", 1) + b".")
    if not silent:
      other.close()
    assert first.told.get(timeout=5) == "lost"


def test_who_never_comes_is_lost(quick_beats):
  first = _Process()
  first.watch.serve(1, 0.3)
  assert first.told.get(timeout=5) == "lost"


def test_a_stranger_is_not_one_of_them(quick_beats):
  """As a scan of ports: it says nothing, or too little."""
  first, second = _Process(), _Process()
  port = first.watch.serve(1, 5.0)
  socket.create_connection(("localhost", port)).close()
  second.watch.connect("localhost", port, 1)
  second.watch.end(failed=True, seconds=0.0)
  assert first.told.get(timeout=5) == "failed"
