"""The numbers of accounting/README.md are those that the command prints."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from experiments.evidence import errata
from experiments.evidence import leaks
from experiments.evidence import pages

# All tables of the page are computed.
pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def found():
  return errata.tables()


def test_the_readme_holds_the_tables_as_they_are_computed(found):
  text = errata.FILE.read_text(encoding="utf-8")
  assert pages.filled(text, "errata", found) == text, (
      "run python -m experiments.evidence --write"
  )
  # All the decimals of the text beside the tables are settings.
  outside = re.sub(r"^\|.*\n", "", text, flags=re.MULTILINE)
  decimals = set(re.findall(r"\d\.\d+", outside.split("## References")[0]))
  settings = {"6.3", "0.1", "0.5", "0.004", "0.001", "3.1", "0.34"}
  # As [M] prints, 45.8 and 32.7 among them: the last digit before the point.
  settings |= {"1.5", "1.18", "6.4", "5.8", "2.7"}
  assert decimals <= settings


def test_exact_values_lie_under_the_bound_and_above_the_printed(found):
  for row in found["theorem3"].rows:
    epsilon, direction, truth, bound, printed, one_stage = row
    assert truth == pytest.approx(bound, abs=1e-9)
    if direction == "remove":
      assert truth > 3 * printed and truth == pytest.approx(one_stage)
    elif epsilon < 1:
      assert truth > one_stage == 0
  for row in found["clusters"].rows:
    truth, bound, naive = row[3:]
    assert truth == pytest.approx(bound, abs=1e-9) and truth > 1.1 * naive


def test_reference_values(found):
  inclusion = {row[0]: row[1:] for row in found["inclusion"].rows}
  assert inclusion["(1, 1, 1)"] == pytest.approx(
      (1 / 12, 1 / 12, 1 / 6, 1 / 24)
  )
  assert inclusion["(2, 2, 1)"][0] == pytest.approx(1 / 3)
  exact = {row[:2]: row[2] for row in found["theorem3"].rows}
  assert exact[0.5, "remove"] == pytest.approx(0.02527592, abs=5e-9)
  assert exact[0.1, "add"] == pytest.approx(0.03964402, abs=5e-9)
  remove, add = found["recurrence"].rows
  assert add[1:3] == pytest.approx((0.0211, 0.0290), abs=5e-5) and add[3] == 0
  assert remove[1] == pytest.approx(remove[3])
  samplers = {row[0]: row[1] for row in found["samplers"].rows}
  assert samplers["Poisson(0.004)"] == pytest.approx(0.498, abs=1e-3)
  assert samplers["FixedSize(1600)"] == pytest.approx(6.11, abs=5e-3)


def test_composition_is_pessimistic_only_where_stages_are_several(found):
  for plan_name, _, _, truth, bound in found["two_steps"].rows:
    if plan_name.startswith("one stage"):
      assert truth == pytest.approx(bound, rel=1e-3)
    else:
      assert 0.8 * bound < truth < 0.99 * bound


def test_the_moments_accountant_reproduces_two_of_three(found):
  one, two, three = found["moments"].rows
  assert one[2] == pytest.approx(1.517, abs=5e-4)
  assert two[2] == pytest.approx(0.355, abs=5e-4)
  assert three[2] == pytest.approx(0.167, abs=5e-4)
  assert three[3] == pytest.approx(0.232, abs=5e-4)
  assert min(two[2:4]) > two[1] + 0.01 > 0.01 + max(two[4:])


def test_a_class_that_leaves_with_its_record_breaks_the_bound(found):
  stays, leaves = found["emptied_unit"].rows
  assert stays[1] == pytest.approx(stays[2], rel=1e-6)
  assert stays[2] == leaves[2] == pytest.approx(4.7e-6, rel=5e-3)
  assert leaves[1] == pytest.approx(0.216, abs=5e-4)


def test_what_is_printed_is_the_moments_accountants(found):
  five, whole = found["mini_imagenet"].rows
  assert five[2] == pytest.approx(1.93, abs=5e-3) and five[2] > five[1]
  assert whole[2:5] == pytest.approx((2.22, 1.289, 9.04), abs=5e-3)
  assert whole[5] < whole[3] < whole[1]
  moments, tight = (row[2] for row in found["sample_level"].rows)
  assert moments == pytest.approx(1.1775, abs=5e-5)
  assert tight == pytest.approx(0.271, abs=5e-4)
  for row in found["training_tasks"].rows:
    assert row[3] == pytest.approx(float(row[2]), rel=0.01)
  assert [row[4] for row in found["training_tasks"].rows] == pytest.approx(
      [4.6e-11, 3.2e-12], rel=0.02
  )
  for lot, whole, moments, tight, *_ in found["lot_size"].rows:
    assert moments < whole < tight, lot


def test_what_was_loose_is_tighter_and_above_what_is_certain(found):
  for _, _, before, low, high in found["tightened"].rows:
    assert low <= high
    assert before in ("inf", "refused") or high < 0.9 * float(before)
  once, twice, pld, moments, *_ = (row[1] for row in found["beyond"].rows)
  assert once < pld < moments and once < twice
  whole, apart = (row[1] for row in found["passes"].rows)
  assert whole == pytest.approx(0.9724, abs=5e-5) and apart < 0.74


def test_leaks_are_far_above_what_is_claimed(found):
  for row in found["percentile_clipping"].rows:
    assert min(row[3:5]) > 2 * max(row[5:])
  first = [row[1] for row in found["second_order"].rows]
  claimed = [row[3] for row in found["second_order"].rows]
  assert all(a > 5 * b for a, b in zip(first, claimed))


def test_divergence_of_unlike_normals():
  # Against a plain sum: N(0.3, 0.5) and N(0, 2).
  x = np.linspace(-20, 20, 400_001)
  p = np.exp(-((x - 0.3) / 0.5) ** 2 / 2) / 0.5
  q = np.exp(-((x / 2) ** 2) / 2) / 2
  for epsilon in (0.0, 1.0):
    truth = np.maximum(p - np.exp(epsilon) * q, 0).sum() * 1e-4
    got = leaks._normals((0.3, 0.5), (0.0, 2.0), epsilon)
    assert got == pytest.approx(truth / np.sqrt(2 * np.pi), abs=1e-8)


def test_places_and_tables_must_agree(found):
  table = pages.Table(("a",), ((1.0,), (1e-20,), (None,)))
  text = "x\n<!-- errata: t -->\n\n| old |\n| --- |\n\nrest\n"
  filled = pages.filled(text, "errata", {"t": table})
  assert filled == (
      "x\n<!-- errata: t -->\n\n| a |\n| --- |\n| 1 |\n| < 1e-15 |\n| - |\n\n"
      "rest\n"
  )
  assert pages.filled(filled, "errata", {"t": table}) == filled
  assert pages.marked(filled, "errata") == (
      "t\n\n| a |\n| --- |\n| 1 |\n| < 1e-15 |\n| - |\n"
  )
  assert not pages.marked(filled, "scale")  # Of a page that is all computed.
  with pytest.raises(ValueError, match="places"):
    pages.filled(text, "errata", {"t": table, "u": table})


def test_the_command_teaches_and_refuses():
  main = [sys.executable, "-m", "experiments.evidence"]
  done = subprocess.run(
      [*main, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert "python -m experiments.evidence --write" in done.stdout
  done = subprocess.run(
      [*main, "--only=errors"], cwd=ROOT, capture_output=True, text=True,
      check=False,
  )
  assert done.returncode == 1 and "unknown page 'errors'" in done.stderr
