"""The pictures of a run: its learning curve, and epsilon over its steps."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import textwrap
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.training import evaluation
from episodic_dp.training import metrics
from episodic_dp.training import reporting

SCORE = "this run, 95 % interval over the tasks"
LEARNING_CURVE = "learning_curve.png"
EPSILON_CURVE = "epsilon_curve.png"

_WIDTH = 72  # Of a caveat above a picture, in characters.
_FEW_POINTS = 30  # More of them have no markers.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
  """A line of a picture: y over steps, with its band.

  Attributes:
    label: in the legend.
    steps: x.
    values: y.
    low: of the band, such as a 95 % interval; empty for none.
    high: likewise.
  """

  label: str
  steps: Sequence[float]
  values: Sequence[float]
  low: Sequence[float] = ()
  high: Sequence[float] = ()


def validation_curve(
    lines: Sequence[Mapping[str, Any]], *, label: str, name: str = "accuracy"
) -> Curve:
  """Return the validation scores of a name among lines of metrics.jsonl."""
  found = metrics.validated(lines, name)
  return Curve(
      label=label,
      steps=[v.step for v in found],
      values=[v.mean for v in found],
      low=[v.low for v in found],
      high=[v.high for v in found],
  )


def title(tasks: evaluation.Tasks) -> str:
  """Return the title of a run's learning curve."""
  episode = tasks.episode
  what = f"{episode.way}-way {episode.shot}-shot accuracy"
  if tasks.targets:
    what = f"Squared error after adapting to {episode.shot} points"
  return f"{what}, {len(tasks.rows)} public validation tasks"


@plotting.styled
def learning_curve(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    *,
    name: str = "accuracy",
    chance: float | None,
    title: str = "",
) -> None:
  """Draw a score on public validation tasks over steps, with its intervals.

  Args:
    path: the PNG.
    curves: accuracies as fractions of 1, or squared errors.
    name: of the score.
    chance: the accuracy of a blind guess, None for other scores.
    title: above the picture.
  """
  figure = plotting.figure(4.6)
  axes = figure.subplots()
  axes.set_title(title, loc="left")
  for number, curve in enumerate(curves):
    _with_band(axes, curve, number, 100 if name == "accuracy" else 1)
  if chance is not None:
    axes.axhline(100 * chance, label="chance", **plotting.REFERENCE)
  unit = " (%)" if name == "accuracy" else ""
  plotting.over_steps(axes)
  axes.set_ylabel(f"validation {reporting.words(name)}{unit}")
  if name == "accuracy":
    axes.set_ylim(0, 100)
  else:
    axes.set_ylim(bottom=0)
  figure.legend(loc="outside lower center", ncols=2)
  plotting.save(figure, path)


def _with_band(
    axes: plotting.Axes, curve: Curve, number: int, factor: float
) -> None:
  """Draw a line and its 95 % interval, in numbers `factor` times these."""
  look = plotting.series(number)
  if len(curve.steps) > _FEW_POINTS:
    look["marker"] = ""
  axes.plot(
      curve.steps, [factor * v for v in curve.values],
      label=curve.label, **look,
  )
  # An interval of everything, as one task has, is no band.
  if curve.low and all(map(math.isfinite, (*curve.low, *curve.high))):
    axes.fill_between(
        curve.steps,
        [factor * v for v in curve.low],
        [factor * v for v in curve.high],
        color=look["color"], alpha=0.18, linewidth=0,
    )


@plotting.styled
def epsilon_curve(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    *,
    delta: float,
    caveat: str = "",
) -> None:
  """Draw epsilon of each level over steps; says so where there is none.

  Args:
    path: the PNG.
    curves: a level each.
    delta: of them all.
    caveat: what epsilon must not be mistaken for, or "".
  """
  figure = plotting.figure(4.2)
  axes = figure.subplots()
  title = ["What the steps cost, by privacy unit"]
  title += textwrap.wrap(caveat, _WIDTH)
  axes.set_title("\n".join(title), loc="left")
  curves = [c for c in curves if all(math.isfinite(v) for v in c.values)]
  for curve in curves:
    label = f"one {curve.label}: ε = {report.rounded_up(curve.values[-1])}"
    axes.plot(curve.steps, curve.values, label=label)
  plotting.over_steps(axes)
  if curves:
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")
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
  axes.set_ylabel(f"ε at δ = {delta:g}")
  plotting.save(figure, path)
