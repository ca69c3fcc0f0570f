"""Benchmarks run at their smallest size, and the table says what they say.

Compiling takes the time, in haste since nothing is measured here.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.benchmarks import registry
from experiments.benchmarks import table

QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
ROOT = pathlib.Path(__file__).resolve().parents[3]
FORM = ["machine", "options", "settings", "cases", "rows", "more"]


def run(*arguments):
  return subprocess.run(
      [sys.executable, "-m", "experiments.benchmarks", *arguments], cwd=ROOT,
      env=os.environ | QUICK, capture_output=True, text=True, timeout=1800,
  )  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
  """name -> JSON of all of them, and what the command printed."""
  folder = tmp_path_factory.mktemp("benchmarks")
  done = run("--run=all", "--smoke", "--repeats=1", f"--out={folder}")
  assert done.returncode == 0, done.stderr
  files = {path.stem: path for path in folder.iterdir()}
  results = {name: json.loads(p.read_text()) for name, p in files.items()}
  return results, done.stdout


@pytest.mark.slow
def test_one_command_runs_all_of_them(found):
  results, printed = found
  assert set(results) == set(registry.BENCHMARKS)
  for name, result in results.items():
    assert list(result) == FORM, name
    assert result["options"] == {"smoke": True, "repeats": 1, "only": []}
    assert result["settings"] and result["cases"], name
    for row in result["rows"]:
      assert row["what"] and row["value"] >= 0, name
    assert not result["rows"] or f"| {name} |" in printed


def test_tiny_sizes_do_not_take_the_place_of_results():
  done = run("--run=sampling", "--smoke", f"--out={table.FOLDER}")
  assert done.returncode == 1
  assert "--smoke would put tiny sizes in the place of" in done.stderr


@pytest.mark.slow
def test_targets_are_those_of_the_project(found):
  targets = {
      (name, row["at_most"] or row["at_least"])
      for name, result in found[0].items()
      for row in result["rows"]
      if row["reached"] is not None
  }
  assert targets >= {
      ("compiling", 8.0), ("memory", 1.05), ("overhead", 1.10),
      ("sample_level", 2), ("sampling", 1.5), ("sampling", 2),
      ("devices", 1.5), ("devices", 1e-6),
  }
  assert {name for name, _ in targets} == {
      "accounting", "compiling", "devices", "memory", "overhead",
      "sample_level", "sampling",
  }


@pytest.mark.slow
def test_temporary_memory_does_not_grow_with_the_tasks(found):
  few, many = found[0]["memory"]["cases"].values()
  more_tasks = many["tasks"] - few["tasks"]
  # Of a task remains what was drawn for it, not its images and gradient.
  of_one = few["temporary"] / few["tasks"]
  assert many["temporary"] - few["temporary"] < of_one / 2 * more_tasks


@pytest.mark.slow
def test_the_same_parameters_wherever_the_data_are(found):
  streaming = found[0]["streaming"]
  assert streaming["more"]["data"]["images_bytes"] == 4 * 50 * 84 * 84 * 3
  # On one device, and on all of several.
  assert len(streaming["cases"]) in (3, 6)
  apart = streaming["more"]["data"]["relative_difference_of_a_step"]
  assert 0 <= apart < 1e-5


@pytest.mark.slow
def test_one_command_runs_one_and_says_what_it_found(tmp_path):
  done = run("--run=accounting", "--smoke", "--repeats=1", f"--out={tmp_path}")
  assert done.returncode == 0, done.stderr
  result = json.loads((tmp_path / "accounting.json").read_text())
  assert list(result) == FORM
  assert result["options"] == {"smoke": True, "repeats": 1, "only": []}
  assert result["machine"]["cpus"] >= 1 and result["machine"]["device"]
  for case in result["cases"].values():
    assert 0 < case["fastest"] <= case["seconds"] <= case["slowest"]
    assert 0 < case["cpu_share"]
  assert result["rows"][0]["at_most"] == 500
  assert "| accounting |" in done.stdout


def test_one_command_lists_them_and_knows_no_others():
  done = run("--list")
  assert done.returncode == 0, done.stderr
  listed = [line.split()[0] for line in done.stdout.splitlines()]
  assert listed == list(registry.BENCHMARKS)
  done = run("--run=overhead,magic", "--out=x")
  assert done.returncode == 1 and "unknown benchmark 'magic'" in done.stderr


def test_every_benchmark_has_its_function_and_numbers():
  for name, benchmark in registry.BENCHMARKS.items():
    assert callable(benchmark.load()), name
  assert {path.stem for path in table.FOLDER.glob("*.json")} == set(
      registry.BENCHMARKS
  )


def test_the_readme_holds_the_table_of_the_measurements():
  text = table.README.read_text(encoding="utf-8")
  assert table.replaced(text, table.render()) == text, (
      "run python -m experiments.benchmarks --write"
  )
  for name, result in table.results():
    assert list(result) == FORM, name
    assert not result["options"]["smoke"], name
    for case in result["cases"].values():
      assert math.isfinite(case["seconds"]) and case["seconds"] > 0, name


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
