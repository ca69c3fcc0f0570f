"""Private partitioned variational inference on the clients of UCI Adult."""

import itertools
import math
import pathlib
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.config import presets
from episodic_dp.config import pvi as config_lib
from episodic_dp.output import plotting
from episodic_dp.pvi import federation
from episodic_dp.pvi import program
from experiments import runs as runs_lib
from experiments.targets import panels

EPSILONS = (0.5, 0.75, 1.0, None)
# Split -> epsilon -> the lowest and the highest published test accuracy.
PUBLISHED: dict[str, dict[float | None, tuple[float, float]]] = {
    "homogeneous": {
        0.5: (0.840, 0.846), 0.75: (0.847, 0.850), 1.0: (0.848, 0.852),
        None: (0.8542, 0.8542),
    },
    "inhomogeneous_1": {
        0.5: (0.840, 0.845), 0.75: (0.847, 0.849), 1.0: (0.847, 0.852),
    },
    "inhomogeneous_2": {
        0.5: (0.815, 0.821), 0.75: (0.820, 0.825), 1.0: (0.825, 0.829),
    },
}
SPLITS = tuple(PUBLISHED)


def _runs(scale: str) -> list[runs_lib.Run]:
  """Return every cell; at the smallest scale one round of each kind."""
  keys, found = range(3), []
  cells: list[tuple[str, float | None]] = list(
      itertools.product(SPLITS, EPSILONS)
  )
  if scale == "smoke":
    keys = range(1)
    cells = [("homogeneous", 1.0), ("homogeneous", None)]
  for split, epsilon in [*cells, ("one_client", None)]:
    arguments = f"split={split},private=0,rounds=100"
    if epsilon is not None:
      arguments = f"split={split},epsilon={epsilon}"
    if scale == "smoke":
      arguments += ",rounds=1"
    for key in keys:
      found.append(runs_lib.Run(
          name=f"{split}_{epsilon or 'not_private'}_{key}",
          config="pvi.adult",
          arguments=arguments,
          labels=dict(split=split, epsilon=epsilon, key=key),
          program="pvi",
      ))
  return found


def _finish(
    run: runs_lib.Run,
    folder: str,
    *,
    shared: runs_lib.Shared,
    data_dir: str | None,
    **unused: Any,
) -> dict[str, Any]:
  """Train and measure a cell."""
  config = config_lib.parse(
      presets.made(f"adult:{run.arguments}", presets.PVI_NAMES)
  )
  rows = shared.made(
      str(config.table), lambda: config_lib.load(config, data_dir)
  )
  spec = config_lib.build(config, rows)
  # Equal clients and visits are compiled once.
  compiled = shared.made(
      f"{config.table} {config.visit} {config.server} {config.model}",
      lambda: federation.Federation(spec),
  )
  result = program.run(
      spec, pathlib.Path(folder) / run.name, federation=compiled
  )
  runs_lib.check_done(result.stopped)
  found = {}
  for name, part in (("validation", rows.validation), ("test", rows.test)):
    found[name] = program.score(
        spec.learner, result.posterior, config_lib.examples(part)
    )
  reached = None
  if run.labels["epsilon"] is not None:
    reached, _ = program.worst(result.guarantees)
  return runs_lib.record(run, folder, {
      "rounds": result.rounds,
      "seconds": round(result.seconds, 1),
      "epsilon_reached": reached,
      # The delta and the visits of each kind of client.
      "clients": sorted(
          set(zip(spec.deltas, result.visits)), reverse=True
      ),
      "accuracy": found["test"][0],
      "log_likelihood": found["test"][1],
      "validation_accuracy": found["validation"][0],
      "validation_log_likelihood": found["validation"][1],
      "config": spec.config,
  })


def _cell(same: panels.Same) -> tuple[str, float | None]:
  return same[0]["labels"]["split"], same[0]["labels"]["epsilon"]


def _asked(same: panels.Same) -> str:
  epsilon = _cell(same)[1]
  return "not private" if epsilon is None else f"{epsilon:g}"


def _reached(same: panels.Same) -> str:
  if _cell(same)[1] is None:
    return "-"
  return report.rounded_up(max(o["epsilon_reached"] for o in same))


def _deltas(same: panels.Same) -> str:
  if _cell(same)[1] is None:
    return "-"
  return " / ".join(f"1e{round(math.log10(d))}" for d, _ in same[0]["clients"])


def _published(same: panels.Same) -> str:
  split, epsilon = _cell(same)
  found = PUBLISHED.get(split, {}).get(epsilon)
  if found is None:
    return "-"
  low, high = found
  return f"{low:g} to {high:g}"


def _mean(name: str) -> panels.Cell:
  """Return a cell with the mean, lowest and highest key of a field."""
  return lambda same: panels.spread([o[name] for o in same], "{:.4f}")


_table = panels.tabled({
    "split": lambda same: _cell(same)[0].replace("_", " "),
    "ε at most": _asked,
    "ε reached": _reached,
    "δ of clients": _deltas,
    "visits a client": lambda same: " / ".join(
        dict.fromkeys(str(v) for _, v in same[0]["clients"])
    ),
    "test accuracy": _mean("accuracy"),
    "published": _published,
    "test log likelihood": _mean("log_likelihood"),
    "seconds": panels.seconds,
}, "key")


def _draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot accuracy over the budget, a panel for each split."""
  grid = figure.subplots(1, len(SPLITS), sharey=True)
  places = {0.5: 0.5, 0.75: 0.75, 1.0: 1.0, None: 1.25}
  for axes, split in zip(grid, SPLITS):
    found = [o for o in outcomes.values() if o["labels"]["split"] == split]
    axes.plot(
        [places[o["labels"]["epsilon"]] for o in found],
        [100 * o["accuracy"] for o in found],
        "o", color=plotting.BLUE, label="here, a dot a key",
    )
    ranges = PUBLISHED[split]
    axes.vlines(
        [places[e] + 0.04 for e in ranges],
        [100 * low - 0.03 for low, _ in ranges.values()],
        [100 * high + 0.03 for _, high in ranges.values()],
        color=plotting.VERMILLION, linewidth=4, label="published range",
    )
    axes.set_title(split.replace("_", " "))
    axes.set_xticks([*places.values()], ["0.5", "0.75", "1", "∞"])
    axes.set_xlabel("ε of every row, at most")
  grid[0].set_ylabel("test accuracy (%)")
  grid[0].legend(loc="lower right")


TARGETS = {
    "pvi_adult": panels.Target(
        title="Private partitioned variational inference on UCI Adult, by ten"
        " clients",
        about="""\
Three splits of the rows among clients (`pvi.adult.SPLITS`), three budgets and
none, three keys each, and without privacy one client that holds all rows, which
is global variational inference. Settings were chosen on the public validation
rows, see docs/pvi.md. The column "published" has the numbers that were
published for private PVI with these clients.""",
        notes="""\
How settings were chosen, and what differs from the published setting, is in
[docs/pvi.md](../../docs/pvi.md). ε holds for each client at its own δ, a power
of ten from 1/(10 N) to 1/N for N rows: where two are given, the larger one is
that of the clients with less than 1000 rows. "ε reached" is the largest ε of
all clients, and holds for every row at the larger δ.""",
        runs=_runs, table=_table, draw=_draw,
        finish=_finish,
    ),
}
