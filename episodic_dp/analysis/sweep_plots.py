"""Draws what `sweeps` computes."""

import math
import os
import pathlib
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.output import files

# How lines other than those of a level are drawn.
_STYLES: dict[str, dict[str, Any]] = {
    "level": {},
    "own": dict(color="tab:blue", linewidth=2),
    "other": dict(color="tab:cyan", linestyle="-."),
    "invalid": dict(color="tab:red", linestyle="--"),
    "plain": dict(color="grey", linestyle=":"),
}


def write(data: dict[str, Any], folder: str | os.PathLike) -> pathlib.Path:
  """Writes FOLDER/sweep_NAME.json and .png of one sweep; returns the picture.

  Args:
    data: of `sweeps.sweep`.
    folder: made where it does not exist.

  Raises:
    ValueError: the folder cannot be written.
  """
  path = pathlib.Path(folder) / f"sweep_{data['sweep']}.png"
  files.write_json(path.with_suffix(".json"), data)
  figure = draw(data)
  with files.replacing(path) as beside:
    figure.savefig(beside, format="png", dpi=150)
  return path


def title(data: dict[str, Any]) -> str:
  """Two lines: what is sampled, and what is released at which delta."""
  return (
      f"{' > '.join(data['stages'])}\nz = {data['noise_multiplier']:g} per"
      f" {data['clip_unit']}, δ = {data['delta']:g}"
  )


def draw(data: dict[str, Any]):
  """A matplotlib figure of one sweep, two panels in a row."""
  # Late, and without pyplot: no display is needed, and tables stay quick.
  from matplotlib import figure as figure_lib

  panels = data["panels"]
  columns = min(len(panels), 2)
  rows = math.ceil(len(panels) / columns)
  figure = figure_lib.Figure(
      figsize=(6.4 if columns == 1 else 10.5, 4.3 * rows + 0.4),
      layout="constrained",
  )
  figure.suptitle(title(data), fontsize=9)
  grid = figure.subplots(rows, columns, squeeze=False)
  for axes, panel in zip(grid.flat, panels):
    _panel(axes, panel)
  return figure


def _panel(axes, panel: dict[str, Any]) -> None:
  for line in panel["lines"]:
    points = [
        (x, y) for x, y in zip(line["x"], line["y"])
        if _is_drawn(y, panel["y_scale"])
    ]
    label = line["label"]
    if line["own"] is not None:
      x, y = line["own"]
      if isinstance(y, float):
        label += f": ε = {report.rounded_up(y)} here"
    (curve,) = axes.plot(
        [x for x, _ in points], [y for _, y in points], label=label,
        **_STYLES[line["style"]],
    )
    if panel["x_ticks"] is not None:
      curve.set_marker(".")
    if line["own"] is not None and _is_drawn(y, panel["y_scale"]):
      axes.plot(
          [x], [y], marker="o", markersize=7, color=curve.get_color(),
          markeredgecolor="black", linestyle="",
      )
  axes.set_title(panel["title"], fontsize=10)
  axes.set_xlabel(panel["x_label"])
  axes.set_ylabel(panel["y_label"])
  axes.set_xscale(panel["x_scale"])
  axes.set_yscale(panel["y_scale"])
  if panel["y_range"] is not None:
    axes.set_ylim(*panel["y_range"])
  for axis, limits, scale in (
      (axes.xaxis, axes.get_xlim(), panel["x_scale"]),
      (axes.yaxis, axes.get_ylim(), panel["y_scale"]),
  ):
    if scale == "log" and limits[1] < 1e5 * limits[0]:
      _plain_numbers(axis, narrow=limits[1] < 300 * limits[0])
  if panel["x_ticks"] is not None:
    ticks = {float(x): text for x, text in panel["x_ticks"].items()}
    axes.set_xticks(list(ticks), list(ticks.values()))
  axes.grid(alpha=0.3, which="both", linewidth=0.5)
  axes.legend(
      loc="upper center", fontsize=8, ncols=2, frameon=False,
      bbox_to_anchor=(0.5, -0.17 if panel["x_ticks"] is None else -0.24),
  )


def _plain_numbers(axis, narrow: bool) -> None:
  """Labels 0.2, 0.5, 1, 2 ... on an axis of few powers of ten."""
  from matplotlib import ticker

  between = (1, 2, 3, 5) if narrow else (1,)
  axis.set_major_locator(ticker.LogLocator(subs=between))
  axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
  axis.set_minor_formatter(ticker.NullFormatter())


def _is_drawn(value: Any, scale: str) -> bool:
  """Whether a value has a place on the axis."""
  return isinstance(value, float) and (scale != "log" or value > 0)
