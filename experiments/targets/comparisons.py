"""Comparisons at one budget: learners, ways to spend it, the guideline."""

from typing import Any

from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

# Every learner ----------------------------------------------------------------

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


def _learners_runs(scale: str) -> list[runs_lib.Run]:
  """Return each learner with and without privacy."""
  size = _SIZES[scale]
  return [
      budgets.run(
          f"{name}_{kind}_{seed}",
          config=size["config"],
          tasks=size[kind][0],
          steps=size[kind][1],
          width=size["width"],
          epsilon=budgets.BUDGET if kind == "private" else None,
          seed=seed,
          overrides={
              "optimizer.rate": 0.02, "optimizer.final_rate": 0.002, **overrides
          },
          labels={
              "data": size["config"],
              "learner": title,
              "private": kind == "private",
              "seed": seed,
          },
      )
      for seed in range(size["seeds"])
      for name, (title, overrides) in LEARNERS.items()
      for kind in ("private", "plain")
  ]


def _published(same: panels.Same) -> str:
  labels = same[0]["labels"]
  if (labels["learner"], labels["data"]) != (MAML, "omniglot"):
    return ""
  return f"{published.TABLE3['omniglot', 5, 1][labels['private']]} %"


_learners_table = panels.tabled({
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


# Ways to spend a budget -------------------------------------------------------

# (learner, tasks a step, steps, width, queries)
_Shape = tuple[str, int, int, int, int]
_SHAPES: dict[str, tuple[_Shape, ...]] = {
    "smoke": (("protonet", 16, 2, 2, 1),),
    "cpu": (
        ("protonet", 400, 120, 16, 1),
        ("protonet", 800, 60, 16, 1),
        ("protonet", 1600, 30, 16, 1),
        ("protonet", 3200, 15, 16, 1),
        ("protonet", 800, 60, 32, 1),
        ("protonet", 800, 240, 32, 1),
    ),
    "full": tuple(
        (learner, tasks, steps, 64, query)
        for learner in ("maml", "protonet", "ridge")
        for query in (1, 4)
        for tasks, steps in ((1600, 250), (3200, 250), (6400, 250), (6400, 999))
    ),
}


def _budget_runs(scale: str) -> list[runs_lib.Run]:
  """Return a run for each way to spend the budget."""
  found = []
  for learner, tasks, steps, width, query in _SHAPES[scale]:
    labels = dict(
        learner=learner, tasks=tasks, steps=steps, width=width, query=query
    )
    found.append(budgets.run(
        "_".join(f"{k}_{v}" for k, v in labels.items()),
        config="glyphs" if scale == "smoke" else "omniglot",
        tasks=tasks,
        steps=steps,
        width=width,
        query=query,
        labels=labels,
        epsilon=budgets.BUDGET,
        overrides={
            "learner.name": learner,
            "optimizer.rate": 0.02,
            "optimizer.final_rate": 0.002,
        },
    ))
  return found


_budget_table = panels.tabled({
    "learner": panels.label("learner"),
    "tasks a step": panels.label("tasks"),
    "steps": panels.label("steps"),
    "noise multiplier": panels.field("noise_multiplier", "{:.3f}"),
    "width": panels.label("width"),
    "queries a class": panels.label("query"),
    panels.SINGLE: panels.accuracy,
    "ensemble of five": panels.ensemble,
    budgets.EPSILON: budgets.spent,
    "training": panels.seconds,
    "of CPU time": panels.cpu_seconds,
})


def _network(same: panels.Same) -> str:
  labels = same[0]["labels"]
  return (
      f"{labels['learner']}, width {labels['width']}, {labels['query']} a"
      f" class, {labels['tasks'] * labels['steps']:,} tasks"
  )


# The guideline of the paper ---------------------------------------------------

_SPENDS = (2.36, 1e-5)  # By z = 1 at the guideline's largest step.
_NORMS = {"90th percentile": 13.0, "plan": 2.5}
# (arguments, participants, choice -> (tasks a step, steps))
_Choices = tuple[dict[str, int], int, dict[str, tuple[int, int]]]
_GLYPHS: _Choices = ({}, 8000, {"guideline": (500, 19), "plan": (200, 48)})
_CHOICES: dict[str, _Choices] = {
    "smoke": (
        dict(size=16, width=2, participants=64),
        64,
        {"guideline": (4, 2), "plan": (2, 4)},
    ),
    "cpu": _GLYPHS,
    "full": _GLYPHS,
}
_KEYS = {"smoke": 1, "cpu": 2, "full": 5}


def _guideline_runs(scale: str) -> list[runs_lib.Run]:
  """Return both choices of tasks and noise with both clip norms."""
  arguments, participants, choices = _CHOICES[scale]
  found = []
  for key in range(_KEYS[scale]):
    for choice, (tasks, steps) in choices.items():
      rate = tasks / participants
      noise = budgets.noise_multiplier(rate, steps, *_SPENDS)
      found += [
          runs_lib.Run(
              name=f"{choice}_clip_{clip.partition(' ')[0]}_key_{key}",
              config="glyphs",
              arguments=budgets.text(arguments | dict(rate=rate, steps=steps)),
              overrides={
                  "mechanism.noise_multiplier": noise,
                  "mechanism.clip_norm": norm,
                  "seed": key,
                  **(budgets.SMALL if scale == "smoke" else {}),
              },
              labels=dict(choice=choice, clip=clip, tasks=tasks, key=key),
          )
          for clip, norm in _NORMS.items()
      ]
  return found


_guideline_table = panels.tabled({
    "tasks, steps and noise of": panels.label("choice"),
    "clip norm of": panels.label("clip"),
    "tasks a step": panels.label("tasks"),
    "steps": panels.field("steps"),
    "noise multiplier": panels.field("noise_multiplier", "{:.3f}"),
    "test accuracy": panels.accuracy,
    budgets.EPSILON: budgets.spent,
}, "key")


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
        runs=_learners_runs, table=_learners_table,
        draw=panels.dotted(lambda o: o["labels"]["learner"], _kind),
    ),
    "budget": panels.Target(
        title="Ways to spend (1.5, 1e-6) for a participant: Omniglot, 5-way"
        " 1-shot",
        about="""\
The noise follows from the budget. A step that samples more participants needs
barely more noise, so its sum is clearer, but the same number of tasks gives
fewer steps. The prototypical network shows this trade-off, and then the effect
of a wider network and more tasks.""",
        notes="""\
The step of 800 and the outer rate follow three private runs on the same data,
compared by test accuracy and not charged to ε. The clip norm was not compared.
The times are not comparable: other work ran at the same time, and all but the
last were measured before the network's blocks became faster.""",
        runs=_budget_runs, table=_budget_table,
        draw=panels.lined(
            _network, lambda s: s[0]["labels"]["tasks"],
            "tasks a step (expected)", logarithmic=True,
        ),
    ),
    "guideline": panels.Target(
        title="DP-MAML's guideline for L, z and k, and the proposal of"
        " `episodic-dp plan`",
        about="""\
The guideline (section 6.3.5) fixes z, takes the largest steps with q <= 1 / (16
z) and clips at a percentile k of the gradient norms, 90 in its tables. Both
parts are compared on the built-in glyphs, at the same number of tasks and the
same ε of a participant: tasks, steps and noise; and the clip norm. Here the
percentile is of public tasks at the initial parameters, and stays fixed. A
percentile of private norms, which follows them as they fall, has no
guarantee.""",
        notes="""\
The proposal of `plan`, and the norms, were computed before version 2.0, for
9600 tasks and ε = 2.36; it reads no private data, and nothing was chosen by
accuracy. All runs have the preset's outer rate. The proposal of today:
[docs/choosing.md](../../docs/choosing.md).""",
        runs=_guideline_runs, table=_guideline_table,
        draw=panels.dotted(
            lambda o: o["labels"]["choice"],
            lambda o: f"clip norm: {o['labels']['clip']}",
        ),
    ),
}
