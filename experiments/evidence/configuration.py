"""The page of all configuration fields, read from their dataclasses."""

import itertools
import pathlib
from typing import Any

from episodic_dp import data
from episodic_dp.config import pvi
from episodic_dp.config import reference
from episodic_dp.config import run_config
from episodic_dp.output import tables

FILE = pathlib.Path(__file__).parents[2] / "docs" / "configuration.md"
_HEAD = """# Configuration fields

After this page you know every field of a config file, its type, default and
unit. `--config.FIELD=VALUE` sets one from the command line; a field without a
default is required. `episodic-dp train --help` prints the first table.

"""


def document() -> str:
  """Return the page: fields of runs, of each data set, and of PVI."""
  parts = [_HEAD, "## `episodic-dp train`\n", _tables(run_config.RunConfig)]
  for name in data.NAMES:
    parts.append(f"## `data.options` of {name}\n")
    options = type(data.read_options(name, {}))
    parts.append(_table(list(reference.fields(options))))
  parts += ["## `episodic-dp pvi`\n", _tables(pvi.Config)]
  return "\n".join(parts) + "\n"


def _tables(kind: Any) -> str:
  """Return one table for each section of a config, single fields first."""
  rows = sorted(reference.fields(kind), key=lambda row: "." in row.path)
  sections = itertools.groupby(rows, lambda r: r.path.rpartition(".")[0])
  return "\n".join(
      f"### {name or 'Single fields'}\n\n{_table(list(section))}"
      for name, section in sections
  )


def _table(rows: list[reference.Field]) -> str:
  """Return a table of fields, with an empty line below."""
  cells = [
      (f"`{r.path}`", r.type, f"`{r.default}`" if r.default else "required",
       r.meaning)
      for r in rows
  ]
  header = ("field", "type", "default", "meaning")
  return tables.markdown(header, cells) + "\n"
