"""Draws claimed against measured epsilon over the number of steps."""

import os
import pathlib
from typing import Any

from episodic_dp.analysis import sweep_plots
from episodic_dp.output import files


def write(result: dict[str, Any], path: str | os.PathLike) -> pathlib.Path:
  """Writes the picture (PNG) of `audit_runs.audit`.

  Raises:
    ValueError: the folder cannot be written.
  """
  path = pathlib.Path(path)
  figure = draw(result)
  with files.replacing(path) as beside:
    figure.savefig(beside, format="png", dpi=150)
  return path


def draw(result: dict[str, Any]):
  """A matplotlib figure with one panel per level."""
  # Late, and without pyplot: no display is needed.
  from matplotlib import figure as figure_lib

  rows = result["levels"]
  figure = figure_lib.Figure(
      figsize=(1.2 + 4.2 * len(rows), 4.4), layout="constrained"
  )
  figure.suptitle(sweep_plots.title(result), fontsize=9)
  (panels,) = figure.subplots(1, len(rows), squeeze=False)
  for axes, row in zip(panels, rows):
    _panel(axes, row, result)
  return figure


def _panel(axes, row: dict[str, Any], result: dict[str, Any]) -> None:
  from matplotlib import ticker

  steps = [point["steps"] for point in row["curve"]]
  claimed = [point["claimed"] for point in row["curve"]]
  measured = [point["measured"] for point in row["curve"]]
  axes.fill_between(steps, measured, claimed, color="0.9", linewidth=0)
  axes.plot(
      steps, claimed, color="tab:blue", marker="o", markersize=4,
      label="claimed: at most",
  )
  axes.plot(
      steps, measured, color="tab:orange", marker="^", markersize=5,
      label=f"measured: at least ({100 * result['confidence']:g} %)",
  )
  axes.set_title(row["level"], fontsize=10)
  axes.set_xlabel("steps T")
  axes.set_ylabel(f"ε ({row['neighbours']})")
  if len(steps) > 1:
    axes.set_xscale("log")
  axes.xaxis.set_major_locator(ticker.FixedLocator(steps))
  axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
  axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.set_ylim(bottom=0)
  axes.grid(alpha=0.3, linewidth=0.5)
  axes.legend(loc="upper left", fontsize=8)
