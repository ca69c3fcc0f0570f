"""Training loss over the epochs for z = 1, 2, 3: Figure 9 of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot, L = 1600, k = 90. Its text states that the loss on the query sets
converges at about the 39th, 58th and 83rd of 100 epochs. A training loss is
computed from the participants' own data and no guarantee covers it: it can be
shown here because these participants are made of public images, and a run on
real people must keep it to itself. "Converges" is read here as: from there on
the mean loss of ten steps stays within a twentieth of its whole fall above the
last.
"""

from typing import Any

from episodic_dp.output import plotting
from experiments.targets import panels
from experiments.targets import spending
from experiments.targets import sweeps
from experiments.targets import trajectories

PUBLISHED = {1: 39, 2: 58, 3: 83}  # z -> epoch, of [M].
_WINDOW, _WITHIN = 10, 0.05

runs = trajectories.noises


def converged(losses: list[float]) -> int:
  """The step from which on the losses stay near the last; 1 is the first."""
  near = losses[-1] + _WITHIN * abs(losses[0] - losses[-1])
  above = [i for i, loss in enumerate(losses, 1) if loss > near]
  return above[-1] + 1 if above else 1


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per noise multiplier."""
  header = [
      "z",
      "converges at epoch",
      "[M]",
      "loss at the first step",
      "loss, last ten steps",
      "ε of a participant, which the loss is outside of",
  ]
  rows = []
  for z, found in trajectories.by_noise(outcomes).items():
    losses = _losses(found)
    (epoch,) = trajectories.epochs(found, [converged(losses)])
    rows.append([
        f"{z}",
        f"{epoch:.0f}",
        f"about {PUBLISHED[z]}",
        f"{losses[0]:.3f}",
        f"{losses[-1]:.3f}",
        spending.costs(found)[0],
    ])
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """The losses, and where the paper's converged."""
  axes = figure.subplots()
  for number, (z, found) in enumerate(
      trajectories.by_noise(outcomes).items()
  ):
    losses = _losses(found)
    x = trajectories.epochs(found, range(1, len(losses) + 1))
    style = plotting.series(number) | {"marker": ""}
    axes.plot(x, losses, label=f"z = {z}", **style)
    axes.axvline(
        PUBLISHED[z],
        color=style["color"],
        linestyle=(0, (1, 3)),
        label=f"[M]: converges (z = {z})",
    )
  axes.set_title(sweeps.setting(outcomes))
  axes.set_xlabel("epoch (hundredth of the run)")
  axes.set_ylabel("training loss on queries, mean of ten steps (private)")
  axes.legend(loc="lower left", fontsize=8)


def _losses(found: list[panels.Outcome]) -> list[float]:
  return trajectories.smooth(sweeps.diagnostic(found, "loss"), _WINDOW)


def finding(outcomes: panels.Outcomes) -> str:
  """Where the losses converge."""
  found = []
  for z, same in trajectories.by_noise(outcomes).items():
    (epoch,) = trajectories.epochs(same, [converged(_losses(same))])
    found.append(f"{epoch:.0f} for z = {z} ([M]: about {PUBLISHED[z]})")
  return f"The training loss converges at epoch {', '.join(found)}."
