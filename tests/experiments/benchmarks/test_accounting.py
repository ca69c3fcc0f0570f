"""The accountant's benchmark runs, in turns, and says what it measured."""

import json
import math
import pathlib
import subprocess
import sys

import pytest

from experiments.benchmarks import accounting

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(*arguments):
  return subprocess.run(
      [sys.executable, "-m", "experiments.benchmarks.accounting", *arguments],
      cwd=ROOT, capture_output=True, text=True, check=False,
  )


def test_a_tiny_run_prints_json():
  done = run(
      "--repeats=1", "--steps=20", "--few_steps=1",
      "--cases=import,other_steps",
  )
  assert done.returncode == 0, done.stderr
  result = json.loads(done.stdout)
  assert set(result["cases"]) == {"import", "other_steps"}
  for case in result["cases"].values():
    assert 0 < case["fastest"] <= case["seconds"] <= case["slowest"]
    assert 0 < case["cpu_share"]
  assert result["cases"]["import"]["target"] == 0.5
  assert result["machine"]["cpus"] >= 1 and result["machine"]["device"]


def test_what_is_asked_of_cases_names_cases():
  assert set(accounting.TARGETS) <= set(accounting.CASES)
  assert set(accounting.SMOKE_CASES) <= set(accounting.CASES)


def test_epsilons_of_one_setting_agree():
  settings = {"steps": 20, "few_steps": 20, "pass_steps": 20, "grid": 5e-3}
  ours, library, fine = (
      accounting.measure(case, settings).value
      for case in ("first", "library_grid", "library_fine")
  )
  assert fine * (1 - 1e-5) < ours < library
  assert math.isclose(ours, fine, rel_tol=1e-3)


def test_unknown_cases_are_one_sentence():
  done = run("--cases=first,magic")
  assert done.returncode == 1 and "unknown case 'magic'" in done.stderr
  assert "Traceback" not in done.stderr


def test_children_fail_loudly():
  with pytest.raises(KeyError):
    accounting.measure("magic", {"steps": 2, "few_steps": 1})
