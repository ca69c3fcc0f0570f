"""docs/support.md says what the accountant answers today."""

import pathlib

import pytest

from episodic_dp import plan
from experiments.evidence import plans

# The command is not imported: mains share names of flags.
FILE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "support.md"


def sections_of(text):
  """Title -> text of each section of a document."""
  parts = text.split("\n## ")
  return {part.splitlines()[0]: f"## {part}".strip() for part in parts[1:]}


def check(make):
  section = make()
  written = sections_of(FILE.read_text(encoding="utf-8"))
  assert written[section.title] == plans.markdown(section).strip(), (
      "run python -m experiments.evidence.write_support --write"
  )


LONG = (plans.any_tree, plans.unit)


@pytest.mark.parametrize(
    "make", [s for s in plans.SECTIONS if s not in LONG]
)
def test_the_document_is_what_the_code_answers(make):
  check(make)


@pytest.mark.slow
@pytest.mark.parametrize("make", LONG)
def test_the_long_tables_are_what_the_code_answers(make):
  check(make)


def test_the_document_holds_the_sections_and_nothing_else():
  text = FILE.read_text(encoding="utf-8")
  assert text.startswith(plans.head())
  assert len(sections_of(text)) == len(plans.SECTIONS)


def test_refusals_are_in_the_table_with_their_sentence():
  text = plans.markdown(plans.shared())
  assert "copies=True" in text and "| no (" in text and "| ε |" in text


def test_a_cell_names_the_accountants_that_answer():
  missing = plans.Refusal("no bound for 3 units", False)
  row = plans.Row(
      "Poisson", "record",
      {("record", "add-or-remove"): {"pld": None, "rdp": missing},
       ("record", "replace-one"): {"pld": missing, "rdp": missing}},
  )
  text = plans.markdown(plans.Section("T", "t", ("record",), (row,)))
  assert "| Poisson | record | ε by pld (1) | – (1) |" in text
  assert "1. (–) no bound for 3 units" in text


def test_like_refusals_share_a_number():
  first = plans.Refusal("level 'a' draws 3, use FixedSize(2)", True)
  second = plans.Refusal("level 'b' draws 5, use FixedSize(4)", True)
  other = plans.Refusal("level 'b' draws 5: fewer", True)
  assert first.rule == second.rule != other.rule


def test_bugs_are_not_taken_for_refusals(monkeypatch):
  def broken(*_, **__):
    raise ValueError("a bug")

  monkeypatch.setattr(plans, "guarantee", broken)
  with pytest.raises(ValueError, match="a bug"):
    plans.one_stage()
  assert not issubclass(plan.PlanError, plan.UnsoundPlanError)
