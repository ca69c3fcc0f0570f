"""When a run has to stop, so that it has left before its time is over."""

import types

import pytest

from episodic_dp import training
from episodic_dp.training import time_limit


@pytest.fixture
def clock(monkeypatch):
  """A clock that a test sets."""
  clock = types.SimpleNamespace(now=1000.0)
  monkeypatch.setattr(time_limit.time, "monotonic", lambda: clock.now)
  return clock


def test_it_leaves_room_for_a_step_a_save_and_a_margin(clock):
  limit = training.TimeLimit(1000, began=900.0)  # Until 1900.
  limit.saw(step=40.0, save=1.0)
  limit.saw(step=5.0, save=200.0)
  clock.now = 1900 - 40 - 200 - 30 - 0.5
  assert not limit.reached
  clock.now += 1
  assert limit.reached


def test_the_margin_of_a_short_limit_is_a_tenth(clock):
  limit = training.TimeLimit(20)
  clock.now += 17.9
  assert not limit.reached
  clock.now += 0.2
  assert limit.reached


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("55m", 3300), ("11h", 39600), ("1h30m", 5400),
     ("1h1m1s", 3661)],
)  # fmt: skip
def test_times_as_people_write_them(text, seconds):
  assert time_limit.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-5m", "1.5h", "30m1h"])
def test_what_is_no_time_is_one_sentence(text):
  with pytest.raises(training.RunError, match="write it as 90s, 55m"):
    time_limit.parse(text)


def test_no_time_at_all_is_refused():
  with pytest.raises(training.RunError, match="must be more than 0 s"):
    training.TimeLimit(0)
