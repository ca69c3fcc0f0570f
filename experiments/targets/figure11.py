"""Accuracy against the privacy budget: Figure 11 of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot, L = 1600, k = 90. Every step of a private run spends some of its
budget, so a run that is stopped at a budget is a point of its curve: these are
the runs of figure 7, of z = 1, 2 and 3, with the ε of a participant spent so
far, at δ = 1e-6, by the tight accountant (and in the table by that of [M]). A
smaller budget needs a larger z: a curve ends where its tasks are used up. The
text of [M] states no number for this figure. Accuracies are of 600 public
validation tasks with their 95 % interval, for one key at cpu scale.
"""

from typing import Any

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import spending
from experiments.targets import sweeps
from experiments.targets import trajectories

_ROWS = 5  # Of a curve, in the table.
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

runs = trajectories.noises


def _spent(found: list[panels.Outcome], z: int) -> list[float]:
  """The ε of a participant at every validated step."""
  release = budgets.release(found[0]["labels"]["rate"], float(z))
  return [
      accounting.guarantee(
          release, steps=step, delta=spending.DELTA, level=budgets.LEVEL
      ).epsilon
      for step in found[0]["validation"]["steps"]
  ]


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """Some rows per noise multiplier, the last of which is the whole run."""
  header = [
      "z",
      "steps",
      "ε of a participant",
      "ε by the accountant of [M]",
      "validation accuracy",
  ]
  rows = []
  for z, found in trajectories.by_noise(outcomes).items():
    drawn, spent = trajectories.curve(found), _spent(found, z)
    last = len(spent) - 1
    rate = found[0]["labels"]["rate"]
    for i in sorted({last - last * k // _ROWS for k in range(_ROWS)}):
      step = drawn.steps[i]
      rows.append([
          f"{z}",
          f"{step}",
          report.rounded_up(spent[i]),
          report.rounded_up(spending.paper_epsilon(rate, step, float(z))),
          f"{drawn.middle[i]:.1f} % ({drawn.low[i]:.1f} to"
          f" {drawn.high[i]:.1f})",
      ])
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over ε, a curve for each z."""
  axes = figure.subplots()
  for number, (z, found) in enumerate(
      trajectories.by_noise(outcomes).items()
  ):
    drawn = trajectories.curve(found)
    trajectories.draw_curve(
        axes, _spent(found, z), drawn, number, f"z = {z}"
    )
  sweeps.axes_of_accuracy(axes, outcomes)
  axes.set_ylabel("accuracy (%), validation tasks, 95 % interval")
  axes.set_xscale("log")
  low, high = axes.get_xlim()
  plotting.ticks(axes.xaxis, [x for x in _TICKS if low <= x <= high])
  axes.set_xlabel("ε of a participant spent so far, at δ = 1e-6")
  axes.legend(loc="upper left", fontsize=8)


def finding(outcomes: panels.Outcomes) -> str:
  """The ends of the curves."""
  found = []
  for z, same in trajectories.by_noise(outcomes).items():
    drawn = trajectories.curve(same)
    found.append(
        f"{drawn.middle[-1]:.1f} % ({drawn.low[-1]:.1f} to"
        f" {drawn.high[-1]:.1f}) at ε ="
        f" {report.rounded_up(_spent(same, z)[-1])} (z = {z})"
    )
  return f"Validation accuracy when all tasks are used: {'; '.join(found)}."
