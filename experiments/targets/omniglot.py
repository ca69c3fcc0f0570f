"""DP-MAML's Omniglot 5-way 1-shot, private and not: its Table 3 beside ours.

At full scale that is the paper's size: width 64, five inner steps, one query a
class, 250 steps of about 1600 of 400 000 participants, 400 000 tasks in all.
"""

from typing import Any

from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

CHANCE = 1 / budgets.WAY
# Meta-Learning with Differential Privacy, Table 3: private -> accuracy (%).
_PUBLISHED = {True: 93.9, False: 99.5}
# scale -> (config, arguments that both runs share)
_SIZES = {
    "smoke": ("glyphs", "steps=2,width=2,participants=400"),
    "cpu": ("omniglot", "width=24,inner_steps=1,query=4"),
    "full": ("omniglot", "width=64,inner_steps=5,query=1"),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """With privacy and without, otherwise alike."""
  config, arguments = _SIZES[scale]
  return [
      runs_lib.Run(
          name="private" if private else "not_private",
          config=config,
          arguments=f"{arguments},private={int(private)}",
          labels={"private": private, "arguments": arguments},
      )
      for private in (True, False)
  ]


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per run."""
  header = [
      "private",
      "arguments",
      "steps",
      "test accuracy, last checkpoint",
      "ensemble of five",
      "published (at its size)",
      "ε of a participant",
      "training",
  ]
  rows = [
      [
          "yes" if o["labels"]["private"] else "no",
          o["labels"]["arguments"],
          str(o["steps"]),
          panels.accuracy([o]),
          panels.accuracy([o], "ensemble"),
          f"{_PUBLISHED[o['labels']['private']]} %",
          panels.epsilon([o], budgets.LEVEL),
          panels.seconds([o]),
      ]
      for o in outcomes.values()
  ]
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A dot a run."""
  panels.dots(
      figure.subplots(),
      list(outcomes),
      {"ours": {name: [o] for name, o in outcomes.items()}},
      chance=CHANCE,
  )
