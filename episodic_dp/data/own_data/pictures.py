"""From any picture to uint8 pixels of one size and colour."""

import pathlib

import numpy as np
from PIL import Image
from PIL import ImageOps

# An image with 8 bits per channel, or uint8[H, W] or [H, W, 1 or 3].
Picture = Image.Image | np.ndarray

# What Pillow raises for files that are damaged, cut off or no images.
_UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    Image.DecompressionBombError,
)


def read(path: pathlib.Path) -> Image.Image:
  """Decodes the first frame of a file, turned as its camera says.

  Of 16 bits the upper 8 are kept.

  Raises:
    ValueError: the file cannot be read, or its values have no known scale; one
      sentence.
  """
  try:
    with Image.open(path) as image:
      image.load()
      picture = ImageOps.exif_transpose(image)
  except _UNREADABLE as e:
    reason = " ".join(str(e).replace(str(path), "it").split())
    raise ValueError(
        f"{path} cannot be read as an image ({reason or type(e).__name__}):"
        " repair it or remove it"
    ) from e
  if picture.mode.startswith("I;16"):
    return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
  if picture.mode in ("I", "F"):
    raise ValueError(
        f"the values of {path} (mode {picture.mode} of Pillow) have no known"
        " scale: save it with 8 bits per channel"
    )
  return picture


def fit(picture: Picture, shape: tuple[int, int, int]) -> np.ndarray:
  """Pixels of a given shape.

  Sides are scaled, not cut, with a filter that averages what it drops
  (bilinear). Transparent pictures are laid on white.

  Args:
    picture: an image, or its pixels.
    shape: (height, width, 1 for grey or 3 for RGB).

  Returns:
    uint8 of that shape.
  """
  height, width, channels = shape
  if isinstance(picture, np.ndarray):
    if picture.ndim == 2:
      picture = picture[..., None]
    if picture.shape == shape:
      return picture
    grey = picture.shape[-1] == 1
    picture = Image.fromarray(picture[..., 0] if grey else picture)
  if picture.has_transparency_data:
    over = picture.convert("RGBA")
    under = Image.new("RGBA", over.size, "white")
    picture = Image.alpha_composite(under, over)
  picture = picture.convert("L" if channels == 1 else "RGB")
  picture = picture.resize((width, height), Image.Resampling.BILINEAR)
  return np.asarray(picture, np.uint8).reshape(shape)
