"""The pages of experiments/results, made from the JSON files there.

  python -m experiments.reproduce --write

Every JSON file of a target becomes a page. README.md has the main table and a
line for each page. No number is written by hand: each is computed from the
JSON, or by the accountant.
"""

import collections
from collections.abc import Mapping
import json
import os
import pathlib
import textwrap
from typing import Any

from episodic_dp import errors
from episodic_dp.accounting import report
from episodic_dp.analysis import membership_attack
from episodic_dp.auditing import claims
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables
from experiments import published
from experiments import runs as runs_lib
from experiments import targets

FOLDER = pathlib.Path(__file__).parent / "results"
_KEYS = ("key", "seed")


def write(folder: str | os.PathLike = FOLDER) -> list[str]:
  """Write README.md and TARGET.md, and pictures that are missing.

  Returns:
    The names of the files.

  Raises:
    RunError: the folder has no results.
  """
  made = pages(folder)
  for name, text in made.items():
    files.write_text(pathlib.Path(folder) / name, text)
  drawn = []
  for name, stored in read(folder).items():
    path = pathlib.Path(folder) / f"{name}.png"
    if "target" in stored and not path.exists():
      plotting.save(picture(targets.load(name), stored["runs"]), path)
      drawn.append(path.name)
  return [*made, *drawn]


def read(folder: str | os.PathLike = FOLDER) -> dict[str, dict[str, Any]]:
  """Return the JSON files of a folder, by name."""
  found = {}
  for path in sorted(pathlib.Path(folder).glob("*.json")):
    found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
  if not found:
    raise errors.RunError(
        f"--out={os.fspath(folder)}: expected results (*.json)"
    )
  return found


def pages(folder: str | os.PathLike = FOLDER) -> dict[str, str]:
  """Return file name -> correct text of every page."""
  stored = read(folder)
  made, titles = {}, {}
  for name, found in stored.items():
    if "target" in found:
      target = targets.load(name)
      made[f"{name}.md"] = page(target, found)
      titles[name] = target.finding(found["runs"]) or f"{target.title}."
    elif name == "audit":
      made["audit.md"] = _audit(found)
      titles[name] = "Measured and claimed epsilon."
    elif name == membership_attack.NAME:
      text = membership_attack.page(found, found["command"])
      made[f"{name}.md"] = f"{text}\n{_how(found)}\n"
      titles[name] = "Guesses of who took part, from the loss after adaptation."
  rows = stored.get("table3", {}).get("rows", [])
  return {"README.md": first_page(rows, titles), **made}


def page(target: Any, stored: Mapping[str, Any]) -> str:
  """Return the page of a target.

  Args:
    target: a `panels.Target`.
    stored: the content of its JSON file.
  """
  parts = [f"# {target.title}", target.about]
  if said := protocol(stored["runs"]):
    parts.append(textwrap.fill(said, 80))
  if found := target.finding(stored["runs"]):
    parts.append(textwrap.fill(f"**{found}**", 80))
  parts += [
      tables.markdown(*target.table(stored["runs"])),
      f"![{stored['target']}]({stored['target']}.png)",
      target.notes,
      _how(stored),
  ]
  return "\n\n".join(filter(None, parts)) + "\n"


_TOGETHER = (
    "**Measured on whole batches, before 2.1**: the accuracies below are of all"
    " query images of a task in one call, normalised by their own statistics."
    " One image a call has less"
    " ([how much](../../docs/decisions/prediction.md))."
)


_MIXED = (
    "**Rows of version 2.0 were measured on whole batches**: of all query"
    " images of a task in one call, normalised by their own statistics. The"
    f" others are of {runs_lib.ALONE}, which is harder"
    " ([how much](../../docs/decisions/prediction.md))."
)


_ALONE = (
    f"Accuracies are of {runs_lib.ALONE}"
    " ([why](../../docs/decisions/prediction.md)), unless a row says otherwise."
)


def protocol(runs: Any) -> str:
  """Return how the queries of the accuracies came, "" without accuracies.

  Outcomes before 2.1 do not say how the queries came: they came together. That
  changes nothing for a network without statistics of a batch.
  """
  if not isinstance(runs, dict):
    return ""
  measured = [
      outcome
      for outcome in runs.values()
      if isinstance(outcome.get("accuracy"), dict)
  ]
  mixed = any("queries" in outcome for outcome in measured)
  for outcome in measured:
    network = outcome.get("config", {}).get("model", {})
    if "queries" not in outcome and _by_batch(network):
      return _MIXED if mixed else _TOGETHER
  return _ALONE if measured else ""


def _by_batch(network: Mapping[str, Any]) -> bool:
  return (
      network.get("norm", "batch") == "batch"
      and network.get("name", "conv4") not in ("mlp", "features")
  )


def _how(stored: Mapping[str, Any]) -> str:
  """List command, code, device and keys."""
  runs = stored.get("runs")
  if not isinstance(runs, dict):
    runs = {}
  commands = [*stored.get("before", ()), stored["command"]]
  lines = [f"`{command}`" for command in commands]
  codes = {*stored.get("code", ())}
  for outcome in runs.values():
    codes.update(outcome.get("code", ()))
  if "committed" in stored:
    lines.append(
        f"results committed at {stored['committed']}; the code that ran is not"
        " recorded, and was that commit or an older one"
    )
  elif codes:
    lines.append(f"code: {', '.join(sorted(codes))}")
  if "device" in stored:
    lines.append(f"on {stored['device']}")
  if runs:
    keys: set[int | None] = set()
    versions: collections.Counter[str] = collections.Counter()
    for outcome in runs.values():
      versions[outcome.get("version", "unknown")] += 1
      keys |= {outcome["labels"].get(name) for name in _KEYS}
    keys.discard(None)
    lines.append(
        ", ".join(
            f"version {name} ({n} of {len(runs)} runs)"
            for name, n in versions.items()
        )
        + "; the stored configuration of a run has the form of its version"
    )
    lines.append(
        f"{len(runs)} runs; keys of a setting: {max(len(keys), 1)} at most"
    )
  return "## How it was made\n\n" + "\n".join(f"- {line}" for line in lines)


