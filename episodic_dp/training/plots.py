"""The pictures of a run: its learning curve, and epsilon over its steps."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
from typing import Any

from episodic_dp.output import plotting
from episodic_dp.training import reporting

LEARNING_CURVE = "learning_curve.png"
EPSILON_CURVE = "epsilon_curve.png"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
  """A line of a picture: y over steps, with an optional half-width band."""

  label: str
  steps: Sequence[float]
  values: Sequence[float]


def validation_curve(
    lines: Sequence[Mapping[str, Any]], *, label: str, name: str = "accuracy"
) -> Curve:
  """The validation scores of a name among lines of metrics.jsonl."""
  key = f"validation_{name}"
  points = [
      (line["step"], float(line[key])) for line in lines if key in line
  ]
  return Curve(
      label=label, steps=[p[0] for p in points], values=[p[1] for p in points]
  )


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
  axes.set_ylabel(f"{reporting.words(name)} on public validation tasks{unit}")
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
