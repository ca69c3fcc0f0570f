"""docs/support.md says what the accountant answers today."""

import dataclasses

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from experiments.evidence import pages
from experiments.evidence import support


def sections_of(text):
  """Title -> text of each section of a document."""
  parts = text.split("\n## ")
  return {part.splitlines()[0]: f"## {part}".strip() for part in parts[1:]}


def check(make):
  section = make()
  written = sections_of(support.FILE.read_text(encoding="utf-8"))
  assert written[section.title] == section.markdown().strip(), (
      "run python -m experiments.evidence --write"
  )


LONG = (
    support.any_tree, support.users, support.unit, support.disjoint,
    support.counted,
)


@pytest.mark.parametrize(
    "make", [s for s in support.SECTIONS if s not in LONG]
)
def test_the_document_is_what_the_code_answers(make):
  check(make)


@pytest.mark.slow
@pytest.mark.parametrize("make", LONG)
def test_the_long_tables_are_what_the_code_answers(make):
  check(make)


def test_the_document_holds_the_sections_and_nothing_else():
  text = support.FILE.read_text(encoding="utf-8")
  assert text.startswith(support.head())
  assert len(sections_of(text)) == len(support.SECTIONS)


def test_refusals_are_in_the_table_with_their_sentence():
  text = support.shared().markdown()
  assert "copies=True" in text and "| no (" in text and "| ε " in text


def test_a_cell_names_the_accountants_that_answer():
  missing = pages.Refusal("no bound for 3 units", False)
  notes = pages.Notes()
  tight = stated(1.0, 0.98)
  assert support.cell({"pld": tight, "rdp": missing}, notes) == "ε by pld (1)"
  assert support.cell({"pld": missing, "rdp": missing}, notes) == "– (1)"
  assert notes.lines() == ["1. (–) no bound for 3 units"]


def test_a_cell_says_where_epsilon_may_be_too_large():
  notes = pages.Notes()
  for epsilon, lower, text in (
      (1.0, 0.96, "ε"), (1.0, 0.94, "ε (< 1.1×)"), (50.0, 2.0, "ε (< 25×)"),
      (1.0, 0.0, "ε (> ?)"),
  ):
    found = {"pld": stated(epsilon, lower), "rdp": stated(2 * epsilon, lower)}
    assert support.cell(found, notes) == text


def stated(epsilon, lower):
  """A guarantee with a lower bound beside it."""
  h = plan.Hierarchy.regular((64,), levels=("record",))
  release = plan.Release(
      h, plan.SamplingPlan((plan.Poisson(0.1),)),
      plan.Mechanism(clip_unit="record", noise_multiplier=64.0),
  )
  found = accounting.guarantee(release, steps=1, level="record", delta=1e-5)
  found.question.__dict__["answer"] = lower
  return dataclasses.replace(found, epsilon=epsilon)


def test_like_refusals_share_a_number():
  first = pages.Refusal("level 'a' draws 3, use FixedSize(2)", True)
  second = pages.Refusal("level 'b' draws 5, use FixedSize(4)", True)
  other = pages.Refusal("level 'b' draws 5: fewer", True)
  assert first.rule == second.rule != other.rule


def test_bugs_are_not_taken_for_refusals(monkeypatch):
  def broken(*_, **__):
    raise ValueError("a bug")

  monkeypatch.setattr(support, "guarantee", broken)
  with pytest.raises(ValueError, match="a bug"):
    support.one_stage()
  assert not issubclass(plan.PlanError, plan.UnsoundPlanError)
