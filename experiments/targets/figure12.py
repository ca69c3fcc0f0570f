"""Delta against the number of training tasks: [M] Figure 12.

One pass of 1600 tasks a step over 380 000 to 560 000 training tasks, z = 1: the
δ at which a participant, who owns a task, has ε = 1.5. The printed values are
those of the moments accountant, which takes tasks for drawn by Poisson; for
such tasks the tight accountant (PLD) proves far smaller ones. The paper's
Algorithm 1 draws a random subset of fixed size, which costs far more. Nothing
is trained and nothing was chosen; every scale computes the same.
"""

from typing import Any

from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.evidence import printed_epsilons
from experiments.targets import panels

_TASKS = range(380_000, 560_001, 20_000)
_LINES = {
    "moments": "moments accountant (as published), Poisson",
    "pld": "tight (PLD), Poisson",
    "subset": "tight (PLD), random subset of fixed size",
}


def runs(scale: str) -> list[runs_lib.Computed]:
  """A number of training tasks each."""
  return [
      runs_lib.Computed(
          name=f"tasks_{tasks}", target="figure12", scale=scale,
          labels=dict(tasks=tasks),
      )
      for tasks in _TASKS
  ]  # fmt: skip


def finish(
    run: runs_lib.Computed, folder: str, **shared: Any
) -> dict[str, Any]:
  """The deltas of one number of tasks."""
  del shared
  found = printed_epsilons.deltas_after_a_pass(run.labels["tasks"])
  return runs_lib.record(run, folder, {"delta": found})


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per number of tasks."""
  header = ["training tasks", "δ published", *_LINES.values()]
  rows = [
      [
          str(o["labels"]["tasks"]),
          printed_epsilons.FIGURE12.get(o["labels"]["tasks"], ""),
          *(f"{o['delta'][name]:.3g}" for name in _LINES),
      ]
      for o in outcomes.values()
  ]
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Delta over the tasks, a line for each accountant and sampler."""
  axes = figure.subplots()
  tasks = [o["labels"]["tasks"] / 1000 for o in outcomes.values()]
  for number, (name, label) in enumerate(_LINES.items()):
    deltas = [o["delta"][name] for o in outcomes.values()]
    axes.plot(tasks, deltas, label=label, **plotting.series(number))
  printed = printed_epsilons.FIGURE12
  axes.plot(
      [n / 1000 for n in printed], [float(d) for d in printed.values()],
      label="published", color=plotting.INK, marker="x", markersize=9,
      linestyle="",
  )  # fmt: skip
  axes.set_yscale("log")
  axes.set_xlabel("training tasks (thousands)")
  axes.set_ylabel("δ of a participant at ε = 1.5")
  plotting.legend_below(axes)


def finding(outcomes: panels.Outcomes) -> str:
  """Both ends of every line."""
  if len(outcomes) < 2:
    return ""
  ends = [list(outcomes.values())[i] for i in (0, -1)]
  found = "; ".join(
      f"{label}: {' to '.join(f'''{o['delta'][name]:.2g}''' for o in ends)}"
      for name, label in _LINES.items()
  )
  tasks = " to ".join(f"{o['labels']['tasks']}" for o in ends)
  return f"δ at ε = 1.5 from {tasks} tasks: {found}."
