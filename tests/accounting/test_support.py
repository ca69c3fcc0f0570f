"""docs/support.md says what the accountant answers today."""

import pathlib

import pytest

from episodic_dp import plan
from episodic_dp.accounting import support

# The command is not imported: mains share names of flags.
FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "support.md"


def sections_of(text):
  """Title -> text of each section of a document."""
  parts = text.split("\n## ")
  return {part.splitlines()[0]: f"## {part}".strip() for part in parts[1:]}


def check(make):
  section = make()
  written = sections_of(FILE.read_text(encoding="utf-8"))
  assert written[section.title] == support.markdown(section).strip(), (
      "run python -m experiments.support --write"
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
  text = FILE.read_text(encoding="utf-8")
  assert text.startswith(support.head())
  assert len(sections_of(text)) == len(support.SECTIONS)


def test_refusals_are_in_the_table_with_their_sentence():
  text = support.markdown(support.shared())
  assert "copies=True" in text and "| no (" in text and "| ε |" in text


def test_a_cell_names_the_accountants_that_answer():
  missing = support.Refusal("no bound for 3 units", False)
  row = support.Row(
      "Poisson", "record",
      {("record", "add-or-remove"): {"pld": None, "rdp": missing},
       ("record", "replace-one"): {"pld": missing, "rdp": missing}},
  )
  text = support.markdown(support.Section("T", "t", ("record",), (row,)))
  assert "| Poisson | record | ε by pld (1) | – (1) |" in text
  assert "1. (–) no bound for 3 units" in text


def test_like_refusals_share_a_number():
  first = support.Refusal("level 'a' draws 3, use FixedSize(2)", True)
  second = support.Refusal("level 'b' draws 5, use FixedSize(4)", True)
  other = support.Refusal("level 'b' draws 5: fewer", True)
  assert first.rule == second.rule != other.rule


def test_bugs_are_not_taken_for_refusals(monkeypatch):
  def broken(*_, **__):
    raise ValueError("a bug")

  monkeypatch.setattr(support.statement, "guarantee", broken)
  with pytest.raises(ValueError, match="a bug"):
    support.one_stage()
  assert not issubclass(plan.PlanError, plan.UnsoundPlanError)
