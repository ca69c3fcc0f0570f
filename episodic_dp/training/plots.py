"""The pictures of a run: its learning curve, and epsilon over its steps."""

from collections.abc import Mapping, Sequence
import os
import textwrap

import numpy as np

from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.training import evaluation
from episodic_dp.training import metrics

LEARNING_CURVE = "learning_curve.png"
EPSILON_CURVE = "epsilon_curve.png"

_WIDTH = 72  # Of a caveat above a picture, in characters.
_FEW_POINTS = 30  # More of them have no markers.


@plotting.styled
def learning_curve(
    path: str | os.PathLike,
    found: Sequence[metrics.Validated],
    tasks: evaluation.Tasks,
) -> None:
  """Draw a score on public validation tasks over steps, with its intervals.

  Args:
    path: the PNG.
    found: accuracies as fractions of 1, or squared errors.
    tasks: what they were measured on.
  """
  way, shot = tasks.episode.way, tasks.episode.shot
  title = f"{way}-way {shot}-shot accuracy"
  if tasks.targets:
    title = f"Squared error after adapting to {shot} points"
  steps, *scores = np.reshape(np.asarray(found, float), (-1, 4)).T
  mean, low, high = np.asarray(scores) * (1 if tasks.targets else 100)
  figure = plotting.figure(4.6)
  axes = figure.subplots()
  axes.set_title(
      f"{title}, {len(tasks.rows)} public validation tasks", loc="left"
  )
  look = plotting.series(0)
  if len(steps) > _FEW_POINTS:
    look["marker"] = ""
  label = "this run, 95 % interval over the tasks"
  axes.plot(steps, mean, label=label, **look)
  # An interval of everything, as one task has, is no band.
  axes.fill_between(
      steps, low, high, where=np.isfinite(high),
      color=look["color"], alpha=0.18, linewidth=0,
  )
  plotting.over_steps(axes)
  if tasks.chance is None:
    axes.set_ylabel("validation squared error")
    axes.set_ylim(bottom=0)
  else:
    axes.axhline(100 * tasks.chance, label="chance", **plotting.REFERENCE)
    axes.set_ylabel("validation accuracy (%)")
    axes.set_ylim(0, 100)
  figure.legend(loc="outside lower center", ncols=2)
  plotting.save(figure, path)


@plotting.styled
def epsilon_curve(
    path: str | os.PathLike,
    steps: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    *,
    delta: float,
    caveat: str = "",
) -> None:
  """Draw epsilon of each level over steps; say so where there is none.

  Args:
    path: the PNG.
    steps: x.
    curves: level -> epsilon after these steps.
    delta: of them all.
    caveat: what epsilon must not be mistaken for, or "".
  """
  figure = plotting.figure(4.2)
  axes = figure.subplots()
  title = ["What the steps cost, by privacy unit"]
  title += textwrap.wrap(caveat, _WIDTH)
  axes.set_title("\n".join(title), loc="left")
  for level, values in curves.items():
    label = f"one {level}: ε = {report.rounded_up(values[-1])}"
    axes.plot(steps, values, label=label)
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
