"""Plot and save all figures in one style.

A drawing function is decorated with `styled`, starts with `figure` and returns
the figure; `save` and `png` make an image of it. No display is needed, and
other figures in the same process keep their style.

Colours are those of Okabe and Ito, which are distinguishable with any kind of
colour blindness. Dashes and markers differ too, for grey print.
"""

from collections.abc import Callable, Sequence
import io
import os
from typing import Any, TypeVar

import cycler
import matplotlib
from matplotlib import axes as axes_lib
from matplotlib import axis as axis_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker
import numpy as np
from PIL import Image

from episodic_dp.output import files

Axes = axes_lib.Axes
Figure = figure_lib.Figure

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
INK, SOFT, PALE = "#222222", "#6b6b6b", "#d9d9d9"
COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)
MARKERS = "osD^vPX"
LINES = ("-", "--", "-.", ":", "-", "--", "-.")

# The style of a reference value, such as chance.
REFERENCE: dict[str, Any] = dict(color=SOFT, linestyle=":", linewidth=1.4)

NARROW, WIDE = 6.4, 10.5  # Inches: one panel, and two.
_DPI = 150
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.prop_cycle": cycler.cycler(color=COLORS, linestyle=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "figure.titlesize": 10,
    "font.family": "DejaVu Sans",  # It comes with matplotlib.
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.dpi": _DPI,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 10,
    "ytick.color": INK,
    "ytick.labelsize": 10,
}

_Drawing = TypeVar("_Drawing", bound=Callable[..., Any])


def styled(draw: _Drawing) -> _Drawing:
  """Decorate a drawing function so that its figure has the common style."""
  return matplotlib.rc_context(_STYLE)(draw)


def figure(height: float, *, width: float = NARROW) -> figure_lib.Figure:
  """Make an empty figure; call it in a function decorated with `styled`.

  Args:
    height: in inches.
    width: in inches, `NARROW` or `WIDE` if one of them fits.
  """
  return figure_lib.Figure(figsize=(width, height))


@styled
def png(drawn: figure_lib.Figure, dpi: int = _DPI) -> bytes:
  """Return the figure as PNG; the same figure gives the same bytes.

  Args:
    drawn: the figure.
    dpi: dots per inch; fewer if many figures share a file.
  """
  whole, small = io.BytesIO(), io.BytesIO()
  drawn.savefig(whole, format="rgba", dpi=dpi)
  width, height = drawn.get_size_inches() * dpi
  size = int(width), int(height)
  image = Image.frombytes("RGBA", size, whole.getvalue()).convert("RGB")
  # A palette takes less than half of the bytes, and looks the same.
  image.quantize(dither=Image.Dither.NONE).save(small, "png", optimize=True)
  return small.getvalue()


def save(
    drawn: figure_lib.Figure, path: str | os.PathLike, *, private: bool = False
) -> None:
  """Write the figure as PNG in one operation; see `files.replacing`."""
  files.write_bytes(path, png(drawn), private=private)


def series(number: int) -> dict[str, Any]:
  """Return colour, dashes and marker of line `number`, from 0."""
  number %= len(COLORS)
  return dict(
      color=COLORS[number], linestyle=LINES[number], marker=MARKERS[number]
  )


def ticks(
    axis: axis_lib.XAxis | axis_lib.YAxis, values: Sequence[float]
) -> None:
  """Set ticks at these values only, as plain numbers.

  Labels of a horizontal axis are tilted if two would touch.

  Args:
    axis: `axes.xaxis` or `axes.yaxis`, its scale set.
    values: positions of the ticks.
  """
  axis.set_ticks(values, [f"{value:g}" for value in values])
  axis.set_ticks([], minor=True)
  places = axis.get_transform().transform(np.sort(np.asarray(values, float)))
  gaps = np.diff(places)
  if axis.axis_name == "x" and gaps.size and gaps.min() < 0.06 * gaps.sum():
    axis.set_tick_params(rotation=35)


def over_steps(axes: Axes) -> None:
  """Format the horizontal axis for steps: whole numbers from 0."""
  axes.set_xlim(left=0)
  axes.set_xlabel("steps")
  axes.xaxis.set_major_locator(
      ticker.MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
  )


def legend_below(axes: Axes, columns: int = 2, gap: float = 0.15) -> None:
  """Put the legend below the panel's label, at `gap` of the panel's height."""
  axes.legend(
      loc="upper center", bbox_to_anchor=(0.5, -gap), ncols=columns
  )
