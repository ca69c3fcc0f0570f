"""Turns, ratios and rows, on functions whose times are known."""

import json
import os

import pytest

from experiments.benchmarks import harness
from experiments.benchmarks import machine


def turns(*seconds):
  return [harness.Turn(s, 2 * s, 0.5) for s in seconds]


def test_cases_take_turns_each_first_in_its_turn():
  called = []

  def case(name):
    def measure():
      called.append(name)
      return harness.Turn(len(called), 1.0, None, value=len(called))

    return measure

  found = harness.interleaved(
      {n: case(n) for n in "abc"}, harness.Options(smoke=True, repeats=3)
  )
  assert called[3:] == list("abc" "bca" "cab")
  assert sorted(called[:3]) == list("abc")
  assert [t.seconds for t in found["a"]] == [4, 9, 11]
  assert [t.value for t in found["a"]] == [None, None, 11]


def test_summary_and_ratio():
  summary = harness.summary(turns(4.0, 2.0, 3.0), per=2)
  assert summary["seconds"] == 1.5 and summary["quartiles"] == [1.25, 1.75]
  assert (summary["fastest"], summary["slowest"]) == (1.0, 2.0)
  assert summary["cpu_seconds"] == 3.0 and summary["cpu_share"] == 2.0
  assert summary["machine_free"] == 0.5
  ratio = harness.ratio(turns(4.0, 2.0, 3.0), turns(2.0, 2.0, 2.0), scale=10)
  assert (ratio["median"], ratio["least"], ratio["most"]) == (15, 10, 20)
  assert ratio["cpu_median"] == 15


def test_time_is_that_of_the_work():
  turn = harness.timed(lambda n: sum(i * i for i in range(n)), 10**6)
  assert turn.value == sum(i * i for i in range(10**6))
  # Threads of tests before may still be at work in this process.
  cores = os.cpu_count() or 1
  assert 0 < turn.cpu_seconds <= 1.5 * cores * turn.seconds
  assert turn.machine_free is None or 0 <= turn.machine_free <= 1


@pytest.mark.parametrize(
    "limits, reached",
    [
        ({"at_most": 1.1}, True),
        ({"at_most": 0.9}, False),
        ({"at_least": 1.1}, False),
        ({"at_least": 0.9}, True),
        ({}, None),
    ],
)
def test_rows_say_whether_the_target_is_reached(limits, reached):
  row = harness.row("it", {"median": 1.0, "least": 0.5, "most": 2}, **limits)
  assert row["reached"] is reached and row["least"] == 0.5


def test_steps_go_on_from_where_they_were():
  advance = harness.steps(lambda state: (state + 1, {}), 0, 3)
  assert (advance(), advance()) == (3, 6)


def test_the_machine_is_described_without_names_and_paths():
  described = machine.describe()
  assert described["cpus"] >= 1 and described["jax"] and described["device"]
  assert "/" not in json.dumps(described).replace("\\/", "")
