"""Colours, numbers and PNG bytes that all pictures of the page share."""

import io

from matplotlib import figure as figure_lib

# Okabe and Ito's palette: told apart with any kind of colour blindness. Shapes
# and words say the same wherever a colour does.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILLION, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
LEVELS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vP"
LINES = ("-", "--", "-.", ":", "-", "--")
INK, SOFT, PALE = "#222222", "#6b6b6b", "#d9d9d9"

WIDTH = 6.2  # Inches; narrow, so that text stays readable on a phone.
_DPI = 150


def figure(height: float, **options) -> figure_lib.Figure:
  """A figure of the page's width, without pyplot and so without a display."""
  return figure_lib.Figure(
      figsize=(WIDTH, height), facecolor="white", **options
  )


def png(drawn: figure_lib.Figure) -> bytes:
  """The figure as PNG; the same figure gives the same bytes."""
  buffer = io.BytesIO()
  drawn.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
  return buffer.getvalue()


def tidy(axes) -> None:
  """A light grid, and no frame where it says nothing."""
  axes.grid(alpha=0.3, linewidth=0.6)
  axes.set_axisbelow(True)
  for side in ("top", "right"):
    axes.spines[side].set_visible(False)


def count(number: float) -> str:
  """A count for people: 400 000, 160, 0.5."""
  if abs(number - round(number)) < 1e-9 * max(1.0, abs(number)):
    return f"{round(number):,}".replace(",", "\u202f")
  return f"{number:.4g}"


def plural(number: float, word: str) -> str:
  """'1 class', '2 classes', '3 glyphs'."""
  if number == 1:
    return f"{count(number)} {word}"
  if word.endswith("y") and word[-2:-1] not in "aeiou":
    return f"{count(number)} {word[:-1]}ies"
  many = word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
  return f"{count(number)} {many}"
