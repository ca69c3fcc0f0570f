"""Verdicts, notes and tables of the pages of this folder."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import re
import textwrap
from typing import Self

from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp.output import tables

# Errors that the library raises without a guarantee.
REFUSALS = (plan_lib.PlanError, plan_lib.UnsoundPlanError)
# For pages about guarantees: enough noise and few enough steps that every sound
# combination has a finite epsilon.
STEPS, DELTA, NOISE = 8, 1e-5, 64.0

Cell = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Refusal:
  """The reason why there is no epsilon.

  Attributes:
    sentence: the error's text.
    unsound: whether no proof is known (`UnsoundPlanError`); otherwise the parts
      do not fit together (`PlanError`).
  """

  sentence: str
  unsound: bool

  @classmethod
  def of(cls, error: ValueError) -> Self:
    """Return the refusal that an error states."""
    return cls(str(error), isinstance(error, plan_lib.UnsoundPlanError))

  @property
  def rule(self) -> str:
    """Return the sentence without names and numbers of the example."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\w+\([^)]*\)|\d+", "…", self.sentence)


class Notes:
  """Numbered sentences below a table; refusals of one rule share a number.

  Args:
    names: words that do not distinguish rules, such as a learner's name.
  """

  def __init__(self, names: Iterable[str] = ()) -> None:
    self._names = re.compile("|".join(rf"\b{n}\b" for n in names) or "(?!)")
    self._found: dict[tuple[str, bool], tuple[int, str]] = {}

  def number(self, sentence: str, rule: str = "", unsound: bool = True) -> str:
    """Return a number such as (3); the first sentence of a rule is kept."""
    key = (rule or sentence, unsound)
    number, _ = self._found.setdefault(key, (len(self._found) + 1, sentence))
    return f"({number})"

  def verdict(self, *refusals: Refusal) -> str:
    """Return no (3) or – (3), with the number of every rule."""
    verdict = "–"
    if any(refusal.unsound for refusal in refusals):
      verdict = "no"
    return f"{verdict} {self.numbers(*refusals)}"

  def numbers(self, *refusals: Refusal) -> str:
    """Return numbers such as (3) (5)."""
    return " ".join(dict.fromkeys(
        self.number(r.sentence, self._names.sub("…", r.rule), r.unsound)
        for r in refusals
    ))

  def lines(self) -> list[str]:
    """Return the numbered sentences, as Markdown."""
    lines = []
    for (_, unsound), (number, sentence) in self._found.items():
      if not unsound:
        sentence = f"(–) {sentence}"
      lines.append(f"{number}. {sentence}")
    return lines


@dataclasses.dataclass(frozen=True)
class Table:
  """Columns and rows; numbers as computed, shown with few digits."""

  columns: tuple[str, ...]
  rows: Sequence[tuple[Cell, ...]]

  def markdown(self) -> str:
    """Return a table of GitHub-flavoured Markdown."""
    return tables.markdown(
        self.columns, [[shown(cell) for cell in row] for row in self.rows]
    )


@dataclasses.dataclass(frozen=True)
class Section:
  """A table below a title and a short text, above its notes."""

  title: str
  text: str
  table: Table
  notes: Notes

  def markdown(self) -> str:
    """Return the section of a page."""
    parts = [
        f"## {self.title}",
        textwrap.fill(self.text, 80),
        self.table.markdown(),
        "\n".join(self.notes.lines()),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def filled(text: str, mark: str, found: Mapping[str, Table]) -> str:
  """Return a page with its tables replaced by these.

  Above each table is "<!-- MARK: NAME -->" and an empty line.

  Raises:
    RunError: a table has no place, or a place has no table.
  """
  places = re.findall(rf"<!-- {mark}: (\w+) -->", text)
  if sorted(places) != sorted(found):
    raise errors.RunError(
        f"tables {sorted(found)} and places {sorted(places)} of a page differ:"
        f" mark each with <!-- {mark}: NAME --> and an empty line"
    )

  def replaced(place: re.Match[str]) -> str:
    below = "" if place[3] else "\n"
    return f"{place[1]}{found[place[2]].markdown()}\n{below}"

  place = rf"(<!-- {mark}: (\w+) -->\n\n)((?:\|.*\n)*)"
  return re.sub(place, replaced, text)


def shown(cell: Cell) -> str:
  """Return a cell as it is printed."""
  if isinstance(cell, float):
    return "< 1e-15" if 0 < cell < 1e-15 else f"{cell:.4g}"
  return "-" if cell is None else str(cell)