@plotting.styled
def picture(target: Any, outcomes: Mapping[str, Any]) -> plotting.Figure:
  """Return the matplotlib figure of a target."""
  figure = plotting.figure(4.8, width=8.0)
  target.draw(outcomes, figure)
  return figure


def _audit(result: dict[str, Any]) -> str:
  return f"""\
# Measured and claimed epsilon

An attacker who knows all but one record distinguishes runs with it from runs
without it; `episodic_dp/auditing/bounds.py` describes the confidence, and
`canaries.py` the record. A sound claim is never below the measured value. It
may be far above if the runs are too few to measure rates as precisely as a
small ε needs.

```
{claims.table(result)}
```

![claimed against measured over the steps](audit.png)

More sound plans: `python -m experiments.reproduce
--target=audited_plans --scale=cpu --workdir=DIR`.

{_how(result)}
"""


# The first page ---------------------------------------------------------------

_LEARNERS = {
    "maml": "MAML", "protonet": "prototypical network", "ridge": "ridge head",
}
_HEADER = (
    "task", "published, not private", "published, private",
    "its ε: claimed, true", "ours, private", "its true ε",
    "ours, not private", "untrained", "queries", "version",
)
_TEXT = """\
# Results

The table compares the accuracies of "Meta-Learning with Differential Privacy"
(DP-MAML, Table 3) with those of this library, on new classes, in percent. Rows
of one image a call come first, and of those the comparison least favourable to
this library. Every page here is made from the JSON file of its name by

```sh
python -m experiments.reproduce --write
```

{together}{table}

ε is that of a participant, who owns a task, at δ = 1e-6. *Claimed* is the
paper's own statement for its run. *True* is the ε that is proved here for the
sampler that ran: a random subset of fixed size a step in the paper's Algorithm
1, Poisson sampling in ours. With the same number of tasks a step by Poisson the
published settings would spend {omniglot} (Omniglot) and {mini_imagenet}
(mini-ImageNet). Widths, queries, tasks and steps differ from the published
ones; the page of a row describes them, and how they were chosen. *Untrained* is
our network before its first step. *Version* is that of the library that trained
the network; a commit follows where the row was made while 2.0.0 was written,
and its configuration is not of 2.0.0's form.

## All pages

{pages}

The printed errors are in the
[errata](../../episodic_dp/accounting/README.md#14-errata), times are in
[benchmarks](../benchmarks/README.md), and the result of `make train` is in
the [README](../../README.md).
"""


def first_page(
    rows: list[dict[str, Any]], titles: Mapping[str, str]
) -> str:
  """Return README.md.

  Args:
    rows: cells of Table 3 from table3.json.
    titles: name of a page -> one line.
  """
  table, cell = published.TABLE3, published.cell
  private = [r for r in rows if r["private"] and cell(r) in table]

  def place(row: Mapping[str, Any]) -> tuple[bool, float]:
    alone = row.get("queries") == runs_lib.ALONE
    return not alone, row["accuracy"] - table[cell(row)][1]

  private.sort(key=place)
  lines = [_line(row, rows) for row in private]
  for missing in sorted({*table}.difference(map(cell, private))):
    lines.append([published.task(*missing), *["-"] * (len(_HEADER) - 1)])
  together, alone = "", [r.get("queries") == runs_lib.ALONE for r in private]
  if not all(alone):
    text = _MIXED if any(alone) else _TOGETHER
    together = textwrap.fill(text, 80) + "\n\n"
  omniglot = published.epsilon("omniglot", poisson=True)
  mini_imagenet = published.epsilon("mini_imagenet", poisson=True)
  return _TEXT.format(
      together=together,
      table=tables.markdown(_HEADER, lines),
      pages="\n".join(
          f"- [{name}]({name}.md): {text}" for name, text in titles.items()
      ),
      omniglot=report.rounded_up(omniglot),
      mini_imagenet=report.rounded_up(mini_imagenet),
  )


def _line(row: Mapping[str, Any], rows: list[dict[str, Any]]) -> list[str]:
  """Return a private row with the published one and ours without privacy."""
  cell = published.cell(row)
  plain, private = published.TABLE3[cell]
  alike = ("data", "way", "shot", "learner", "clipping", "width")
  others = []
  for other in rows:
    same = all(other.get(name) == row.get(name) for name in alike)
    if same and not other["private"]:
      others.append(f"{other['accuracy']:.1f}")
  by = _LEARNERS.get(row["learner"], row["learner"])
  if row.get("clipping", "fixed") != "fixed":
    by += f", {row['clipping']} clipping"
  if row.get("start", "random") != "random":
    by += f" from {row['start']}"
  spent, untrained = "no guarantee", "-"
  if isinstance(row["epsilon"], float):
    spent = report.rounded_up(row["epsilon"])
  if row.get("untrained") is not None:
    untrained = f"{row['untrained']:.1f}"
  return [
      f"[{published.task(*cell)}](table3.md)",
      f"{plain:.1f}",
      f"{private:.1f}",
      f"{published.EPSILON:g}, "
      + report.rounded_up(published.epsilon(cell[0], poisson=False)),
      f"{row['accuracy']:.1f} ({by}; keys: {row['keys']})",
      spent,
      *(others or ["-"]),
      untrained,
      row.get("queries") or "whole batches",
      row.get("version", "-"),
  ]
