"""Gradient norms over training, without and with privacy: Figure 4 of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot, L = 1600, and with privacy z = 1 and the clip norm at the 90th
percentile of the raw norms, which may only fall. The paper shows the norm of
each task and states that norms become smaller and converge, and that noise
gives sharp spikes; it states no number. Here are the mean norm of each step and
the clip norm. Norms of gradients are computed from the participants' own data
and no guarantee covers them, nor a clip norm that is taken from them: they can
be shown because these participants are made of public images, and a run on real
people must keep them to itself.
"""

import statistics
from typing import Any

from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import sweeps
from experiments.targets import trajectories

_POINTS = {
    "not private": sweeps.Point(noise=0.0),
    "DP-MAML as in [M]": sweeps.Point(clipping=sweeps.RAW),
}
_WINDOW = 10


def runs(scale: str) -> list[runs_lib.Run]:
  """Without privacy and with it."""
  return sweeps.runs([*_POINTS.values()], scale)


def _panels(
    outcomes: panels.Outcomes,
) -> dict[str, list[panels.Outcome]]:
  """title -> runs of a panel, one for each key."""
  found: dict[str, list[panels.Outcome]] = {}
  for outcome in outcomes.values():
    title = [*_POINTS][outcome["labels"]["noise"] > 0]
    found.setdefault(title, []).append(outcome)
  return found


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per panel."""
  header = [
      "run",
      "mean norm, first ten steps",
      "last ten steps",
      "largest step, of the median one",
      "clip norm, last step",
      "tasks clipped",
      "test accuracy, last checkpoint",
      "ε of a participant",
  ]
  rows = []
  for title, found in _panels(outcomes).items():
    norms = sweeps.diagnostic(found, "norm")
    clipped = sweeps.diagnostic(found, "clipped")
    rows.append([
        title,
        f"{statistics.mean(norms[:_WINDOW]):.2f}",
        f"{statistics.mean(norms[-_WINDOW:]):.2f}",
        f"{max(norms) / statistics.median(norms):.2f}",
        f"{_clip_norm(found)[-1]:.2f}" if _clip_norm(found) else "none",
        f"{100 * statistics.mean(clipped):.0f} %",
        panels.accuracy(found),
        panels.epsilon(found, budgets.LEVEL),
    ])
  return header, rows


def _clip_norm(found: list[panels.Outcome]) -> list[float]:
  """Of every step; empty where nothing is clipped."""
  if "clip_norm" not in found[0]["diagnostics"]:
    return []
  return sweeps.diagnostic(found, "clip_norm")


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A panel for each, on one scale."""
  found = _panels(outcomes)
  every = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
  for number, (axes, (title, same)) in enumerate(zip(every, found.items())):
    norms = sweeps.diagnostic(same, "norm")
    x = trajectories.epochs(same, range(1, len(norms) + 1))
    style = plotting.series(number) | {"marker": "", "linestyle": "-"}
    axes.plot(x, norms, label="mean norm of a step", **style)
    if _clip_norm(same):
      axes.plot(
          x, _clip_norm(same), label="clip norm", **plotting.REFERENCE
      )
    axes.set_title(title)
    axes.set_xlabel("epoch (hundredth of the run)")
    axes.legend(loc="upper right")
  every[0].set_ylim(bottom=0)
  every[0].set_ylabel("norm of a task's gradient (private)")
  figure.suptitle(sweeps.setting(outcomes))


def finding(outcomes: panels.Outcomes) -> str:
  """Where the norms begin and end."""
  found = []
  for title, same in _panels(outcomes).items():
    norms = sweeps.diagnostic(same, "norm")
    first, last = norms[:_WINDOW], norms[-_WINDOW:]
    found.append(
        f"{title}, from {statistics.mean(first):.1f} to"
        f" {statistics.mean(last):.1f}, largest step"
        f" {max(norms) / statistics.median(norms):.1f} times the median one"
    )
  return f"Mean gradient norm of a step: {'; '.join(found)}."
