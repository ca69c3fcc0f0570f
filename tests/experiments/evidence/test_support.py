"""docs/support.md says what the accountant answers today."""

import pytest

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


LONG = (support.any_tree, support.unit)


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
  assert "copies=True" in text and "| no (" in text and "| ε |" in text


def test_a_cell_names_the_accountants_that_answer():
  missing = pages.Refusal("no bound for 3 units", False)
  notes = pages.Notes()
  assert support.cell({"pld": None, "rdp": missing}, notes) == "ε by pld (1)"
  assert support.cell({"pld": missing, "rdp": missing}, notes) == "– (1)"
  assert notes.lines() == ["1. (–) no bound for 3 units"]


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
