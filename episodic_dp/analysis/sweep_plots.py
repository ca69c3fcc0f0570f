"""Draws what `sweeps` computes."""

import math
import os
import pathlib
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import plotting

# How the lines of the comparison are drawn; levels take `plotting.series`.
_STYLES: dict[str, dict[str, Any]] = {
    "own": dict(color=plotting.BLUE, linestyle="-", linewidth=2.2),
    "other": dict(color=plotting.SKY, linestyle="-."),
    "invalid": dict(color=plotting.VERMILLION, linestyle="--"),
    "plain": plotting.REFERENCE,
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
  plotting.save(draw(data), path)
  return path


def title(data: dict[str, Any]) -> str:
  """Two lines: what is sampled, and what is released at which delta."""
  return (
      f"{' > '.join(data['stages'])}\nz = {data['noise_multiplier']:g} per"
      f" {data['clip_unit']}, δ = {data['delta']:g}"
  )


@plotting.styled
def draw(data: dict[str, Any]) -> plotting.Figure:
  """A matplotlib figure of one sweep, two panels in a row."""
  panels = data["panels"]
  columns = min(len(panels), 2)
  rows = math.ceil(len(panels) / columns)
  figure = plotting.figure(
      4.3 * rows + 0.4,
      width=plotting.NARROW if columns == 1 else plotting.WIDE,
  )
  figure.suptitle(title(data))
  grid = figure.subplots(rows, columns, squeeze=False)
  for axes, panel in zip(grid.flat, panels):
    _panel(axes, panel)
  return figure


def _panel(axes: plotting.Axes, panel: dict[str, Any]) -> None:
  """Lines, axes and legend of one panel."""
  scales = panel["x_scale"], panel["y_scale"]
  axes.set(
      title=panel["title"], xlabel=panel["x_label"], ylabel=panel["y_label"],
      xscale=scales[0], yscale=scales[1],
  )
  for number, line in enumerate(panel["lines"]):
    _line(axes, line, number, panel)
  if panel["y_range"] is not None:
    axes.set_ylim(*panel["y_range"])
  for axis, limits, scale in zip(
      (axes.xaxis, axes.yaxis), (axes.get_xlim(), axes.get_ylim()), scales
  ):
    if scale == "log" and limits[1] < 1e5 * limits[0]:
      plotting.plain_numbers(axis)
  if panel["x_ticks"] is not None:
    ticks = {float(x): text for x, text in panel["x_ticks"].items()}
    axes.set_xticks(list(ticks), list(ticks.values()))
  axes.grid(which="both")
  plotting.legend_below(
      axes, gap=0.17 if panel["x_ticks"] is None else 0.24
  )


def _line(
    axes: plotting.Axes,
    line: dict[str, Any],
    number: int,
    panel: dict[str, Any],
) -> None:
  """One line with the config's own point on it; gaps where nothing holds."""
  points = [
      (x, y) for x, y in zip(line["x"], line["y"])
      if _has_place(y, panel["y_scale"])
  ]
  own, label = line["own"], line["label"]
  if own is not None and isinstance(own[1], float):
    label += f": ε = {report.rounded_up(own[1])} here"
  look = _STYLES.get(line["style"]) or plotting.series(number)
  (curve,) = axes.plot(
      [x for x, _ in points], [y for _, y in points], label=label,
      **look | {"marker": "" if panel["x_ticks"] is None else "."},
  )
  if own is not None and _has_place(own[1], panel["y_scale"]):
    axes.plot(
        *([value] for value in own), marker=look.get("marker", "o"),
        markersize=7, color=curve.get_color(),
        markeredgecolor=plotting.INK, linestyle="",
    )


def _has_place(value: Any, scale: str) -> bool:
  """Whether a value can be shown on an axis of this scale."""
  return isinstance(value, float) and (scale != "log" or value > 0)
