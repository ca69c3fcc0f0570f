"""One figure and one table of a plan: levels, stages, rates, epsilon, tasks.

The tasks that are shown are of the validation split, which is public by
assumption. No training image is shown, and no secret key is read.
"""

from collections.abc import Sequence
import dataclasses
import math
import os
import pathlib
from typing import TYPE_CHECKING

from matplotlib import patches
import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.config import RunConfig
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.plan import stages as stages_lib

if TYPE_CHECKING:
  from episodic_dp import training

FILE = "inspect.png"
TASKS = 4  # Of the contact sheet.

_SQUARES = 13  # Of one row of the tree.
_ROW = 1.0  # Inches of a level of the tree.
_PANEL = 2.6  # Inches of a row of tasks.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
  """A level of the hierarchy, how a step draws it, and its guarantee.

  Attributes:
    name: of the level.
    units: number of its units.
    family: smallest and largest number of units below one parent.
    stage: how the children of a chosen parent are drawn.
    parent: q, smallest and largest probability that the parent is drawn.
    own: p, that a unit is drawn once its parent is.
    inclusion: eta = q p, of one step, or of one task of form "independent".
    epsilon: None where the level has no guarantee.
    reason: why it has none, or "".
  """

  name: str
  units: int
  family: tuple[int, int]
  stage: plan_lib.Stage
  parent: tuple[float, float]
  own: tuple[float, float]
  inclusion: tuple[float, float]
  epsilon: float | None
  reason: str


def levels(config: RunConfig) -> list[Level]:
  """Describe every level of a config's plan, in tree order.

  Raises:
    PlanError: the config is not complete.
  """
  release = config.release
  hierarchy, plan = release.hierarchy, release.plan
  found = []
  parent = np.ones(1)
  for k, (name, stage) in enumerate(zip(hierarchy.levels, plan.stages)):
    children = hierarchy.child_counts(k)
    own = np.asarray(stage.rate(children), float)
    held = children > 0
    epsilon, reason = _epsilon(config, name)
    found.append(Level(
        name=name,
        units=hierarchy.num_units(k),
        family=(int(children.min()), int(children.max())),
        stage=stage,
        parent=_range(parent[held]),
        own=_range(own[held]),
        inclusion=_range((parent * own)[held]),
        epsilon=epsilon,
        reason=reason,
    ))
    parent = parent * own
    if hierarchy.sizes is None and k < hierarchy.depth - 1:
      parent = np.repeat(parent, children)
  return found


def _epsilon(config: RunConfig, level: str) -> tuple[float | None, str]:
  """Return a level's epsilon, or None and why it has none."""
  try:
    found = accounting.guarantee(
        config.release, steps=config.planned_steps, delta=config.delta,
        level=level,
    )
  except plan_lib.UnsoundPlanError as e:
    return None, str(e)
  return found.epsilon, ""


def _range(values: np.ndarray) -> tuple[float, float]:
  return float(values.min()), float(values.max())


def _shown(values: tuple[float, float]) -> str:
  """Write a value, or the smallest and the largest one."""
  low, high = values
  if math.isclose(low, high, rel_tol=1e-9):
    return f"{high:.4g}"
  return f"{low:.4g} to {high:.4g}"


def table(found: Sequence[Level], config: RunConfig) -> str:
  """Write levels, units, rates and epsilon as text."""
  rows = []
  for one in found:
    epsilon = "-" if one.epsilon is None else report.rounded_up(one.epsilon)
    rows.append([
        one.name, one.units, stages_lib.stage_text(one.stage),
        _shown(one.parent), _shown(one.own), _shown(one.inclusion), epsilon,
    ])
  header = ["level", "units", "stage", "q", "p", "eta", "epsilon"]
  return "\n".join([
      tables.text(header, rows),
      "",
      f"epsilon of {config.planned_steps} steps at delta {config.delta:g}; q:"
      " probability that a step draws the parent;",
      "p: that it then draws the unit; eta = q p",
      *(f"{one.name}: no guarantee: {one.reason}" for one in found
        if one.reason),
  ])


def public_tasks(
    config: RunConfig, data_dir: str | os.PathLike | None, download: bool
) -> "training.Tasks | None":
  """Draw tasks of the plan's way, shot and query from the validation split.

  Returns:
    None where the plan forms no tasks, or the examples are no images.

  Raises:
    FileNotFoundError: the data are not at hand.
    PlanError: the split is too small for such a task.
  """
  # Lazy imports: a figure without images needs no JAX.
  from episodic_dp import training
  from episodic_dp.config import build

  episode = config.release.plan.episode
  if episode is None or not config.data.name:
    return None
  validation = build.load_data(
      config, data_dir=data_dir, download=download
  ).validation
  if validation.targets or len(validation.image_shape) != 3:
    return None
  classes = episode.classes
  return training.draw(
      validation, way=episode.way, shot=episode.shot, query=episode.query,
      classes=classes if classes in validation.hierarchy.levels else None,
      count=TASKS, seed=0,
  )


