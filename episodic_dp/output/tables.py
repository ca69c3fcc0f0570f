"""Format tables for people, as plain text and as Markdown."""

from collections.abc import Iterable, Sequence
import re
from typing import Any

from episodic_dp.output import quoting

_NUMBER = re.compile(r"[-+±≤≥<>]? ?\d|-?inf\b|-$")


def text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Format plain text columns below a header and a rule.

  Columns of numbers (with units or intervals, "-" for none) are right-aligned;
  the first column and columns of words are left-aligned.

  Args:
    header: names of the columns.
    rows: rows with one cell for each column; formatted by `str`.
  """
  columns: list[list[str]] = []
  for name, *cells in zip(header, *rows):
    cells = [quoting.printable(str(cell)) for cell in (name, *cells)]
    width = max(map(len, cells))
    align = str.ljust
    if columns and all(map(_NUMBER.match, cells[1:])):
      align = str.rjust
    cells.insert(1, "-" * width)
    columns.append([align(cell, width) for cell in cells])
  return "\n".join("  ".join(line).rstrip() for line in zip(*columns))


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Format a table of GitHub-flavoured Markdown; cells by `str`."""
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
  """Format a cell of Markdown; a bar would end it."""
  return re.sub(r"(?<!\\)\|", r"\|", quoting.printable(str(value)))
