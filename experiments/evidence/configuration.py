"""The page of all configuration fields, read from their dataclasses."""

from collections.abc import Iterable
import pathlib
from typing import Any

from episodic_dp import data
from episodic_dp import run
from episodic_dp.config import pvi
from episodic_dp.config import reference
from episodic_dp.output import tables

FILE = pathlib.Path(__file__).parents[2] / "docs" / "configuration.md"
_HEAD = """# Configuration fields

After this page you know every field of a config file, its type, default and
unit. `--config.FIELD=VALUE` sets one from the command line; a field without a
default is required. `episodic-dp train --help` prints the first table.

"""


def document() -> str:
  """Return the page: fields of runs, of each data set, and of PVI."""
  parts = [_HEAD, "## `episodic-dp train`\n", _tables(run.Run)]
  for name in data.NAMES:
    options = type(data.read_options(name, {}))
    parts += [
        f"## `data.options` of {name}\n", _table(reference.fields(options))
    ]
  parts += ["## `episodic-dp pvi`\n", _tables(pvi.Config), ""]
  return "\n".join(parts)


def _tables(kind: Any) -> str:
  """Return one table for each section of a config, single fields first."""
  sections: dict[str, list[tuple[str, str, str, str]]] = {"": []}
  for row in reference.fields(kind):
    sections.setdefault(row[0].rpartition(".")[0], []).append(row)
  return "\n".join(
      f"### {name or 'Single fields'}\n\n{_table(section)}"
      for name, section in sections.items()
  )


def _table(rows: Iterable[tuple[str, str, str, str]]) -> str:
  """Return a table of fields, with an empty line below."""
  cells = []
  for path, words, default, meaning in rows:
    shown = f"`{default}`" if default else "required"
    cells.append((f"`{path}`", words, shown, meaning))
  return tables.markdown(("field", "type", "default", "meaning"), cells) + "\n"
