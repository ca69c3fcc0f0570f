"""The page about the slow tests says what pytest's XML says."""

import importlib.util
import pathlib

_SCRIPT = pathlib.Path(__file__).with_name("record_slow.py")
_XML = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="0" failures="1" skipped="1"
  tests="3" time="62.5" timestamp="2030-01-02T03:04:05.678+00:00">
<testcase classname="tests.a" name="test_short" time="0.5" />
<testcase classname="tests.a" name="test_long" time="60.4">
  <failure message="no">no</failure></testcase>
<testcase classname="tests.b" name="test_data" time="0.0">
  <skipped message="no data">no data</skipped></testcase>
</testsuite></testsuites>
"""


def test_counts_longest_and_failures():
  spec = importlib.util.spec_from_file_location("record_slow", _SCRIPT)
  record_slow = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(record_slow)
  page = record_slow.render(_XML, revision="abc", machine="2 CPUs")
  for line in (
      "| began | 2030-01-02 03:04 |",
      "| commit | abc |",
      "| machine | 2 CPUs |",
      "| passed | 1 |",
      "| failed | 1 |",
      "| skipped | 1 |",
      "| took | 62 s |",
  ):
    assert f"\n{line}\n" in page
  rows = [x for x in page.splitlines() if x.startswith("| `")]
  assert rows[0] == "| `tests.a::test_long` | 60 |"
  assert "Failed:\n\n- `tests.a::test_long`\n" in page
  assert "Skipped:\n\n- `tests.b::test_data`: no data\n" in page
