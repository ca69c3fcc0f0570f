"""Pages of evidence hold what the code answers today."""

import pytest

from episodic_dp import plan
from experiments.evidence import configuration
from experiments.evidence import errata
from experiments.evidence import learners
from experiments.evidence import pages
from experiments.evidence import support

LONG = (
    support.any_tree, support.users, support.unit, support.disjoint,
    support.classes_on_top, support.counted,
)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(s, marks=pytest.mark.slow if s in LONG else ())
        for s in support.SECTIONS
    ],
)
@pytest.mark.few(1)
def test_the_support_matrix_is_what_the_code_answers(make):
  written = support.FILE.read_text(encoding="utf-8")
  assert written.count("\n## ") == len(support.SECTIONS)
  assert make().markdown() in f"{written}\n", (
      "run python -m experiments.evidence --only=support --write"
  )


def slow(page):
  return pytest.param(page, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "page", [configuration, slow(learners), slow(errata)]
)
def test_a_page_is_what_the_code_answers(page):
  assert page.document() == page.FILE.read_text(encoding="utf-8"), (
      "run python -m experiments.evidence --write"
  )


def test_refusals_of_one_rule_share_a_number():
  first = pages.Refusal("level 'a' draws 3, use FixedSize(2)", True)
  second = pages.Refusal("level 'b' draws 5, use FixedSize(4)", True)
  other = pages.Refusal("no bound for 3 units", False)
  notes = pages.Notes()
  assert notes.verdict(first) == notes.verdict(second) == "no (1)"
  assert notes.verdict(other) == "– (2)"
  assert notes.lines()[1] == "2. (–) no bound for 3 units"


def test_bugs_are_not_taken_for_refusals(monkeypatch):
  def broken(*_, **__):
    raise RuntimeError("a bug")

  monkeypatch.setattr(support, "guarantee", broken)
  with pytest.raises(RuntimeError, match="a bug"):
    support.one_stage()
  assert not issubclass(plan.PlanError, plan.UnsoundPlanError)


def test_places_and_tables_must_agree():
  table = pages.Table(("a",), ((1.0,), (1e-20,), (None,)))
  text = "x\n<!-- errata: t -->\n\n| old |\n| --- |\n\nrest\n"
  filled = pages.filled(text, "errata", {"t": table})
  assert filled == (
      "x\n<!-- errata: t -->\n\n| a |\n| --- |\n| 1 |\n| < 1e-15 |\n| - |\n\n"
      "rest\n"
  )
  assert pages.filled(filled, "errata", {"t": table}) == filled
  with pytest.raises(ValueError, match="places"):
    pages.filled(text, "errata", {"t": table, "u": table})


# Errata -----------------------------------------------------------------------


def test_exact_values_lie_under_the_bound_and_above_the_printed():
  for row in errata.theorem3().rows:
    epsilon, direction, truth, bound, printed, one_stage = row
    assert truth == pytest.approx(bound, abs=1e-9)
    if direction == "remove":
      assert truth > 3 * printed and truth == pytest.approx(one_stage)
    elif epsilon < 1:
      assert truth > one_stage == 0


@pytest.mark.slow
def test_what_is_printed_is_the_moments_accountants():
  one, two, three = errata.moments().rows
  assert (one[2], two[2], three[3]) == pytest.approx(
      (1.517, 0.355, 0.232), abs=5e-4
  )
  five, whole = errata.mini_imagenet().rows
  assert five[2] == pytest.approx(1.93, abs=5e-3) and five[2] > five[1]
  assert whole[2:5] == pytest.approx((2.22, 1.289, 9.04), abs=5e-3)
  moments, tight = (row[2] for row in errata.sample_level().rows)
  assert moments == pytest.approx(1.1775, abs=5e-5)
  assert tight == pytest.approx(0.271, abs=5e-4)
  for row in errata.training_tasks().rows:
    assert row[3] == pytest.approx(float(row[2]), rel=0.01)
  for lot, steps, moments, tight, *_ in errata.lot_size().rows:
    assert moments < steps < tight, lot


def test_leaks_are_far_above_what_is_claimed():
  for row in errata.percentile_clipping().rows:
    assert min(row[3:5]) > 2 * max(row[5:])
  for row in errata.second_order().rows:
    assert row[1] > 5 * row[3]
