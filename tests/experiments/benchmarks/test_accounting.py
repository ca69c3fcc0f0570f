"""The accountant's benchmark measures what it says."""

import math

import pytest

from experiments.benchmarks import accounting


def test_what_is_asked_of_cases_names_cases():
  assert set(accounting.TARGETS) <= set(accounting.CASES)
  assert set(accounting.SMOKE_CASES) <= set(accounting.CASES)


def test_epsilons_of_one_setting_agree():
  settings = {"steps": 20, "few_steps": 20, "pass_steps": 20, "grid": 5e-3}
  ours, library, fine = (
      accounting.measure_case(case, settings).value
      for case in ("first", "library_grid", "library_fine")
  )
  assert fine * (1 - 1e-5) < ours < library
  assert math.isclose(ours, fine, rel_tol=1e-3)


def test_children_fail_loudly():
  with pytest.raises(KeyError):
    accounting.measure_case(
        "magic", {"steps": 2, "few_steps": 1, "pass_steps": 2, "grid": 1e-3}
    )
