"""A comparison of runs (`compare`) as a table for people, CSV and JSON."""

import csv
import dataclasses
import io
import json
import math
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.analysis import compare
from episodic_dp.output import tables
from episodic_dp.training import reporting

_SCORES = {
    "validation": "validation", "single": "test", "ensemble": "test, ensemble"
}
_NOTES = """\
± of a run: 95 % interval over tasks; of a mean: 95 % interval over its runs
(Student's t). ε: of each run alone, of a mean's runs the largest; what all of
them together cost the same people: episodic-dp account --ledger=DIR,DIR"""
_NOTE_OF_TIMES = """\
time: of all processes, from WORKDIR/private/; it tells how many tasks were
drawn, so leave it out of what you publish"""

_Row = compare.Run | compare.Mean


def text(found: compare.Comparison) -> str:
  """The table, and what its numbers are."""
  rows = _rows(found)
  scores, levels = _scores(rows), _levels(rows)
  deltas = {s.delta for row in rows for s in row.stated.values()}
  one_delta = f", δ = {deltas.pop():g}" if len(deltas) == 1 else ""
  timed = any(row.seconds is not None for row in rows)
  header = [
      "run", "steps", *(_title(rows, score) for score in scores),
      *(f"ε {level}{one_delta}" for level in levels), *["time"] * timed,
  ]  # fmt: skip
  body = [
      [
          row.name,
          _steps(row),
          *(_score(row, name) for name in scores),
          *(_epsilon(row, level, not one_delta) for level in levels),
          *["-" if row.seconds is None else f"{row.seconds:.0f} s"] * timed,
      ]
      for row in rows
  ]
  notes = [_NOTES, *[_NOTE_OF_TIMES] * timed]
  return "\n".join([tables.text(header, body), "", *notes])


def as_csv(found: compare.Comparison) -> str:
  """A line a run or mean; an empty field for what is not known."""
  rows = _rows(found)
  lines = []
  for row in rows:
    line: dict[str, Any] = {"name": row.name}
    if isinstance(row, compare.Mean):
      line |= {"kind": "mean", "runs": len(row.of), "finished": True}
    else:
      line |= {"kind": "run", "runs": 1, "finished": row.finished}
      line |= {"steps": row.steps, "planned_steps": row.planned_steps}
    for name, score in row.scores.items():
      line |= {
          f"{name}_{score.kind}": score.mean, f"{name}_low": score.low,
          f"{name}_high": score.high, f"{name}_step": score.step,
      }  # fmt: skip
    for level, stated in row.stated.items():
      line |= {
          f"epsilon_{level}": stated.epsilon, f"delta_{level}": stated.delta
      }
    lines.append(line | {"seconds": row.seconds})
  first = ("kind", "name", "runs", "finished", "steps", "planned_steps")
  columns = dict.fromkeys((*first, *(name for line in lines for name in line)))
  columns["seconds"] = columns.pop("seconds")  # The last one.
  stream = io.StringIO()
  writer = csv.DictWriter(stream, [*columns], lineterminator="\n")
  writer.writeheader()
  writer.writerows(lines)
  return stream.getvalue()


def as_json(found: compare.Comparison) -> str:
  """Strict JSON: {"runs", "means"}; infinity and NaN are strings."""
  runs = [
      dataclasses.asdict(run) | {"finished": run.finished}
      for run in found.runs
  ]
  for run in runs:
    del run["setting"], run["validations"]
  means = [dataclasses.asdict(mean) for mean in found.means]
  value = _plain({"runs": runs, "means": means})
  return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def _rows(found: compare.Comparison) -> list[_Row]:
  """Runs of one setting, and their mean below them."""
  rows: list[_Row] = []
  for runs, mean in found.groups:
    rows += runs
    rows += [mean] if mean else []
  return rows


def _scores(rows: list[_Row]) -> list[str]:
  return [n for n in _SCORES if any(n in row.scores for row in rows)]


def _levels(rows: list[_Row]) -> list[str]:
  return [*dict.fromkeys(level for row in rows for level in row.stated)]


def _title(rows: list[_Row], name: str) -> str:
  kinds = {row.scores[name].kind for row in rows if name in row.scores}
  what = reporting.words(kinds.pop()) if len(kinds) == 1 else "score"
  first, comma, rest = _SCORES[name].partition(",")
  return f"{first} {what}{comma}{rest}"


def _steps(row: _Row) -> str:
  if isinstance(row, compare.Mean):
    return "finished"
  if row.finished:
    return str(row.steps)
  planned = "?" if row.planned_steps is None else row.planned_steps
  return f"{row.steps} of {planned}"


def _score(row: _Row, name: str) -> str:
  """The score, with its step where that is not the run's last one."""
  if name not in row.scores:
    return "-"
  score = row.scores[name]
  old = isinstance(row, compare.Run) and name != "ensemble" and (
      score.step != row.steps
  )
  return f"{score} (step {score.step})" if old else str(score)


def _epsilon(row: _Row, level: str, with_delta: bool) -> str:
  """Rounded up; with its steps where it is not for those that were done."""
  if level not in row.stated:
    return "-"
  stated = row.stated[level]
  if math.isinf(stated.epsilon):
    return "none"
  text = report.rounded_up(stated.epsilon)
  if with_delta:
    text += f" at {stated.delta:g}"
  if isinstance(row, compare.Run) and stated.steps != row.steps:
    text += f" (of {stated.steps} steps)"
  return text


def _plain(value: Any) -> Any:
  """The same without numbers that JSON has none for."""
  if isinstance(value, dict):
    return {k: _plain(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [_plain(v) for v in value]
  return reporting.number(value) if isinstance(value, float) else value
