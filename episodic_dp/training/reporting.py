"""What a run tells its user: guarantees, tables and two pictures."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
from typing import Any

from episodic_dp import accounting
from episodic_dp.accounting import assumptions
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import plotting

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
  files.write_json(path, statement)


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


def words(name: str) -> str:
  """The name of a score as it is written: "squared error"."""
  return name.replace("_", " ")


@plotting.styled
def learning_curve(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    *,
    name: str = "accuracy",
    chance: float | None,
) -> None:
  """Draws a score on public validation tasks over steps.

  Args:
    path: the PNG.
    curves: accuracies as fractions of 1, or squared errors.
    name: of the score.
    chance: the accuracy of a blind guess, None for other scores.
  """
  percent = 100 if name == "accuracy" else 1
  unit = " (%)" if name == "accuracy" else ""
  figure = plotting.figure(4.2)
  axes = figure.subplots()
  for number, curve in enumerate(curves):
    values = [percent * v for v in curve.values]
    axes.plot(
        curve.steps, values, label=curve.label, **plotting.series(number)
    )
  if chance is not None:
    axes.axhline(100 * chance, label="chance", **plotting.REFERENCE)
  if name == "accuracy":
    axes.set_ylim(0, 100)
    axes.legend(loc="lower right")
  else:
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
  axes.set_xlabel("steps")
  axes.set_ylabel(f"{words(name)} on public validation tasks{unit}")
  plotting.save(figure, path)


@plotting.styled
def epsilon_curve(
    path: str | os.PathLike, curves: Sequence[Curve], *, delta: float
) -> None:
  """Draws epsilon of each level over steps; says so where there is none."""
  figure = plotting.figure(4.2)
  axes = figure.subplots()
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
  axes.set_xlabel("steps")
  axes.set_ylabel(f"epsilon at delta = {delta:g}")
  plotting.save(figure, path)
