"""A few faults of each family; `make faults` tries all of them."""

import os
import time

import numpy as np
import pytest

from tests.faults import bench as bench_lib
from tests.faults import damage
from tests.faults import disks
from tests.faults import kills
from tests.faults import outcomes
from tests.faults import stops


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
  return bench_lib.Bench(tmp_path_factory.mktemp("faults"))


def _holds(make, *arguments, **options):
  try:
    outcome = make(*arguments, **options)
  except outcomes.CannotTryError as e:
    pytest.skip(str(e))
  assert outcome.problems == ()
  return outcome


@pytest.mark.slow  # Every process of a run takes seconds to begin.
def test_killed_at_random_moments_and_in_a_write(bench):
  _holds(kills.sigkills, bench.seeded(time.time_ns()), 3, 1)


@pytest.mark.slow
def test_the_others_end_where_process_0_is_lost(bench):
  _holds(kills.one_of_two, bench, 0)


@pytest.mark.slow
def test_a_scheduler_stops_a_run(bench):
  _holds(stops.stopped, bench, "SIGTERM", 75)


@pytest.mark.slow
def test_a_disk_that_fills_up(bench):
  _holds(disks.full, bench, "checkpoint", (4,))


@pytest.mark.slow  # A run for each.
def test_a_damaged_run_goes_on_with_the_same_bits_or_not_at_all(tmp_path):
  bench = bench_lib.Bench(tmp_path)
  found = _holds(damage.damaged, bench, f"checkpoints/{damage.STOPPED}/**/*", 4)
  assert found.tried.startswith("4: ")


def test_a_difference_is_found(tmp_path):
  """The comparison that all faults rest on."""
  stopped, whole = damage.folders(tmp_path)
  same = bench_lib.contents(tmp_path / "tiny")
  assert same.differences(whole) == []
  assert "step 9, not 14" in bench_lib.contents(stopped).differences(whole)
  name = next(iter(same.arrays))
  array = same.arrays[name].copy()
  array.reshape(-1)[0] = np.nextafter(array.reshape(-1)[0], 2)
  same.arrays[name] = array
  assert same.differences(whole) == [name]
  assert same.differences(whole, bits=False) == []
  os.truncate(tmp_path / "tiny" / "metrics.jsonl", 100)
  assert bench_lib.contents(tmp_path / "tiny").differences(whole) == ["metrics"]
