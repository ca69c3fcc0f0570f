"""Contact sheets: images at a whole multiple of their size, never smoothed."""

import math

import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

from episodic_dp.analysis.inspection import tasks as tasks_lib
from episodic_dp.output import plotting
from episodic_dp.output import quoting
from episodic_dp.output import strips

SHOWN = 5  # Images of a class, support and query each.
_CELL = 56  # Pixels that an image should at least have.
_WIDTH = 1500
_FRAME, _PAD = 4, 18
_TITLE = 34


def shown(images: np.ndarray) -> np.ndarray:
  """The images of a class that a sheet shows: the first `SHOWN`."""
  return images[:SHOWN]


def draw(task_sheet: tasks_lib.TaskSheet, title: str) -> bytes:
  """A PNG of all tasks, each with its labels; support framed, query framed.

  Args:
    task_sheet: at least one task.
    title: stands above.
  """
  panels = [_panel(i, task) for i, task in enumerate(task_sheet.tasks)]
  width, height = panels[0].size
  columns = max(1, min(len(panels), (_WIDTH - _PAD) // (width + _PAD)))
  # The fewest rows that fit, filled evenly.
  rows = math.ceil(len(panels) / columns)
  columns = math.ceil(len(panels) / rows)
  lines = [
      (title, strips.font_of(20, bold=True)),
      (task_sheet.source, strips.font_of(13)),
  ]
  if task_sheet.private:
    lines.append((
        "PRIVATE training images: for the data holder's eyes, not to be"
        " published", strips.font_of(13, bold=True),
    ))
  total = columns * (width + _PAD) + _PAD
  wrapped = [
      (part, font)
      for text, font in lines
      for part in _wrap(quoting.printable(text), font, total - 2 * _PAD)
  ]
  head = _PAD + sum(strips.line_of(font) for _, font in wrapped)
  canvas = Image.new(
      "RGB", (total, head + rows * (height + _PAD) + _PAD), "white"
  )
  pen, y = ImageDraw.Draw(canvas), _PAD
  for text, font in wrapped:
    pen.text((_PAD, y), text, fill=plotting.INK, font=font)
    y += strips.line_of(font)
  for i, panel in enumerate(panels):
    row, column = divmod(i, columns)
    canvas.paste(
        panel,
        (_PAD + column * (width + _PAD), head + _PAD // 2
         + row * (height + _PAD)),
    )
  return strips.png(canvas)


def scale_of(images: np.ndarray) -> int:
  """How many pixels one pixel of images [..., H, W, C] becomes."""
  return max(1, round(_CELL / max(images.shape[-3:-1])))


def _panel(number: int, task: tasks_lib.TaskImages) -> Image.Image:
  """One task: a row per class, support at the left, query at the right."""
  scale = scale_of(task.support)
  rows = [
      [
          strips.strip(shown(part[i]), scale)
          for part in (task.support, task.query)
      ]
      for i in range(len(task.support))
  ]
  support, query = rows[0][0].width, rows[0][1].width
  line = rows[0][0].height + 2 * _FRAME + 8
  font, small = strips.font_of(15, bold=True), strips.font_of(13)
  label = math.ceil(small.getlength(f"label {len(rows) - 1}")) + 12
  left = label, label + support + 2 * _FRAME + 18
  # A task of one small class is still as wide as the words above it.
  wide = max(left[1] + query + 2 * _FRAME, left[1] + 60) + 2
  canvas = Image.new("RGB", (wide, _TITLE + 20 + line * len(rows)), "white")
  pen = ImageDraw.Draw(canvas)
  pen.text((0, 4), f"Task {number + 1}", fill=plotting.INK, font=font)
  for x, text, color in (
      (left[0], "support", plotting.BLUE),
      (left[1], "query", plotting.VERMILLION),
  ):
    pen.text((x, _TITLE - 6), text, fill=color, font=small)
  for i, images in enumerate(rows):
    y = _TITLE + 16 + i * line
    middle = y + rows[0][0].height // 2 + _FRAME
    pen.text(
        (0, middle), f"label {i}", fill=plotting.INK, font=small, anchor="lm"
    )
    for x, image, color in zip(left, images, (plotting.BLUE, plotting.ORANGE)):
      pen.rectangle(
          (x, y, x + image.width + 2 * _FRAME - 1,
           y + image.height + 2 * _FRAME - 1),
          fill=color,
      )
      canvas.paste(image, (x + _FRAME, y + _FRAME))
  return canvas


def _wrap(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
  """Lines that fit; a word that is too long stands alone."""
  lines = [""]
  for word in text.split():
    longer = f"{lines[-1]} {word}".strip()
    if lines[-1] and font.getlength(longer) > width:
      lines.append(word)
    else:
      lines[-1] = longer
  return lines
