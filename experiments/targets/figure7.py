"""Accuracy and δ over the epochs for z = 1, 2, 3: Figure 7 of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot, L = 1600, k = 90; an epoch is a hundredth of the run. The paper holds
ε at 1.5, 0.34 and 0.23 and follows δ, by its moments accountant, until it is
about 1e-6, where its text states accuracies of about 91, 85 and 75 %. The same
δ is drawn here, and beside it that of the tight accountant, which is smaller by
orders of magnitude: both are of Poisson sampling, as these runs did it, and of
a percentile that is followed through a noised count. The curves are accuracies
on 600 public validation tasks, the table's on 600 test tasks; intervals are
over tasks, for one key at cpu scale.
"""

from typing import Any

from episodic_dp.output import plotting
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import spending
from experiments.targets import sweeps
from experiments.targets import trajectories

# z -> ε, and the test accuracy in percent where δ is about 1e-6, both of [M].
EPSILONS = {1: 1.5, 2: 0.34, 3: 0.23}
PUBLISHED = {1: 91.0, 2: 85.0, 3: 75.0}

runs = trajectories.noises


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per noise multiplier."""
  header = [
      "z",
      "test accuracy, last checkpoint",
      "ensemble of five",
      "[M]",
      "ε that is held",
      "δ at the end by the accountant of [M]",
      "δ at the end, tight",
      *spending.COSTS,
      "of CPU time",
  ]
  rows = []
  for z, found in trajectories.by_noise(outcomes).items():
    deltas = [_deltas(found, z, papers)[-1] for papers in (True, False)]
    rows.append([
        f"{z}",
        panels.accuracy(found),
        panels.accuracy(found, "ensemble"),
        f"about {PUBLISHED[z]:g} %",
        f"{EPSILONS[z]:g}",
        *(f"{delta:.2g}" for delta in deltas),
        *spending.costs(found),
        panels.seconds(found, "cpu_seconds"),
    ])
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy on the left axis, δ on the right one."""
  axes = figure.subplots()
  right = axes.twinx()
  for number, (z, found) in enumerate(
      trajectories.by_noise(outcomes).items()
  ):
    drawn = trajectories.curve(found)
    x = trajectories.epochs(found, drawn.steps)
    trajectories.draw_curve(axes, x, drawn, number, f"accuracy, z = {z}")
    for papers, line in ((True, "--"), (False, ":")):
      right.plot(
          x,
          _deltas(found, z, papers),
          color=plotting.COLORS[number],
          linestyle=line,
          linewidth=1.2,
      )
    sweeps.published(
        axes, {trajectories.EPOCHS: PUBLISHED[z]},
        "" if number else "[M], at its size, where δ is about 1e-6",
    )  # fmt: skip
  for line, label in (("--", "the accountant of [M]"), (":", "tight")):
    axes.plot([], [], color=plotting.SOFT, linestyle=line, label=f"δ, {label}")
  sweeps.axes_of_accuracy(axes, outcomes)
  axes.set_ylabel("accuracy (%), validation tasks, 95 % interval")
  axes.set_xlabel("epoch (hundredth of the run)")
  right.set_yscale("log")
  right.set_ylabel("δ at ε = 1.5, 0.34 and 0.23 for z = 1, 2, 3")
  right.grid(visible=False)
  plotting.legend_below(axes, columns=3)


def _deltas(
    found: list[panels.Outcome], z: int, papers: bool
) -> list[float]:
  """Delta at every validated step and the last."""
  rate = found[0]["labels"]["rate"]
  return [
      spending.delta(rate, step, float(z), EPSILONS[z], papers)
      for step in found[0]["validation"]["steps"]
  ]


def finding(outcomes: panels.Outcomes) -> str:
  """The accuracies at the end."""
  found = [
      f"{panels.accuracy(same)} at z = {z}, ε ="
      f" {panels.epsilon(same, budgets.LEVEL)} ([M], at its size: about"
      f" {PUBLISHED[z]:g} % at a claimed {EPSILONS[z]:g})"
      for z, same in trajectories.by_noise(outcomes).items()
  ]
  return f"Test accuracy {'; '.join(found)}."