def write(
    found: Sequence[Level],
    config: RunConfig,
    tasks: "training.Tasks | None",
    out: str | os.PathLike,
) -> pathlib.Path:
  """Write the figure to a folder; return its path.

  Raises:
    OSError: the folder cannot be written.
  """
  path = pathlib.Path(out) / FILE
  plotting.save(draw(found, config.release.plan, tasks), path)
  return path


@plotting.styled
def draw(
    found: Sequence[Level],
    plan: plan_lib.SamplingPlan,
    tasks: "training.Tasks | None" = None,
) -> plotting.Figure:
  """Draw the tree with its stages and rates, and tasks below it."""
  sheets = [] if tasks is None else [
      sheet(tasks, i) for i in range(len(tasks.rows))
  ]
  rows = math.ceil(len(sheets) / 2)
  heights = [_ROW * len(found)] + [_PANEL] * rows
  figure = plotting.figure(sum(heights) + 0.4)
  grid = figure.add_gridspec(1 + rows, 2, height_ratios=heights)
  _draw_tree(figure.add_subplot(grid[0, :]), found, plan)
  for i, image in enumerate(sheets):
    axes = figure.add_subplot(grid[1 + i // 2, i % 2])
    axes.imshow(image, interpolation="nearest")
    axes.set_title(f"public task {i + 1}: support | query", loc="left")
    axes.axis("off")
  return figure


def sheet(tasks: "training.Tasks", index: int) -> np.ndarray:
  """Lay out one task: a row for each class, support left of the query.

  Returns:
    uint8[height, width, 3].
  """
  shot = tasks.episode.shot
  images = tasks.images[tasks.rows[index]]
  if images.shape[-1] != 3:
    images = np.repeat(images[..., :1], 3, axis=-1)
  padded = np.pad(
      images, [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)], constant_values=200
  )
  way, _, height, width, _ = padded.shape
  gap = np.full((way, 1, height, width // 4, 3), 255, images.dtype)
  rows = [
      np.concatenate([*support, *gaps, *query], axis=1)
      for support, gaps, query in zip(padded[:, :shot], gap, padded[:, shot:])
  ]
  return np.concatenate(rows)


def _draw_tree(
    axes: plotting.Axes, found: Sequence[Level], plan: plan_lib.SamplingPlan
) -> None:
  """Draw a family of each level; a drawn unit opens into the row below."""
  axes.set_xlim(-0.2, _SQUARES + 9)
  axes.set_ylim(3 * len(found), -0.2)
  axes.axis("off")
  opening = None
  for k, one in enumerate(found):
    top = 3 * k + 1.4
    number = max(1, min(one.family[1], _SQUARES))
    filled = drawn_squares(one, number)
    if opening is not None:
      axes.add_patch(patches.Polygon(
          [(opening, top - 2), (opening + 0.8, top - 2),
           (number - 0.2, top), (0, top)],
          facecolor=plotting.PALE, alpha=0.5, zorder=0,
      ))
    for i in range(number):
      axes.add_patch(patches.Rectangle(
          (i, top), 0.8, 1.0, edgecolor=plotting.SOFT,
          facecolor=plotting.BLUE if i in filled else "white",
      ))
    axes.text(0, top - 0.5, _title(one), color=plotting.INK, weight="bold")
    epsilon = ", no guarantee"
    if one.epsilon is not None:
      epsilon = f", ε = {report.rounded_up(one.epsilon)}"
    axes.text(
        number + 0.3, top + 0.7,
        f"p = {_shown(one.own)}, η = {_shown(one.inclusion)}{epsilon}",
    )
    opening = filled[0] if filled else None
  if plan.episode is not None:
    axes.set_title(
        f"{plan.episode.way}-way tasks of {plan.episode.shot} support and"
        f" {plan.episode.query} query examples a class", loc="left",
    )


def _title(one: Level) -> str:
  """Name a level, its units and its stage."""
  low, high = one.family
  size = str(high) if low == high else f"{low} to {high}"
  return (
      f"{one.name}: {one.units} units in families of {size},"
      f" {stages_lib.stage_text(one.stage)}"
  )


def drawn_squares(one: Level, number: int) -> list[int]:
  """Choose which of `number` squares are filled: about the drawn share."""
  share = one.own[1]
  filled = min(max(round(share * number), int(share > 0)), number)
  return [
      math.floor((i + 0.5) * number / filled) for i in range(filled)
  ]
