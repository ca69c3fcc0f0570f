"""The table of README.md, from the JSON files next to it."""

from collections.abc import Mapping, Sequence
import json
import pathlib
from typing import Any

from episodic_dp.output import tables

FOLDER = pathlib.Path(__file__).parent
README = FOLDER / "README.md"
GROWTH = "growth"
_REACHED = {True: "yes", False: "no", None: "-"}
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def render(folder: pathlib.Path = FOLDER, names: Sequence[str] = ()) -> str:
  """Return the tables in Markdown, of these benchmarks or of all.

  Misses come first. Rows of how cost grows have a table of their own.
  """
  rows: list[tuple[str, ...]] = []
  growing: list[tuple[str, ...]] = []
  machines = []
  for path in sorted(folder.glob("*.json")):
    result = json.loads(path.read_text(encoding="utf-8"))
    if not result.get("rows") or (names and path.stem not in names):
      continue
    for row in result["rows"]:
      reached = _REACHED[row["reached"]]
      table = growing if path.stem == GROWTH else rows
      table.append(
          (row["what"], _target(row), _measured(row), reached, path.stem)
      )
    machine = result["machine"]
    loads = [machine[k] for k in ("load", "load_after") if k in machine]
    load = ", ".join(f"{value:.1f}" for value in loads) or "-"
    code = machine.get("code", "-")
    machines.append((path.stem, machine["device"], machine["cpus"], load, code))
  head = ("what", "target", "measured", "reached", "benchmark")
  shown = []
  for table in filter(None, (rows, growing)):
    table.sort(key=lambda row: row[head.index("reached")] != _REACHED[False])
    shown.append(tables.markdown(head, table))
  where = tables.markdown(
      ("benchmark", "device", "CPUs", "load before and after", "code"),
      machines,
  )
  return "\n\n".join([*shown, where]) + "\n"


def replaced(text: str, table: str) -> str:
  """Return README's text with another table."""
  before, _, rest = text.partition(BEGIN)
  return f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}"


def _number(value: float, unit: str) -> str:
  text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
  return f"{text}{unit}" if unit in ("×", "%") else f"{text} {unit}".rstrip()


def _target(row: Mapping[str, Any]) -> str:
  for key, sign in (("at_most", "≤"), ("at_least", "≥")):
    if row.get(key) is not None:
      return f"{sign} {_number(row[key], row['unit'])}"
  return "-"


def _measured(row: Mapping[str, Any]) -> str:
  text, unit = _number(row["value"], row["unit"]), row["unit"]
  notes = []
  if row.get("least") is not None:
    notes.append(f"{_number(row['least'], '')}–{_number(row['most'], '')}")
  if row.get("cpu") is not None:
    notes.append(f"by processor time {_number(row['cpu'], unit)}")
  if row.get("note"):
    notes.append(row["note"])
  if notes:
    text += f" ({'; '.join(notes)})"
  return text
