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
  names, *body = (
      [quoting.printable(str(c)) for c in row] for row in (header, *rows)
  )
  columns = list(zip(names, *body))
  widths = [max(map(len, column)) for column in columns]
  right = [
      k > 0 and all(_NUMBER.match(cell) for cell in cells)
      for k, (_, *cells) in enumerate(columns)
  ]
  lines = [names, ["-" * width for width in widths], *body]
  return "\n".join(
      "  ".join(
          cell.rjust(width) if flush else cell.ljust(width)
          for cell, width, flush in zip(line, widths, right)
      ).rstrip()
      for line in lines
  )


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Format a table of GitHub-flavoured Markdown; cells by `str`."""
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
  """Format a cell of Markdown; a bar would end it."""
  return re.sub(r"(?<!\\)\|", r"\|", quoting.printable(str(value)))
