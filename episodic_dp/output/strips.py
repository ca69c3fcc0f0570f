"""Drawing with images as they are: strips of them, captions, PNG files."""

import io
import math
import pathlib

import matplotlib
import numpy as np
from PIL import Image
from PIL import ImageFont

from episodic_dp.output import plotting

_GAP = 3


def strip(images: np.ndarray, scale: int = 1) -> Image.Image:
  """Images side by side, with a gap between them.

  Args:
    images: uint8[n, H, W, C]; one channel is grey, three are red, green and
      blue, and of any other number the first is shown.
    scale: whole number of pixels per pixel.
  """
  if images.shape[-1] != 3:
    images = np.repeat(images[..., :1], 3, axis=-1)
  images = images.repeat(scale, 1).repeat(scale, 2)
  n, height, width, _ = images.shape
  gap = _GAP if scale > 1 else 1
  canvas = Image.new("RGB", (n * (width + gap) - gap, height), plotting.PALE)
  for i, image in enumerate(images):
    image = Image.fromarray(np.ascontiguousarray(image))
    canvas.paste(image, (i * (width + gap), 0))
  return canvas


def png(image: Image.Image) -> bytes:
  """The picture as PNG, without a date or any other text."""
  buffer = io.BytesIO()
  image.save(buffer, format="png", optimize=True)
  return buffer.getvalue()


def font_of(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
  """The font that matplotlib brings, so that all machines draw the same."""
  name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
  folder = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
  return ImageFont.truetype(folder / name, size)


def line_of(font: ImageFont.FreeTypeFont) -> int:
  """The height of a line of text, in pixels."""
  return math.ceil(1.4 * font.size)
