"""One figure of a plan: levels, stages, epsilon, and some public tasks.

The tasks that are shown are of the validation split, which is public by
assumption. No training image is shown, and no secret key is read.
"""

from collections.abc import Mapping
import math
import os
from typing import Any, TYPE_CHECKING

from matplotlib import patches
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.config import RunConfig
from episodic_dp.output import plotting
from episodic_dp.plan import stages

if TYPE_CHECKING:
  from episodic_dp import training

FILE = "inspect.png"
TASKS = 4  # Of the contact sheet.

_SQUARES = 13  # Of one row of the tree.
_ROW = 1.0  # Inches of a level of the tree.
_PANEL = 2.6  # Inches of a row of tasks.


def public_tasks(
    config: RunConfig, data_dir: str | os.PathLike | None, download: bool
) -> "training.evaluation.Tasks | None":
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


@plotting.styled
def draw(
    release: plan_lib.Release,
    guarantees: Mapping[str, Mapping[str, Any]],
    tasks: "training.evaluation.Tasks | None" = None,
) -> plotting.Figure:
  """Draw the tree with its stages and epsilon, and tasks below it.

  Args:
    release: how a step samples.
    guarantees: level -> {"epsilon"}, as of `costs.account`.
    tasks: public ones, or None.
  """
  hierarchy, plan = release.hierarchy, release.plan
  sheets = [] if tasks is None else [
      sheet(tasks, i) for i in range(len(tasks.rows))
  ]
  rows = math.ceil(len(sheets) / 2)
  heights = [_ROW * hierarchy.depth] + [_PANEL] * rows
  figure = plotting.figure(sum(heights) + 0.4)
  grid = figure.add_gridspec(1 + rows, 2, height_ratios=heights)
  axes = figure.add_subplot(grid[0, :])
  axes.set(xlim=(-0.2, _SQUARES + 1), ylim=(3 * hierarchy.depth, -0.2))
  axes.axis("off")
  for k, (level, stage) in enumerate(zip(hierarchy.levels, plan.stages)):
    children = hierarchy.child_counts(k)
    number = max(1, min(int(children.max()), _SQUARES))
    filled = filled_squares(float(np.max(stage.rate(children))), number)
    for i in range(number):
      axes.add_patch(patches.Rectangle(
          (i, 3 * k + 1.4), 0.8, 1.0, edgecolor=plotting.SOFT,
          facecolor=plotting.BLUE if i in filled else "white",
      ))
    epsilon = "no guarantee"
    if level in guarantees:
      rounded = report.rounded_up(float(guarantees[level]["epsilon"]))
      epsilon = f"ε = {rounded}"
    axes.text(
        0, 3 * k + 0.9,
        f"{hierarchy.num_units(k)} {level} units by {stages.stage_text(stage)},"
        f" {epsilon}", color=plotting.INK, weight="bold",
    )
  for i, image in enumerate(sheets):
    axes = figure.add_subplot(grid[1 + i // 2, i % 2])
    axes.imshow(image, interpolation="nearest")
    axes.set_title(f"public task {i + 1}: support | query", loc="left")
    axes.axis("off")
  return figure


def sheet(tasks: "training.evaluation.Tasks", index: int) -> np.ndarray:
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


def filled_squares(share: float, number: int) -> list[int]:
  """Choose which of `number` squares are filled: about the sampled share."""
  filled = min(max(round(share * number), int(share > 0)), number)
  return [math.floor((i + 0.5) * number / filled) for i in range(filled)]
