"""What every reader returns."""

import pathlib
from typing import NamedTuple

import numpy as np

_LONGEST = 120


class Example(NamedTuple):
  """One example as a file holds it.

  Attributes:
    values: of an image uint8[H, W, 1 or 3], 0 to 255, or where it has more
      than 8 bits float32[H, W, 1 or 3], 0 to 1. Of features float32 of one to
      three axes, as they are, all finite.
    image: whether it is an image, which may be scaled to another size.
  """

  values: np.ndarray
  image: bool


def reason(error: Exception, path: str | pathlib.Path) -> str:
  """The text of a library's error, shortened: it may quote the whole file."""
  text = " ".join(str(error).replace(str(path), "it").split())
  text = text or type(error).__name__
  if "allow_pickle" in text:
    # NumPy says so of whatever it does not know, and advises to trust it.
    text = "it holds no arrays of NumPy's, or Python objects, which are no data"
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
