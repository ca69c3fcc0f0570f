"""The hierarchy and the stages of a plan as one picture.

Every level is a row: one family of units as squares, the chosen ones filled. A
chosen unit opens into the family below it. Where families differ in size, their
sizes stand beside it as a histogram.
"""

import math
import textwrap

from matplotlib import patches
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import wording
from episodic_dp.output import plotting

_ROW, _HEAD, _FOOT = 1.24, 0.45, 0.78  # Inches.
_LEFT, _SQUARE, _GAP = 0.25, 0.22, 0.07
_SHOWN = 13  # Squares of one family.
_EXACT = 6  # Squares that stand for themselves even in a large family.
_LETTERS = 86  # Of a line of text.


@plotting.styled
def draw(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan) -> bytes:
  """A PNG of all levels, from the primary units down to the examples."""
  depth = hierarchy.depth
  height = _HEAD + depth * _ROW + _FOOT
  figure = plotting.figure(height)
  figure.set_layout_engine("none")  # Everything has its place, in inches.
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_xlim(0, plotting.NARROW)
  axes.set_ylim(height, 0)  # Inches, from the top.
  axes.axis("off")
  axes.text(
      _LEFT, 0.3, "What one step draws", fontsize=12, weight="bold",
      color=plotting.INK, va="center",
  )
  opening = None
  for k in range(depth):
    top = _HEAD + k * _ROW
    opening = _level(axes, hierarchy, plan, k, top, opening)
    if hierarchy.child_counts(k).min() != hierarchy.child_counts(k).max():
      _sizes(figure, hierarchy, k, top, height)
  _legend(axes, plan, height - 0.64)
  axes.text(
      _LEFT, height - 0.44,
      textwrap.fill(wording.step_sentence(hierarchy, plan), _LETTERS),
      va="top", linespacing=1.35,
  )
  return plotting.png(figure)


def _level(axes, hierarchy, plan, k, top, opening):
  """One row; returns the chosen square that opens into the row below."""
  name, units = hierarchy.levels[k], hierarchy.num_units(k)
  size = int(np.median(hierarchy.child_counts(k)))
  shown = max(1, min(size, _SHOWN))
  filled = filled_squares(plan.stages[k], size, shown)
  y = top + 0.62
  left = _LEFT
  width = shown * (_SQUARE + _GAP) - _GAP
  if opening is not None:
    axes.add_patch(patches.Polygon(
        [(opening[0], opening[1]), (opening[0] + _SQUARE, opening[1]),
         (left + width + 0.06, y - 0.06), (left - 0.06, y - 0.06)],
        facecolor=plotting.PALE, alpha=0.45, linewidth=0, zorder=0,
    ))
    axes.add_patch(patches.Rectangle(
        (left - 0.06, y - 0.06), width + 0.12, _SQUARE + 0.12,
        facecolor=plotting.PALE, alpha=0.45, linewidth=0, zorder=0,
    ))
  axes.text(
      left, top + 0.2, name, fontsize=11, weight="bold", va="center",
      color=plotting.INK,
  )
  detail = wording.family_sizes(hierarchy, k)
  axes.text(
      plotting.NARROW - _LEFT, top + 0.2,
      f"{wording.count(units)} in all" + (f" ({detail})" if k else ""),
      va="center", ha="right",
  )
  axes.text(
      left, top + 0.42,
      textwrap.shorten(wording.stage_sentence(hierarchy, plan, k), _LETTERS),
      va="center",
  )
  last = k == hierarchy.depth - 1
  below = plan_lib.class_level(hierarchy, plan) + 1
  colors = dict(zip(filled, _colors(plan, len(filled), k == below)))
  for i in range(shown):
    x = left + i * (_SQUARE + _GAP)
    _square(axes, x, y, _SQUARE, colors.get(i, ""))
  if size > shown:
    axes.text(
        left + width + 0.1, y + _SQUARE / 2, "…", fontsize=12, va="center",
        color=plotting.SOFT,
    )
  opens = left + filled[0] * (_SQUARE + _GAP)
  return None if last else (opens, y + _SQUARE)


def filled_squares(one: plan_lib.Stage, size: int, shown: int) -> list[int]:
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


def _colors(plan: plan_lib.SamplingPlan, number: int, parts: bool) -> list[str]:
  """Support and query right below the classes; one colour elsewhere."""
  if not parts or plan.episode is None:
    return [plotting.SOFT] * number
  episode = plan.episode
  share = episode.shot / (episode.shot + episode.query)
  support = min(max(round(share * number), 1), max(number - 1, 1))
  return [plotting.BLUE] * support + [plotting.ORANGE] * (number - support)


def _sizes(figure, hierarchy, k, top, height):
  """A histogram of the family sizes at the right of the row."""
  sizes = hierarchy.child_counts(k)
  axes = figure.add_axes((
      1 - 1.65 / plotting.NARROW, 1 - (top + 1.06) / height,
      1.35 / plotting.NARROW, 0.46 / height,
  ))
  span = int(sizes.max() - sizes.min())
  bins = (
      np.arange(sizes.min(), sizes.max() + 2) - 0.5 if span <= 24 else 16
  )
  axes.grid(False)
  axes.hist(
      sizes, bins=bins, color=plotting.SKY, edgecolor="white", linewidth=0.4
  )
  axes.set_xticks([int(sizes.min()), int(sizes.max())])
  axes.set_yticks([])
  axes.tick_params(labelsize=7.5, length=2, pad=1)
  axes.set_xlabel("family size", fontsize=7.5, labelpad=-7)
  axes.spines["left"].set_visible(False)


def _legend(axes, plan, y):
  """What the squares mean."""
  entries = [("not drawn", ""), ("drawn", plotting.SOFT)]
  if plan.episode is not None:
    entries += [
        ("drawn as support", plotting.BLUE), ("drawn as query", plotting.ORANGE)
    ]
  x = _LEFT
  for text, color in entries:
    _square(axes, x, y - 0.07, 0.14, color)
    axes.text(x + 0.2, y, text, va="center")
    x += 0.45 + 0.08 * len(text)


def _square(axes, x, y, side, color):
  """A unit: filled with a colour, or empty; query is hatched as well."""
  axes.add_patch(patches.Rectangle(
      (x, y), side, side, linewidth=1.0,
      facecolor=color or "white",
      edgecolor=plotting.INK if color else plotting.SOFT,
      hatch="////" if color == plotting.ORANGE else None,
  ))
