"""Figures of a plan: stages, epsilon, public tasks; epsilon over delta.

The tasks are from the validation split, which is public by assumption. No
training image is shown, and no secret key is read.
"""

from collections.abc import Mapping
import os
from typing import Any, TYPE_CHECKING

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.run import Run

if TYPE_CHECKING:
  from episodic_dp import training

FILE = "inspect.png"
TASKS = 4  # On the contact sheet.


def public_tasks(
    config: Run, data_dir: str | os.PathLike | None, download: bool
) -> "training.evaluation.Tasks | None":
  """Sample tasks of the plan's way, shot and query from the validation split.

  Returns:
    The tasks; None if the plan forms no tasks, or the examples are not images.

  Raises:
    FileNotFoundError: the data are missing.
    PlanError: the split is too small for such a task.
  """
  # Lazy imports: a figure without images needs no JAX.
  from episodic_dp import training

  episode = config.release.plan.episode
  if episode is None or not config.data.name:
    return None
  validation = config.data.load(
      data_dir=data_dir, download=download
  ).validation
  if validation.targets or len(validation.image_shape) != 3:
    return None
  # The public units may have fewer classes than a training task.
  return training.sample_tasks(
      validation, way=min(episode.way, config.way), shot=episode.shot,
      query=episode.query, classes=episode.classes, count=TASKS, seed=0,
  )


@plotting.styled
def draw(
    release: plan_lib.Release,
    guarantees: Mapping[str, Mapping[str, Any]],
    tasks: "training.evaluation.Tasks | None" = None,
) -> plotting.Figure:
  """Plot tasks below the sampling and the epsilon of each level.

  Args:
    release: the release of a step.
    guarantees: level -> {"epsilon"}, from `costs.account`.
    tasks: `TASKS` public ones, or None.
  """
  lines = release.stage_lines
  for i, level in enumerate(release.levels):
    shown = "no guarantee"
    if level in guarantees:
      epsilon = float(guarantees[level]["epsilon"])
      shown = f"ε = {report.rounded_up(epsilon)}"
    lines[i] += f", {shown}"
  figure = plotting.figure(1.5 if tasks is None else 6.5)
  figure.suptitle("\n".join(lines))
  if tasks is not None:
    for i, axes in enumerate(figure.subplots(2, TASKS // 2).flat):
      axes.imshow(sheet(tasks, i), interpolation="nearest")
      axes.set_title(f"public task {i + 1}: support | query", loc="left")
      axes.axis("off")
  return figure


def sheet(tasks: "training.evaluation.Tasks", index: int) -> np.ndarray:
  """Arrange one task: a row for each class, the support left of the query.

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
  way, count, height, width, _ = padded.shape
  rows = padded.swapaxes(1, 2).reshape(way * height, count * width, 3)
  return np.insert(rows, [shot * width] * (width // 4), 255, axis=1)


@plotting.styled
def draw_curve(data: Mapping[str, Any]) -> plotting.Figure:
  """Plot epsilon over delta, and true-positive over false-positive rates."""
  figure = plotting.figure(4.6, width=plotting.WIDE)
  figure.suptitle(
      f"z = {data['noise_multiplier']:g} per {data['clip_unit']},"
      f" steps={data['steps']}"
  )
  axes, gains = figure.subplots(1, 2)
  rates = data["false_positive_rates"]
  for number, (level, epsilons) in enumerate(data["epsilons"].items()):
    look = plotting.series(number)
    values = [*map(float, epsilons)]  # An infinite one is not plotted.
    axes.plot(data["deltas"], values, label=level, **look)
    gains.plot(
        rates, data["true_positive_rates"][level], label=level, **look
    )
  axes.axvline(data["delta"], **plotting.REFERENCE)
  gains.plot(rates, rates, **plotting.REFERENCE)
  axes.set(xscale="log", xlabel="δ", ylabel="ε")
  gains.set(
      xscale="log", yscale="log", xlabel="false-positive rate of any attacker",
      ylabel="true-positive rate, at most",
  )
  axes.legend()
  return figure
