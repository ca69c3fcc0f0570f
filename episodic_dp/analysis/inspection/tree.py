"""The hierarchy and the stages of a plan as one picture.

Every level is a row: one family of units as squares, the chosen ones filled. A
chosen unit opens into the family below it. Where families differ in size, their
sizes stand beside it as a histogram.
"""

import math
import textwrap

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import style

_ROW, _HEAD, _FOOT = 1.24, 0.45, 0.78  # Inches.
_LEFT, _SQUARE, _GAP = 0.25, 0.22, 0.07
_SHOWN = 13  # Squares of one family.
_EXACT = 6  # Squares that stand for themselves even in a large family.
_LETTERS = 86  # Of a line of text.


def family(hierarchy: plan_lib.Hierarchy, level: int) -> str:
  """How large the families of a level are: '8 per participant'."""
  if not level:
    return "the primary sampling units"
  above = hierarchy.levels[level - 1]
  sizes = hierarchy.child_counts(level)
  low, high = int(sizes.min()), int(sizes.max())
  if low == high:
    return f"{style.count(low)} per {above}"
  return (
      f"{style.count(low)} to {style.count(high)} per {above}, median"
      f" {style.count(float(np.median(sizes)))}"
  )


def stage(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan,
          level: int) -> str:
  """What a stage does, in words."""
  one = plan.stages[level]
  name = hierarchy.levels[level]
  where = f" of each chosen {hierarchy.levels[level - 1]}" if level else ""
  if isinstance(one, plan_lib.FixedSize):
    return f"FixedSize: {style.plural(one.n, name)}{where}, at random"
  if isinstance(one, plan_lib.Poisson):
    text = f"Poisson: every {name}{where} with probability {one.p:.4g}"
    if not level:
      text += f" ({style.count(one.p * hierarchy.num_units(0))} expected)"
    return text
  if isinstance(one, plan_lib.RandomAllocation):
    expected = hierarchy.num_units(0) / one.steps
    return (
        f"RandomAllocation: every {name} in one of the {style.count(one.steps)}"
        f" steps of a pass ({style.count(expected)} expected)"
    )
  return f"All: every {name}{where}"


def step(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan) -> str:
  """What the draws of one step become: its tasks, or nothing but examples."""
  episode = plan.episode
  if episode is None:
    return "The plan forms no tasks: it has no episode."
  tasks = style.plural(plan_lib.tasks_per_step(hierarchy, plan), "task")
  if not isinstance(plan.stages[0], (plan_lib.FixedSize, plan_lib.All)):
    tasks += " (expected)"
  how = {
      "unit": f"one {hierarchy.levels[0]} is one task",
      "disjoint": "the drawn classes are cut into tasks",
      "independent": "the tree is drawn anew for every task",
  }[episode.form]
  return (
      f"A step: {tasks} of {style.plural(episode.way, 'class')}, each class"
      f" with {episode.shot} support and"
      f" {style.plural(episode.query, 'query image')}; {how}."
  )


def draw(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan) -> bytes:
  """A PNG of all levels, from the primary units down to the examples."""
  depth = hierarchy.depth
  height = _HEAD + depth * _ROW + _FOOT
  figure = style.figure(height)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_xlim(0, style.WIDTH)
  axes.set_ylim(height, 0)  # Inches, from the top.
  axes.axis("off")
  axes.text(
      _LEFT, 0.3, "What one step draws", fontsize=12, weight="bold",
      color=style.INK, va="center",
  )
  opening = None
  for k in range(depth):
    top = _HEAD + k * _ROW
    opening = _level(axes, hierarchy, plan, k, top, opening)
    if hierarchy.child_counts(k).min() != hierarchy.child_counts(k).max():
      _sizes(figure, hierarchy, k, top, height)
  _legend(axes, plan, height - 0.64)
  axes.text(
      _LEFT, height - 0.44, "\n".join(_wrap(step(hierarchy, plan))),
      fontsize=9, color=style.INK, va="top", linespacing=1.35,
  )
  return style.png(figure)


