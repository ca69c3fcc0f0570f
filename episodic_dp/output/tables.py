"""Write tables for people, as plain text and as Markdown."""

from collections.abc import Iterable, Sequence
import re
from typing import Any

from episodic_dp.output import quoting

_NUMBER = re.compile(r"[-+±≤≥<>]? ?\d|-?inf\b|-$")


def text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Write plain text columns below a header and a rule.

  Columns of numbers (with units or intervals behind them, "-" for none) are
  flush right; the first column and columns of words flush left.

  Args:
    header: the names of the columns.
    rows: as many cells each; shown by `str`.
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
  """Write a table of GitHub-flavoured Markdown; cells are shown by `str`."""
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
  """Write a cell of Markdown, whose end would be a bar."""
  return re.sub(r"(?<!\\)\|", r"\|", quoting.printable(str(value)))
