"""DP-MAML's Omniglot 5-way 1-shot, private and not: its Table 3 beside ours.

At full scale that is the paper's size: width 64, five inner steps, one query a
class, 250 steps of about 1600 of 400 000 participants, 400 000 tasks in all.
What is narrower here is so because noise has norm √(number of weights) · z · C
against at most (tasks) · C of signal; the clip norm is fixed, since percentile
clipping has no guarantee. The epsilon is a participant's; it says nothing about
single images, which recur across participants.
"""

from typing import Any

from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

CHANCE = 1 / budgets.WAY
_PUBLISHED = dict(zip((False, True), published.TABLE3["omniglot", 5, 1]))
NOTES = """\
Random split into 1150, 50 and 423 characters. Four queries a class where
marked, one as published elsewhere: validation accuracy rose faster with four in
short trials, and they cost the participant nothing. Width, inner steps, rates
and queries were chosen by shorter runs on the same training characters, looking
at validation accuracy; this choice is not charged to ε. The clip norm was set
once and not compared. The run without privacy has as many tasks in more,
smaller steps. The prototypical network was run with MAML's settings.
"""
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
      "untrained",
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
          panels.accuracy([o], "untrained"),
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
      [name.replace("_", " ") for name in outcomes],
      {"ours": {n.replace("_", " "): [o] for n, o in outcomes.items()}},
      chance=CHANCE,
  )


def finding(outcomes: panels.Outcomes) -> str:
  """The private runs beside what was published, the lowest first."""
  private = sorted(
      (o for o in outcomes.values() if o["labels"]["private"]),
      key=lambda o: panels.percent([o]),
  )
  if not private:
    return ""
  found = "; ".join(
      f"{panels.accuracy([o])} ({o['labels']['arguments']})" for o in private
  )
  return (
      f"Private, at ε = {panels.epsilon(private, budgets.LEVEL)}: {found};"
      f" published {_PUBLISHED[True]} % at a claimed {published.EPSILON}."
  )
