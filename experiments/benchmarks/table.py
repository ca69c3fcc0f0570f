"""The table of README.md, from the JSON files beside it."""

from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
import statistics
from typing import Any

from episodic_dp.output import tables

FOLDER = pathlib.Path(__file__).parent
README = FOLDER / "README.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def results(folder: pathlib.Path = FOLDER) -> Iterator[tuple[str, Any]]:
  """(name of the benchmark, what it printed), of those with rows."""
  for path in sorted(folder.glob("*.json")):
    result = json.loads(path.read_text(encoding="utf-8"))
    if result.get("rows"):
      yield path.stem, result


def render(folder: pathlib.Path = FOLDER, names: Sequence[str] = ()) -> str:
  """The tables in Markdown, of these benchmarks or of all."""
  rows, machines = [], []
  for name, result in results(folder):
    if names and name not in names:
      continue
    rows += [
        (row["what"], _target(row), _measured(row), _reached(row), name)
        for row in result["rows"]
    ]
    machine = result["machine"]
    free = [
        case["machine_free"]
        for case in result["cases"].values()
        if case.get("machine_free") is not None
    ]
    machines.append((
        name,
        machine["device"],
        machine["cpus"],
        f"{machine['load']:.1f}, {machine['load_after']:.1f}",
        f"{statistics.median(free):.0%}" if free else "-",
    ))
  measured = tables.markdown(
      ("what", "target", "measured", "reached", "benchmark"), rows
  )
  where = tables.markdown(
      ("benchmark", "device", "CPUs", "load before and after", "machine free"),
      machines,
  )
  return f"{measured}\n\n{where}\n"


def replaced(text: str, table: str) -> str:
  """README's text with another table.

  Raises:
    ValueError: the marks are missing.
  """
  if text.count(BEGIN) != 1 or text.count(END) != 1:
    raise ValueError(
        f"README.md has no one place for the table: put {BEGIN.strip()} and"
        f" {END.strip()} around it, each on a line of its own"
    )
  before, rest = text.split(BEGIN)
  after = rest.split(END)[1]
  return f"{before}{BEGIN}{table}{END}{after}"


def _number(value: float, unit: str) -> str:
  text = f"{value:.3g}"
  if abs(value) >= 1000:
    text = f"{value:.0f}"
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
  return f"{text} ({'; '.join(notes)})" if notes else text


def _reached(row: Mapping[str, Any]) -> str:
  return {True: "yes", False: "no", None: "-"}[row["reached"]]
