"""Draws claimed against measured epsilon over the number of steps."""

import os
import pathlib
from typing import Any

from episodic_dp.analysis import sweeps
from episodic_dp.output import plotting


def write(result: dict[str, Any], path: str | os.PathLike) -> pathlib.Path:
  """Writes the picture (PNG) of `auditing.audit.audit`; returns its path.

  Raises:
    ValueError: the folder cannot be written.
  """
  path = pathlib.Path(path)
  plotting.save(draw(result), path)
  return path


@plotting.styled
def draw(result: dict[str, Any]) -> plotting.Figure:
  """A matplotlib figure with one panel per level."""
  rows = result["levels"]
  figure = plotting.figure(4.4, width=1.2 + 4.2 * len(rows))
  figure.suptitle(sweeps.title(result))
  (panels,) = figure.subplots(1, len(rows), squeeze=False)
  for axes, row in zip(panels, rows):
    _panel(axes, row, result["confidence"])
  return figure


def _panel(
    axes: plotting.Axes, row: dict[str, Any], confidence: float
) -> None:
  """Both curves of one level, the room between them shaded."""
  steps, claimed, measured = (
      [point[name] for point in row["curve"]]
      for name in ("steps", "claimed", "measured")
  )
  axes.fill_between(steps, measured, claimed, color="0.92", linewidth=0)
  axes.plot(steps, claimed, label="claimed: at most", **plotting.series(0))
  axes.plot(
      steps, measured, label=f"measured: at least ({100 * confidence:g} %)",
      **plotting.series(1),
  )
  axes.set_title(row["level"])
  axes.set_xlabel("steps T")
  axes.set_ylabel(f"ε ({row['neighbours']})")
  if len(steps) > 1:
    axes.set_xscale("log")
  plotting.ticks(axes.xaxis, steps)
  axes.set_ylim(bottom=0)
  axes.legend(loc="upper left")
