"""Pictures of what a model said: a confusion matrix, and a contact sheet."""

from collections.abc import Sequence
import dataclasses
import math
import os

import numpy as np
from PIL import Image
from PIL import ImageDraw

from episodic_dp.export.predictor import Predictions
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import quoting
from episodic_dp.output import strips

_MOST = 60  # Images of a section: more are not looked at.
_LONGEST = 22  # Characters of a name.
_CELL = 84  # Pixels that an image should have at least.
_GAP, _PAD, _WIDTH = 14, 18, 1400
_NUMBERS = 15  # Classes up to which each cell has its number.


@plotting.styled
def confusion(
    labels: Sequence[str],
    predictions: Predictions,
    path: str | os.PathLike[str],
) -> None:
  """Draws how often each class was named what; a row is a class.

  Args:
    labels: of the examples.
    predictions: of the same.
    path: of the PNG.
  """
  classes = [str(c) for c in predictions.classes]
  n = len(classes)
  counts = np.zeros((n, n), int)
  for label, found in zip(labels, predictions.labels, strict=True):
    counts[classes.index(label), classes.index(str(found))] += 1
  totals = counts.sum(1, keepdims=True)
  shares = counts / np.maximum(totals, 1)
  side = min(2.6 + 0.55 * n, 14.0)
  drawn = plotting.figure(side, width=side + 1.2)
  axes = drawn.subplots()
  shown = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
  names = [_short(name) for name in classes]
  axes.set_xticks(range(n), names, rotation=45, ha="right")
  axes.set_yticks(
      range(n), [f"{name} ({int(t)})" for name, t in zip(names, totals[:, 0])]
  )
  axes.grid(False)
  axes.set_xlabel("said")
  axes.set_ylabel("is (images)")
  right = int(np.trace(counts))
  axes.set_title(f"{right} of {int(counts.sum())} right")
  for i in range(n) if n <= _NUMBERS else ():
    for j in range(n):
      if counts[i, j]:
        axes.text(
            j, i, str(counts[i, j]), ha="center", va="center",
            color="white" if shares[i, j] > 0.5 else plotting.INK,
        )
  bar = drawn.colorbar(shown, ax=axes, fraction=0.046, pad=0.04)
  bar.set_label("share of the row")
  plotting.save(drawn, path)


@dataclasses.dataclass(frozen=True)
class _Section:
  """Some images of a sheet: a title, and which."""

  title: str
  color: str
  numbers: list[int]


def contact_sheet(
    rows: np.ndarray,
    names: Sequence[str],
    labels: Sequence[str] | None,
    predictions: Predictions,
    path: str | os.PathLike[str],
) -> None:
  """Draws the images as the network saw them, with what it said of each.

  With labels the wrong ones first, the surest at the front; without, by the
  class that was said. Of many in one section the first are shown.

  Args:
    rows: of images, uint8 or float32 [n, H, W, 1 or 3].
    names: of their files.
    labels: their classes, or None.
    predictions: of them.
    path: of the PNG.
  """
  sections = _sections(labels, predictions)
  images = _as_bytes(rows)
  scale = max(1, round(_CELL / max(images.shape[1:3])))
  small = strips.font_of(11)
  texts = [_caption(i, names, labels, predictions) for i in range(len(names))]
  shown = [i for s in sections for i in s.numbers[:_MOST]]
  wide = max(
      images.shape[2] * scale,
      max(
          math.ceil(small.getlength(line)) for i in shown for line in texts[i]
      ),
  )
  lines = max(len(texts[i]) for i in shown)
  cell = (wide, images.shape[1] * scale + 4 + lines * strips.line_of(small))
  columns = max(1, (_WIDTH - 2 * _PAD + _GAP) // (cell[0] + _GAP))
  columns = min(
      columns, max(1, *(len(s.numbers[:_MOST]) for s in sections), 4)
  )
  canvas = _canvas(sections, columns, cell)
  pen, y = ImageDraw.Draw(canvas), _PAD
  for section in sections:
    pen.text(
        (_PAD, y), section.title, fill=section.color,
        font=strips.font_of(16, bold=True),
    )
    y += _TITLE
    for place, number in enumerate(section.numbers[:_MOST]):
      row, column = divmod(place, columns)
      x, top = _PAD + column * (cell[0] + _GAP), y + row * (cell[1] + _GAP)
      picture = strips.strip(images[number : number + 1], scale)
      pen.rectangle(
          (x - 2, top - 2, x + picture.width + 1, top + picture.height + 1),
          outline=section.color, width=2,
      )
      canvas.paste(picture, (x, top))
      for line, text in enumerate(texts[number]):
        pen.text(
            (x, top + picture.height + 4 + line * strips.line_of(small)),
            text, fill=plotting.INK, font=small,
        )
    y += _rows_of(section, columns) * (cell[1] + _GAP)
  with files.replacing(path) as beside:
    beside.write_bytes(strips.png(canvas))


_TITLE = 36


def _canvas(
    sections: Sequence[_Section], columns: int, cell: tuple[int, int]
) -> Image.Image:
  width = 2 * _PAD + columns * (cell[0] + _GAP) - _GAP
  titles = max(
      math.ceil(strips.font_of(16, bold=True).getlength(s.title))
      for s in sections
  )
  height = 2 * _PAD + sum(
      _TITLE + _rows_of(s, columns) * (cell[1] + _GAP) for s in sections
  )
  return Image.new("RGB", (max(width, titles + 2 * _PAD), height), "white")


def _rows_of(section: _Section, columns: int) -> int:
  return math.ceil(len(section.numbers[:_MOST]) / columns)


def _sections(
    labels: Sequence[str] | None, predictions: Predictions
) -> list[_Section]:
  said = predictions.labels
  sure = predictions.probabilities.max(-1)
  order = [int(i) for i in np.argsort(-sure, kind="stable")]
  if labels is None:
    groups = [
        (f"said: {_short(str(c))}", plotting.BLUE,
         [i for i in order if said[i] == c])
        for c in predictions.classes
    ]
  else:
    groups = [
        ("wrong", plotting.VERMILLION,
         [i for i in order if said[i] != labels[i]]),
        ("right", plotting.GREEN, [i for i in order if said[i] == labels[i]]),
    ]
  found = []
  for title, color, numbers in groups:
    if not numbers:
      continue
    text = f"{title}: {len(numbers)} of {len(said)}"
    if len(numbers) > _MOST:
      text += f", the {_MOST} surest shown"
    found.append(_Section(text, color, numbers))
  return found


def _caption(
    number: int,
    names: Sequence[str],
    labels: Sequence[str] | None,
    predictions: Predictions,
) -> list[str]:
  """The lines under an image."""
  said, sure = (
      predictions.labels[number], predictions.probabilities[number].max()
  )
  lines = [f"{_short(str(said))}  {100 * sure:.0f} %"]
  if labels is not None and said != labels[number]:
    lines.append(f"is {_short(labels[number])}")
  return [*lines, _short(names[number].rpartition(os.sep)[2])]


def _short(name: str) -> str:
  name = quoting.printable(name)
  return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _as_bytes(rows: np.ndarray) -> np.ndarray:
  """Rows as uint8; scaled ones between their extremes."""
  if rows.dtype == np.uint8:
    return rows
  low, high = min(0.0, rows.min()), max(1.0, rows.max())
  return np.rint(255 * (rows - low) / (high - low)).astype(np.uint8)
