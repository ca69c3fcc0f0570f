"""Benchmarks run at their smallest size, and the table says what they say.

Compiling takes the time, in haste since nothing is measured here: one process
for some of them, and the command that runs all is slow.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.benchmarks import table

QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = ("memory", "overhead", "sampling")

# A step of memory is measured in a process of its own otherwise.
_MAIN = """
import importlib, json, sys
from experiments.benchmarks import harness, memory
memory._in_a_process = lambda tasks, smoke: memory.of_step(tasks, smoke=smoke)
found = {}
for name in sys.argv[1:]:
  module = importlib.import_module(f"experiments.benchmarks.{name}")
  found[name] = module.measure(harness.Options(smoke=True, repeats=1))
print(json.dumps(found, allow_nan=False))
"""


def _run(*arguments):
  return subprocess.run(
      [sys.executable, *arguments], cwd=ROOT, env=os.environ | QUICK,
      capture_output=True, text=True, timeout=900,
  )  # fmt: skip


@pytest.fixture(scope="module")
def found():
  done = _run("-c", _MAIN, *NAMES)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


def test_benchmarks_measure(found):
  assert set(found) == set(NAMES)
  for name, result in found.items():
    assert result["settings"] and result["cases" if name != "overhead" else
                                         "widths"]
    for row in result["rows"]:
      assert row["what"] and row["value"] >= 0, name


def test_targets_are_those_of_the_project(found):
  targets = {
      (name, row["at_most"])
      for name, result in found.items()
      for row in result["rows"]
      if row["at_most"] is not None
  }
  assert targets == {
      ("memory", 1.05), ("overhead", 1.10),
      ("sampling", 1.5), ("sampling", 2), ("sampling", 0),
  }


def test_temporary_memory_does_not_grow_with_the_tasks(found):
  few, many = found["memory"]["cases"].values()
  more_tasks = many["tasks"] - few["tasks"]
  # Of a task remains what was drawn for it, not its images and gradient.
  of_one = few["temporary"] / few["tasks"]
  assert many["temporary"] - few["temporary"] < of_one / 2 * more_tasks


def test_one_command_runs_them(tmp_path):
  done = _run(
      "-m", "experiments.benchmarks", "--run=accounting", "--smoke",
      f"--out={tmp_path}",
  )
  assert done.returncode == 0, done.stderr
  result = json.loads((tmp_path / "accounting.json").read_text())
  assert result["options"]["smoke"] and result["machine"]["cpus"] >= 1
  assert "| accounting |" in done.stdout
  assert "1/1 accounting: done" in done.stderr


@pytest.mark.slow
def test_one_command_runs_all_of_them(tmp_path):
  done = _run(
      "-m", "experiments.benchmarks", "--run=all", "--smoke",
      f"--out={tmp_path}",
  )
  assert done.returncode == 0, done.stderr
  written = {path.stem for path in tmp_path.iterdir()}
  assert {*NAMES, "accounting", "sample_level", "streaming"} <= written
  for name in written:
    assert f"| {name} |" in done.stdout


def test_one_command_lists_them_and_knows_no_others():
  done = _run("-m", "experiments.benchmarks", "--list")
  assert done.returncode == 0, done.stderr
  listed = {line.split()[0] for line in done.stdout.splitlines()}
  assert {*NAMES, "accounting", "sample_level", "streaming"} <= listed
  assert not {"harness", "settings", "table"} & listed
  done = _run("-m", "experiments.benchmarks", "--run=magic", "--out=x")
  assert done.returncode == 1 and "unknown benchmark 'magic'" in done.stderr


def test_the_readme_holds_the_table_of_the_measurements():
  text = table.README.read_text(encoding="utf-8")
  assert table.replaced(text, table.render()) == text
  assert any(name == "overhead" for name, _ in table.results())


def test_a_table_says_target_and_spread(tmp_path):
  row = {
      "what": "a / b", "value": 1.052, "least": 0.9, "most": 1.3, "cpu": 1.01,
      "at_most": 1.1, "at_least": None, "unit": "×", "reached": True,
      "note": "ε = 1",
  }  # fmt: skip
  machine = {"device": "cpu", "cpus": 2, "load": 1.0, "load_after": 2.5}
  (tmp_path / "x.json").write_text(json.dumps({
      "machine": machine, "rows": [row],
      "cases": {"a": {"machine_free": 0.5}},
  }))
  (tmp_path / "y.json").write_text("{}")
  lines = table.render(tmp_path).splitlines()
  measured = "1.05× (0.9–1.3; by processor time 1.01×; ε = 1)"
  assert f"| a / b | ≤ 1.1× | {measured} | yes | x |" in lines
  assert "| x | cpu | 2 | 1.0, 2.5 | 50% |" in lines
  with pytest.raises(ValueError, match="no one place") as error:
    table.replaced("nothing", "")
  assert "README.md" in str(error.value)
