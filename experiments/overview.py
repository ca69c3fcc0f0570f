"""The first page of experiments/results: what was published, and what is here.

One row a task of the published Table 3 and learner, computed from table3.json.
"""

from collections.abc import Mapping
import textwrap
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.output import tables
from experiments import published

Row = Mapping[str, Any]

_LEARNERS = {
    "maml": "MAML", "protonet": "prototypical network", "ridge": "ridge head",
}  # fmt: skip
_HEADER = (
    "task", "published, not private", "published, private",
    "its ε: claimed, true", "ours, private", "its true ε",
    "ours, not private", "untrained",
)  # fmt: skip
_TEXT = """\
# Results

The accuracies of "Meta-Learning with Differential Privacy" (DP-MAML, Table 3)
beside those of this library, on new classes, in percent. Every page here is
made from the JSON file of its name by

```sh
python -m experiments.reproduce --write
```

{least}

{table}

ε is a participant's, of whom each owns a task, at δ = 1e-6. *Claimed* is what
the paper states for its own run. *True* is the ε that is proved here for the
sampler that ran: a random subset of fixed size a step in the paper's Algorithm
1, Poisson sampling in ours. With as many tasks a step by Poisson the published
settings would spend {poisson}.
Widths, queries, tasks and steps differ from the published ones; the page of a
row says how, and how they were chosen. Where our run without privacy saw fewer
tasks than the private one, which the page says too, their distance is less than
the price of privacy. *Untrained* is our network before its first step.

{missing}

## All pages

{pages}

What is wrong in print is in the
[errata](../../episodic_dp/accounting/README.md#10-errata), times and memory are
in [benchmarks](../benchmarks/README.md), and what `make train` reaches is in
the [README](../../README.md).
"""


def document(
    stored: Mapping[str, Mapping[str, Any]], findings: Mapping[str, str]
) -> str:
  """README.md.

  Args:
    stored: name -> what a JSON file of results holds.
    findings: name of a page -> one line.
  """
  ours = list(stored.get("table3", {}).get("rows", ()))
  lines, missing = [], []
  for cell in published.TABLE3:
    private = sorted(
        (r for r in ours if _cell(r) == cell and r["private"]),
        key=lambda row: row["accuracy"],
    )
    if not private:
      missing.append(_task(*cell))
      lines.append(_line(cell, None, ours))
    lines += [_line(cell, row, ours) for row in private]
  spent = {
      f"{report.rounded_up(published.epsilon_by_poisson(data))} ({name})"
      for data, name in published.NAMES.items() if data != "cifar_fs"
  }  # fmt: skip
  text = _TEXT.format(
      least=textwrap.fill(_least(ours), 80),
      table=tables.markdown(_HEADER, lines),
      poisson=" and ".join(sorted(spent)),
      missing=textwrap.fill(
          f"Not run yet: {', '.join(missing)}." if missing else "", 80
      ),
      pages="\n".join(
          f"- [{name}]({name}.md): {text}" for name, text in findings.items()
      ),
  )
  return text.replace("\n\n\n", "\n")


def _cell(row: Row) -> tuple[str, int, int]:
  return row["data"], row["way"], row["shot"]


def _task(data: str, way: int, shot: int) -> str:
  return f"{published.NAMES[data]} {way}-way {shot}-shot"


def _line(
    cell: tuple[str, int, int], row: Row | None, ours: list[Row]
) -> list[str]:
  plain, private = published.TABLE3[cell]
  spent = report.rounded_up(published.epsilon_as_drawn(cell[0]))
  task = _task(*cell) if row is None else f"[{_task(*cell)}](table3.md)"
  line = [
      task, f"{plain:.1f}", f"{private:.1f}",
      f"{published.EPSILON:g}, {spent}",
  ]  # fmt: skip
  if row is None:
    return [*line, "-", "-", "-", "-"]
  beside = [
      f"{r['accuracy']:.1f}"
      for r in ours
      if not r["private"] and _cell(r) == cell and _alike(r, row)
  ]
  return [
      *line,
      f"{row['accuracy']:.1f} ({_by(row)})",
      report.rounded_up(row["epsilon"]) if _proved(row) else "no guarantee",
      beside[0] if beside else "-",
      f"{row['untrained']:.1f}" if row.get("untrained") is not None else "-",
  ]


def _alike(row: Row, other: Row) -> bool:
  fields = ("learner", "clipping", "query")
  return all(row.get(k) == other.get(k) for k in fields)


def _proved(row: Row) -> bool:
  """Whether a private run has an epsilon; "inf" or None stands for none."""
  return isinstance(row["epsilon"], float)


def _by(row: Row) -> str:
  """Such as "MAML, quantile clipping, 1 query, 3 keys"."""
  learner = str(row["learner"])
  parts = [_LEARNERS.get(learner, learner)]
  if row.get("clipping", "fixed") != "fixed":
    parts.append(f"{row['clipping']} clipping")
  for name in ("query", "keys"):
    if row.get(name) is not None:
      number = row[name] if isinstance(row[name], int) else len(row[name])
      words = {"query": ("query", "queries"), "keys": ("key", "keys")}[name]
      parts.append(f"{number} {words[number != 1]}")
  return ", ".join(parts)


def _least(ours: list[Row]) -> str:
  """The comparison with the published private runs least in our favour."""
  private = [
      r for r in ours
      if r["private"] and _proved(r) and _cell(r) in published.TABLE3
  ]  # fmt: skip
  if not private:
    return "No run of ours stands beside them yet."
  row = min(
      private, key=lambda r: r["accuracy"] - published.TABLE3[_cell(r)][1]
  )
  plain, theirs = published.TABLE3[_cell(row)]
  more = row["accuracy"] - theirs
  return (
      "**The comparison least in our favour first:** on"
      f" {_task(*_cell(row))} we have {row['accuracy']:.1f} ({_by(row)}) at a"
      f" true ε of {report.rounded_up(row['epsilon'])}, {abs(more):.1f} points"
      f" {'above' if more >= 0 else 'below'} the published private network"
      f" and {plain - row['accuracy']:.1f} below the published one without"
      " privacy."
  )
