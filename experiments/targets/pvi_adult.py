"""Private partitioned variational inference on UCI Adult, by ten clients.

Three splits of the rows among clients (`pvi.adult.SPLITS`), three budgets and
none, three keys each, and without privacy one client that holds all rows, which
is global variational inference. Settings were chosen on the public validation
rows, see docs/pvi.md. The column "published" has the numbers that were
published for private PVI with these clients.
"""

from collections.abc import Sequence
import math
import pathlib
from typing import Any

import numpy as np

from episodic_dp.accounting import report
from episodic_dp.analysis import pvi_plots
from episodic_dp.config import pvi as config_lib
from episodic_dp.output import plotting
from episodic_dp.pvi import loop
from experiments import provenance
from experiments import runs as runs_lib
from experiments.targets import panels

EPSILONS = (0.5, 0.75, 1.0, None)
NOTES = """\
What was chosen how, and what differs from the published setting, is in
[docs/pvi.md](../../docs/pvi.md). ε holds for each client at its own δ, a power
of ten from 1/(10 N) to 1/N for N rows: where two are given, the larger one is
that of the clients with less than 1000 rows. "ε reached" is the largest ε of
all clients, and holds for every row at the larger δ.
"""
SPLITS = ("homogeneous", "inhomogeneous_1", "inhomogeneous_2")
_GLOBAL = "one_client"
# (split, epsilon) -> the lowest and the highest published test accuracy.
PUBLISHED = {
    ("homogeneous", 0.5): (0.840, 0.846),
    ("homogeneous", 0.75): (0.847, 0.850),
    ("homogeneous", 1.0): (0.848, 0.852),
    ("homogeneous", None): (0.8542, 0.8542),
    ("inhomogeneous_1", 0.5): (0.840, 0.845),
    ("inhomogeneous_1", 0.75): (0.847, 0.849),
    ("inhomogeneous_1", 1.0): (0.847, 0.852),
    ("inhomogeneous_2", 0.5): (0.815, 0.821),
    ("inhomogeneous_2", 0.75): (0.820, 0.825),
    ("inhomogeneous_2", 1.0): (0.825, 0.829),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Every cell; at the smallest scale one round of one of each kind."""
  smoke = scale == "smoke"
  cells = [
      (split, epsilon, key)
      for split in SPLITS[: 1 if smoke else None]
      for epsilon in EPSILONS[2 if smoke else 0 :]
      for key in range(1 if smoke else 3)
  ]
  cells += [(_GLOBAL, None, key) for key in range(1 if smoke else 3)]
  return [_run(*cell, smoke) for cell in cells]


def _run(
    split: str, epsilon: float | None, key: int, smoke: bool
) -> runs_lib.Run:
  private = f"epsilon={epsilon}" if epsilon else "private=0,rounds=100"
  return runs_lib.Run(
      name=f"{split}_{epsilon or 'not_private'}_{key}",
      config="pvi.adult",
      arguments=f"split={split},{private}{',rounds=1' * smoke}",
      labels=dict(split=split, epsilon=epsilon, key=key),
      program="pvi",
  )


def finish(
    run: runs_lib.Run,
    folder: str,
    *,
    shared: dict[str, Any],
    data_dir: str | None,
) -> dict[str, Any]:
  """The outcome of a run, which is taken."""
  config = config_lib.parse(run.load())
  table_ = str(config.table)
  if table_ not in shared:
    shared[table_] = config_lib.load(config, data_dir)
  rows = shared[table_]
  spec = config_lib.build(config, rows)
  # Equal clients and visits: compiled once.
  visits = f"{config.table} {config.visit} {config.server} {config.model}"
  if visits not in shared:
    shared[visits] = loop.make_federation(spec)
  workdir = pathlib.Path(folder) / run.name
  code = provenance.begin(workdir)
  result = loop.run(spec, workdir, federation=shared[visits])
  if result.stopped not in ("done", "budget"):
    raise runs_lib.Interrupted(result.stopped)
  found = {
      name: loop.score(
          spec.learner, result.posterior, config_lib.examples(part)
      )
      for name, part in (("validation", rows.validation), ("test", rows.test))
  }
  reached = result.ledgers.worst()
  return runs_lib.record(run, folder, {
      "code": code,
      "rounds": result.rounds,
      "seconds": round(result.seconds, 1),
      "epsilon_reached": None if run.labels["epsilon"] is None else reached[0],
      # Of each kind of client: its delta, and how often it was visited.
      "clients": sorted(
          set(zip(spec.budgets.deltas, result.visits)), reverse=True
      ),
      "accuracy": found["test"][0],
      "log_likelihood": found["test"][1],
      "validation_accuracy": found["validation"][0],
      "validation_log_likelihood": found["validation"][1],
      "config": spec.config,
  })


def more(outcomes: panels.Outcomes) -> dict[str, Any]:
  """What the JSON holds besides the runs."""
  rows: list[dict[str, Any]] = []
  alone: list[dict[str, Any]] = []
  for outcome in outcomes.values():
    row = {
        **outcome["labels"],
        "accuracy": outcome["accuracy"],
        "log_likelihood": outcome["log_likelihood"],
    }
    (alone if row["split"] == _GLOBAL else rows).append(row)
  return {"rows": rows, "global": alone}


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per split and budget."""
  header = [
      "split", "ε at most", "ε reached", "δ of clients", "visits a client",
      "test accuracy", "published", "test log likelihood", "seconds",
  ]  # fmt: skip
  rows = []
  for found in panels.group(outcomes, "key").values():
    labels = found[0]["labels"]
    split, epsilon = labels["split"], labels["epsilon"]
    reached = max(o["epsilon_reached"] or 0 for o in found)
    published = PUBLISHED.get((split, epsilon))
    deltas, visits = zip(*found[0]["clients"])
    rows.append([
        split.replace("_", " "),
        "not private" if epsilon is None else f"{epsilon:g}",
        "-" if epsilon is None else report.rounded_up(reached),
        "-" if epsilon is None else _powers(deltas),
        " / ".join(dict.fromkeys(map(str, visits))),
        panels.spread([o["accuracy"] for o in found], ".4f"),
        "-" if published is None else _range(published),
        panels.spread([o["log_likelihood"] for o in found], ".4f"),
        f"{np.mean([o['seconds'] for o in found]):.0f}",
    ])
  return header, rows


def _powers(deltas: Sequence[float]) -> str:
  return " / ".join(f"1e{round(math.log10(delta))}" for delta in deltas)


def _range(published: tuple[float, float]) -> str:
  low, high = published
  return f"{low:g}" if low == high else f"{low:.3f} to {high:.3f}"


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over the budget, a panel for each split."""
  panels_ = figure.subplots(1, len(SPLITS), sharey=True)
  for axes, split in zip(panels_, SPLITS):
    for epsilon in EPSILONS:
      at = 1.25 if epsilon is None else epsilon
      values = [
          100 * o["accuracy"]
          for o in outcomes.values()
          if o["labels"]["split"] == split and o["labels"]["epsilon"] == epsilon
      ]
      axes.plot(
          [at] * len(values), values, "o", color=plotting.BLUE,
          label="here, a dot a key" if epsilon == 1.0 else None,
      )  # fmt: skip
      if (split, epsilon) in PUBLISHED:
        low, high = (100 * a for a in PUBLISHED[split, epsilon])
        seen = 0.03 if low == high else 0.0
        axes.vlines(
            at + 0.04, low - seen, high + seen,
            color=plotting.VERMILLION, linewidth=4,
            label="published range" if epsilon == 1.0 else None,
        )  # fmt: skip
    axes.set_title(split.replace("_", " "))
    axes.set_xticks([0.5, 0.75, 1, 1.25], ["0.5", "0.75", "1", "∞"])
    axes.set_xlabel("ε of every row, at most")
  panels_[0].set_ylabel("test accuracy (%)")
  panels_[0].legend(loc="lower right")


def pictures(folder: pathlib.Path) -> None:
  """How factors and posterior converge on a regression in one dimension."""
  plotting.save(pvi_plots.convergence(), folder / "pvi_regression.png")


def finding(outcomes: panels.Outcomes) -> str:
  """The cell that does worst beside the best published accuracy."""
  margins = {}
  for found in panels.group(outcomes, "key").values():
    cell = found[0]["labels"]["split"], found[0]["labels"]["epsilon"]
    if cell in PUBLISHED:
      mean = float(np.mean([o["accuracy"] for o in found]))
      margins[cell] = mean, mean - PUBLISHED[cell][1]
  if not margins:
    return ""
  (split, epsilon), (mean, margin) = min(
      margins.items(), key=lambda item: item[1][1]
  )
  above = sum(margin > 0 for _, margin in margins.values())
  return (
      f"Least in our favour: {split.replace('_', ' ')},"
      f" {'not private' if epsilon is None else f'ε = {epsilon:g}'}:"
      f" {100 * mean:.1f} %, {100 * margin:+.1f} points from the best published"
      f" run; {above} of {len(margins)} cells are above it."
  )
