"""A few faults of each family; `make faults` tries all of them."""

import os
import time

import numpy as np
import pytest

from tests.faults import __main__ as program
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


@pytest.mark.parametrize("only, told", [
    ("disk", "the families are kills, stops, disks, damage, changes, memory\n"),
    ("disks", " faults: leave out --only, or "),
])  # fmt: skip
def test_a_page_is_not_replaced_by_a_part_of_it(tmp_path, capsys, only, told):
  page = tmp_path / "faults.md"
  page.write_text("whole")
  with pytest.raises(SystemExit) as ended:
    program.main([f"--only={only}", f"--write={page}"])
  assert ended.value.code != 0 and page.read_text() == "whole"
  assert told in capsys.readouterr().err


def test_a_page_is_made_in_parts(tmp_path, monkeypatch):
  tried = []

  def add(chosen, rows, *_):
    tried.append({fault.family for fault in chosen})
    for fault in chosen:
      rows.add(fault.name, outcomes.Outcome(
          tried="1", ended="0", says="", after=""
      ))  # fmt: skip

  monkeypatch.setattr(program, "_try", add)
  kept, page = f"--kept={tmp_path / 'kept.json'}", tmp_path / "faults.md"
  assert program.main([kept, "--only=disks"]) == 0
  assert program.main([kept, f"--write={page}"]) == 0
  first, second = tried
  assert first == {"disks"} and len(second) == 5 and "disks" not in second
  assert "## Disks" in page.read_text() and "## Memory" in page.read_text()


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
