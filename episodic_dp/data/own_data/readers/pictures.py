"""Pictures in the formats of Pillow, each with the bits that it has."""

from collections.abc import Sequence
import pathlib

import numpy as np
from PIL import Image
from PIL import ImageOps

from episodic_dp.data.own_data.readers import example

# What Pillow raises for files that are damaged, cut off or no images.
_UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    MemoryError,
    Image.DecompressionBombError,
)
_SUBFILE_TYPE = 254  # Of a TIFF page: what it is of the file.
_REDUCED_OR_MASK = 1 | 4


def tiff_pages(path: str) -> Sequence[int]:
  """The pages of a TIFF but for those marked as a smaller copy or a mask.

  Raises:
    ValueError: the file cannot be read; one sentence.
  """
  try:
    with Image.open(path) as image:
      count = getattr(image, "n_frames", 1)
      if count == 1:
        return (0,)
      found = []
      for page in range(count):
        image.seek(page)
        tags = getattr(image, "tag_v2", {})
        if not int(tags.get(_SUBFILE_TYPE, 0)) & _REDUCED_OR_MASK:
          found.append(page)
      return tuple(found) or (0,)
  except _UNREADABLE as e:
    raise _unreadable(path, e) from e


def read(path: pathlib.Path, page: int = 0) -> example.Example:
  """Decodes a picture, turned as its camera says and laid on white.

  Grey pictures of 16 bits become float32, 65535 being 1; Pillow reads colours
  with 8 bits each.

  Raises:
    ValueError: the file cannot be read, or its values have no known scale; one
      sentence.
  """
  try:
    with Image.open(path) as image:
      if page:
        image.seek(page)
      image.load()
      picture = ImageOps.exif_transpose(image)
  except _UNREADABLE as e:
    raise _unreadable(path, e) from e
  if picture.mode.startswith("I;16"):
    values = np.asarray(picture, np.uint16).astype(np.float32) / 65535
    return example.Example(values[..., None], image=True)
  if picture.mode in ("I", "F"):
    raise ValueError(
        f"the values of {path} (mode {picture.mode} of Pillow) have no known"
        " scale: save it as a grey picture of 8 or 16 bits, or as .npy to have"
        " its numbers as they are"
    )
  if picture.has_transparency_data:
    over = picture.convert("RGBA")
    under = Image.new("RGBA", over.size, "white")
    picture = Image.alpha_composite(under, over).convert(
        "L" if picture.mode in ("L", "LA", "La", "1") else "RGB"
    )
  picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
  values = np.asarray(picture, np.uint8)
  return example.Example(
      values[..., None] if values.ndim == 2 else values, image=True
  )


def _unreadable(path: str | pathlib.Path, error: Exception) -> ValueError:
  return ValueError(
      f"{path} cannot be read as an image ({example.reason(error, path)}):"
      " repair it or remove it"
  )
