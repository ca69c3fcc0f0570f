"""What a run tells its user: guarantees, tables and two pictures."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
from typing import Any

import matplotlib

matplotlib.use("Agg")  # Before pyplot: machines that train have no screen.

from matplotlib import pyplot as plt  # noqa: E402

from episodic_dp import accounting  # noqa: E402
from episodic_dp.accounting import assumptions  # noqa: E402
from episodic_dp.accounting import report  # noqa: E402
from episodic_dp.training import workdir  # noqa: E402

GUARANTEE = "guarantee.json"
LEARNING_CURVE = "learning_curve.png"
EPSILON_CURVE = "epsilon_curve.png"

Guarantees = Mapping[str, Any]  # level -> accounting.Guarantee


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
  """A line of a picture: y over steps, with an optional half-width band."""

  label: str
  steps: Sequence[float]
  values: Sequence[float]


def number(value: float) -> float | str:
  """A float for strict JSON: infinity becomes the string "inf"."""
  return value if math.isfinite(value) else str(value)


def write_statement(
    path: str | os.PathLike,
    ledger: accounting.Ledger,
    *,
    delta: float,
    fixed_seed: bool,
    planned_steps: int,
) -> None:
  """Writes the privacy statement of the steps that were done.

  Args:
    path: the JSON file, replaced at once.
    ledger: the steps that the guarantees cover.
    delta: of the guarantees.
    fixed_seed: whether sampling and noise follow from a seed that is told.
    planned_steps: the steps of the whole run.
  """
  statement = accounting.run_statement(
      ledger, delta=delta, fixed_seed=fixed_seed, planned_steps=planned_steps
  )
  workdir.write_json(path, statement)


def result_entry(result: Any, measured: Mapping[str, Any]) -> dict[str, Any]:
  """A run's steps, accuracies and epsilons, JSON-able.

  Args:
    result: a `loop.Result`.
    measured: name -> {"score": evaluation.Score, "steps": list}.
  """
  (kind,) = {value["score"].name for value in measured.values()}
  return {
      "steps": result.steps,
      "seconds": round(result.seconds, 1),
      kind: {
          name: dataclasses.asdict(value["score"])
          for name, value in measured.items()
      },
      "epsilon": {
          level: {"epsilon": number(g.epsilon), "delta": g.delta}
          for level, g in result.guarantees.items()
      },
  }


def guarantee_lines(guarantees: Guarantees, steps: int) -> list[str]:
  """A sentence per level, as printed at the end of a run."""
  lines = []
  width = max((len(level) for level in guarantees), default=0)
  for level, g in guarantees.items():
    if math.isinf(g.epsilon):
      why = " (no noise)" if assumptions.NO_NOISE in g.assumptions else ""
      lines.append(f"  {level:<{width}}  no formal guarantee{why}")
    else:
      lines.append(
          f"  {level:<{width}}  epsilon = {report.rounded_up(g.epsilon)} at"
          f" delta = {g.delta:g} after {steps} steps ({g.neighbours})"
      )
  # Once each, however many levels share one.
  caveats = dict.fromkeys(g.caveat for g in guarantees.values() if g.caveat)
  lines += [f"  {caveat}" for caveat in caveats]
  return lines or ["  no level has a guarantee"]


def summary(result: Any, planned: int) -> str:
  """What `loop.train` did, in words.

  Args:
    result: a `loop.Result`.
    planned: the steps of the whole run.
  """
  head = f"done: {result.steps} steps"
  if result.stopped == "signal":
    head = (
        f"stopped by a signal after step {result.steps} of {planned}; the same"
        " command goes on from there"
    )
  elif result.stopped == "budget":
    head += ", all that target_epsilon allows"
  lines = [f"{head} ({result.seconds:.0f} s in this process)"]
  if result.score is not None:
    lines.append(f"  validation {words(result.score.name)} {result.score}")
  lines += guarantee_lines(result.guarantees, result.steps)
  return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  """Plain text columns, the first one flush left."""
  cells = [[str(c) for c in row] for row in (header, *rows)]
  widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
  lines = []
  for row in cells:
    first, *rest = zip(row, widths)
    text = [f"{first[0]:<{first[1]}}", *(f"{c:>{w}}" for c, w in rest)]
    lines.append("  ".join(text).rstrip())
  lines.insert(1, "  ".join("-" * w for w in widths))
  return "\n".join(lines)


def words(name: str) -> str:
  """The name of a score as it is written: "squared error"."""
  return name.replace("_", " ")


def learning_curve(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    *,
    name: str = "accuracy",
    chance: float | None,
) -> None:
  """A score on public validation tasks over steps.

  Args:
    path: the PNG.
    curves: accuracies as fractions of 1, or squared errors.
    name: of the score.
    chance: the accuracy of a blind guess, None for other scores.
  """
  percent = 100 if name == "accuracy" else 1
  unit = " (%)" if name == "accuracy" else ""
  figure, axes = _axes(f"{words(name)} on public validation tasks{unit}")
  for curve in curves:
    values = [percent * v for v in curve.values]
    axes.plot(curve.steps, values, marker="o", markersize=3, label=curve.label)
  if chance is not None:
    axes.axhline(100 * chance, color="grey", linestyle=":", label="chance")
  if name == "accuracy":
    axes.set_ylim(0, 100)
    axes.legend(loc="lower right")
  else:
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
  _save(figure, path)


def epsilon_curve(
    path: str | os.PathLike, curves: Sequence[Curve], *, delta: float
) -> None:
  """Epsilon of each level over steps; says so where there is none."""
  figure, axes = _axes(f"epsilon at delta = {delta:g}")
  curves = [c for c in curves if all(math.isfinite(v) for v in c.values)]
  for curve in curves:
    axes.plot(curve.steps, curve.values, label=curve.label)
  if curves:
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.legend(loc="upper left")
  else:
    axes.text(
        0.5,
        0.5,
        "no formal guarantee at any step",
        ha="center",
        transform=axes.transAxes,
    )
    axes.set_xticks([])
    axes.set_yticks([])
  _save(figure, path)


def _axes(ylabel: str):
  figure, axes = plt.subplots(figsize=(6.4, 4.2), dpi=120)
  axes.set_xlabel("steps")
  axes.set_ylabel(ylabel)
  axes.grid(alpha=0.3)
  return figure, axes


def _save(figure, path: str | os.PathLike) -> None:
  figure.tight_layout()
  beside = f"{os.fspath(path)}.tmp"
  figure.savefig(beside, format="png")
  os.replace(beside, path)
  plt.close(figure)
