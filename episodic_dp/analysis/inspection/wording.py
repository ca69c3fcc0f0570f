"""Numbers and stages in words, shared by the page and its pictures."""

from collections.abc import Sequence

import numpy as np

from episodic_dp import plan as plan_lib


def count(number: float) -> str:
  """A count for people: 400 000, 160, 0.5."""
  if abs(number - round(number)) < 1e-9 * max(1.0, abs(number)):
    return f"{round(number):,}".replace(",", "\u202f")
  return f"{number:.4g}"


def plural(number: float, word: str) -> str:
  """'1 class', '2 classes', '3 glyphs'."""
  if number == 1:
    return f"{count(number)} {word}"
  if word.endswith("y") and word[-2:-1] not in "aeiou":
    return f"{count(number)} {word[:-1]}ies"
  if word.endswith("sis"):
    return f"{count(number)} {word[:-2]}es"
  many = word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
  return f"{count(number)} {many}"


def family_sizes(hierarchy: plan_lib.Hierarchy, level: int) -> str:
  """How large the families of a level are: '8 per participant'."""
  if not level:
    return "the primary sampling units"
  above = hierarchy.levels[level - 1]
  sizes = hierarchy.child_counts(level)
  low, high = int(sizes.min()), int(sizes.max())
  if low == high:
    return f"{count(low)} per {above}"
  return (
      f"{count(low)} to {count(high)} per {above}, median"
      f" {count(float(np.median(sizes)))}"
  )


def stage_sentence(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, level: int
) -> str:
  """What a stage does, in words."""
  one = plan.stages[level]
  name = hierarchy.levels[level]
  where = f" of each chosen {hierarchy.levels[level - 1]}" if level else ""
  if isinstance(one, plan_lib.FixedSize):
    return f"FixedSize: {plural(one.n, name)}{where}, at random"
  if isinstance(one, plan_lib.Poisson):
    text = f"Poisson: every {name}{where} with probability {one.p:.4g}"
    if not level:
      text += f" ({count(one.p * hierarchy.num_units(0))} expected)"
    return text
  if isinstance(one, plan_lib.RandomAllocation):
    expected = hierarchy.num_units(0) / one.steps
    return (
        f"RandomAllocation: every {name} in one of the {count(one.steps)}"
        f" steps of a pass ({count(expected)} expected)"
    )
  return f"All: every {name}{where}"


def classified_sentence(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> str:
  """What a task tells apart, and by whose examples."""
  episode, leaf = plan.episode, hierarchy.levels[-1]
  if episode is None:
    return f"What is classified: every {leaf} by itself, by its label."
  if episode.way == 1:
    return f"What is learned: a function for every task, of its {leaf} units."
  level = plan_lib.class_level(hierarchy, plan)
  name = hierarchy.levels[level]
  where = ""
  if level:
    where = f" of one {hierarchy.levels[level - 1]}"
    if level > 1 or episode.form != "unit":
      where = f" drawn below '{hierarchy.levels[0]}'"
  examples = plural(episode.shot + episode.query, leaf)
  if level < hierarchy.depth - 2:
    examples += (
        f", no {hierarchy.levels[level + 1]} being in both the support and the"
        " query"
    )
  return (
      f"What is classified: the {name}. A task tells"
      f" {plural(episode.way, name)}{where} apart, each by {examples}."
  )


def privacy_sentence(levels: Sequence[str]) -> str:
  """Whose privacy is kept: the levels that have a guarantee."""
  if not levels:
    return "Whose privacy: nobody's, no level has a guarantee."
  units = " or ".join(f"one {level}" for level in levels)
  return (
      f"Whose privacy: that of {units} with all that lies in it, each with the"
      " epsilon of its row."
  )


def step_sentence(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> str:
  """What the draws of one step become: its tasks, or nothing but examples."""
  episode = plan.episode
  if episode is None:
    return "The plan forms no tasks: it has no episode."
  tasks = plural(plan_lib.tasks_per_step(hierarchy, plan), "task")
  if not isinstance(plan.stages[0], (plan_lib.FixedSize, plan_lib.All)):
    tasks += " (expected)"
  how = {
      "unit": f"one {hierarchy.levels[0]} is one task",
      "disjoint": "the drawn classes are cut into tasks",
      "independent": "the tree is drawn anew for every task",
  }[episode.form]
  return (
      f"A step: {tasks} of {plural(episode.way, 'class')}, each class"
      f" with {episode.shot} support and"
      f" {plural(episode.query, 'query image')}; {how}."
  )