def _level(axes, hierarchy, plan, k, top, opening):
  """One row; returns the chosen square that opens into the row below."""
  import matplotlib.patches as shapes

  name, units = hierarchy.levels[k], hierarchy.num_units(k)
  size = int(np.median(hierarchy.child_counts(k)))
  shown = max(1, min(size, _SHOWN))
  filled = chosen(plan.stages[k], size, shown)
  y = top + 0.62
  left = _LEFT
  width = shown * (_SQUARE + _GAP) - _GAP
  if opening is not None:
    axes.add_patch(shapes.Polygon(
        [(opening[0], opening[1]), (opening[0] + _SQUARE, opening[1]),
         (left + width + 0.06, y - 0.06), (left - 0.06, y - 0.06)],
        facecolor=style.PALE, alpha=0.45, linewidth=0, zorder=0,
    ))
    axes.add_patch(shapes.Rectangle(
        (left - 0.06, y - 0.06), width + 0.12, _SQUARE + 0.12,
        facecolor=style.PALE, alpha=0.45, linewidth=0, zorder=0,
    ))
  axes.text(
      left, top + 0.2, name, fontsize=11, weight="bold", va="center",
      color=style.INK,
  )
  detail = family(hierarchy, k)
  axes.text(
      style.WIDTH - _LEFT, top + 0.2,
      f"{style.count(units)} in all" + (f" ({detail})" if k else ""),
      fontsize=9, va="center", ha="right", color=style.INK,
  )
  axes.text(
      left, top + 0.42,
      textwrap.shorten(stage(hierarchy, plan, k), _LETTERS), fontsize=9,
      va="center", color=style.INK,
  )
  last = k == hierarchy.depth - 1
  colors = dict(zip(filled, _colors(plan, len(filled), last)))
  for i in range(shown):
    x = left + i * (_SQUARE + _GAP)
    _square(axes, x, y, _SQUARE, colors.get(i, ""))
  if size > shown:
    axes.text(
        left + width + 0.1, y + _SQUARE / 2, "…", fontsize=12, va="center",
        color=style.SOFT,
    )
  opens = left + filled[0] * (_SQUARE + _GAP)
  return None if last else (opens, y + _SQUARE)


def chosen(one: plan_lib.Stage, size: int, shown: int) -> list[int]:
  """Which of the shown squares are filled.

  As many as are drawn where that is clear; of large families and large draws,
  the share.
  """
  rate = float(np.asarray(one.rate(np.asarray([max(size, 1)]))).ravel()[0])
  number = round(rate * shown)
  if isinstance(one, plan_lib.FixedSize) and (size <= shown or one.n <= _EXACT):
    number = min(one.n, shown)
  elif 0 < rate < 1:
    number = min(max(number, 1), max(shown - 1, 1))
  # Spread over the row: which units are drawn is random.
  return sorted({math.floor((i + 0.5) * shown / number) for i in range(number)})


def _colors(plan: plan_lib.SamplingPlan, number: int, last: bool) -> list[str]:
  """Support and query on the last level; one colour on all others."""
  if not last or plan.episode is None:
    return [style.SOFT] * number
  episode = plan.episode
  share = episode.shot / (episode.shot + episode.query)
  support = min(max(round(share * number), 1), max(number - 1, 1))
  return [style.BLUE] * support + [style.ORANGE] * (number - support)


def _sizes(figure, hierarchy, k, top, height):
  """A histogram of the family sizes at the right of the row."""
  sizes = hierarchy.child_counts(k)
  axes = figure.add_axes((
      4.55 / style.WIDTH, 1 - (top + 1.06) / height, 1.35 / style.WIDTH,
      0.46 / height,
  ))
  span = int(sizes.max() - sizes.min())
  bins = (
      np.arange(sizes.min(), sizes.max() + 2) - 0.5 if span <= 24 else 16
  )
  axes.hist(sizes, bins=bins, color=style.SKY, edgecolor="white", linewidth=0.4)
  axes.set_xticks([int(sizes.min()), int(sizes.max())])
  axes.set_yticks([])
  axes.tick_params(labelsize=7.5, length=2, pad=1)
  axes.set_xlabel("family size", fontsize=7.5, labelpad=-7)
  for side in ("top", "right", "left"):
    axes.spines[side].set_visible(False)


def _legend(axes, plan, y):
  """What the squares mean."""
  entries = [("not drawn", ""), ("drawn", style.SOFT)]
  if plan.episode is not None:
    entries += [
        ("drawn as support", style.BLUE), ("drawn as query", style.ORANGE)
    ]
  x = _LEFT
  for text, color in entries:
    _square(axes, x, y - 0.07, 0.14, color)
    axes.text(x + 0.2, y, text, fontsize=9, va="center", color=style.INK)
    x += 0.45 + 0.08 * len(text)


def _square(axes, x, y, side, color):
  """A unit: filled with a colour, or empty; query is hatched as well."""
  import matplotlib.patches as shapes

  axes.add_patch(shapes.Rectangle(
      (x, y), side, side, linewidth=1.0,
      facecolor=color or "white",
      edgecolor=style.INK if color else style.SOFT,
      hatch="////" if color == style.ORANGE else None,
  ))


def _wrap(text: str) -> list[str]:
  """Lines that the picture is wide enough for."""
  return textwrap.wrap(text, _LETTERS)
