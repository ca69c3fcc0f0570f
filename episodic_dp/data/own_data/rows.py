"""Rows of one shape, type and scale from examples of any format.

A row depends on public options and on its own file. The first example decides
between images and features and gives the shape of features; an example that
differs is refused, not changed, so that no row depends on another example.
"""

import dataclasses
import math
from typing import Literal

import numpy as np
from PIL import Image

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp.data import dataset
from episodic_dp.data.own_data.readers import Example

_SIDE = 28
_LARGEST = 4096  # Pixels of a side.
FLAG = "--config.data.options."
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, of red, green and blue.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of own data, all public.

  Attributes:
    levels: names of the levels, primary units first, examples last; None means
      class, image or group, class, image.
    size: height and width of images in pixels; None means 28, or the size in an
      .npz.
    color: whether images are RGB; None means grey, or the colours of an .npz.
    depth: bits of an image, 8 for uint8 or 16 for float32; None keeps the bits
      of the files, which must then be 8 in all or more than 8 in all.
    offset: public number that is subtracted from float32 values, or one for
      each entry of their last axis. It is never computed from the data.
    scale: public numbers that divide the difference.
    clip: smallest and largest value of the quotient; others are clipped.
    shares: shares of the units for training, validation and test, if the source
      does not name them; None means 0.6, 0.2, 0.2.
    by: level that is divided, units of one name together; None means the first.
    crossing: second level, if units of one name under several primary units are
      one unit, such as a patient with images of several diagnoses. Its
      guarantee covers all of them, and it may be in one part only.
    seed: public seed of the division into parts, below 2^32.
  """

  levels: tuple[str, ...] | None = None
  size: plain.Count | None = None
  color: bool | None = None
  depth: Literal[8, 16] | None = None
  offset: tuple[float, ...] | None = None
  scale: tuple[float, ...] | None = None
  clip: tuple[float, ...] | None = None
  shares: tuple[float, ...] | None = None
  by: str | None = None
  crossing: str | None = None
  seed: dataset.Seed = 0

  def __post_init__(self) -> None:
    clip, shares = self.clip, self.shares
    checks = {
        "levels": (
            self.levels is None or len(self.levels) >= 2,
            "two names or more, examples last",
        ),
        "size": ((self.size or 1) <= _LARGEST, f"1 to {_LARGEST}"),
        "offset": (_are_finite(self.offset), "finite numbers"),
        "scale": (
            _are_finite(self.scale) and 0 not in (self.scale or ()),
            "finite numbers, no 0",
        ),
        "clip": (
            clip is None
            or (len(clip) == 2 and _are_finite(clip) and clip[0] < clip[1]),
            "the least and the largest value",
        ),
        "shares": (
            shares is None
            or (len(shares) == 3 and _are_finite(shares) and min(shares) > 0),
            "three positive numbers",
        ),
    }
    for name, (fits, expected) in checks.items():
      if not fits:
        raise _validate.refusal(f"{FLAG}{name}", getattr(self, name), expected)

  @property
  def scales(self) -> bool:
    """Return whether values are scaled or clipped."""
    return any(o is not None for o in (self.offset, self.scale, self.clip))


def _are_finite(values: tuple[float, ...] | None) -> bool:
  """Return whether there are no values, or some and all are finite."""
  return values is None or (bool(values) and all(map(math.isfinite, values)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
  """The one form of all rows.

  Attributes:
    image: whether rows are images.
    shape: shape of a row.
    dtype: uint8 or float32.
    options: options of own data.
    first: name of the example that determined the form.
  """

  image: bool
  shape: tuple[int, ...]
  dtype: np.dtype
  options: Options
  first: str

  def row(self, example: Example, name: str) -> np.ndarray:
    """Return an example as a row.

    Raises:
      ValueError: it differs from the first one, or a value is infinite once it
        is scaled.
    """
    values, same = example.values, example.image == self.image
    if not same or not (self.image or values.shape == self.shape):
      raise ValueError(
          f"{name} holds {_kind(example.image)} of shape {values.shape} and"
          f" {self.first} {_kind(self.image)} of shape {self.shape}: bring all"
          " to one kind and shape"
      )
    if self.image:
      values = self._pixels(values, name)
    if values.dtype == np.float32 and self.options.scales:
      values = _scaled(values, self.options, name)
    return values

  def _pixels(self, values: np.ndarray, name: str) -> np.ndarray:
    """Return an image of the wanted size, colour and depth."""
    if values.dtype != self.dtype and self.options.depth is None:
      raise ValueError(
          f"{name} is {values.dtype} and {self.first} {self.dtype}: keep all"
          f" bits with {FLAG}depth=16, or round all with {FLAG}depth=8"
      )
    if values.dtype == np.uint8 and self.dtype == np.float32:
      values = values.astype(np.float32) / 255
    values = resized(values, self.shape)
    if values.dtype == np.float32 and self.dtype == np.uint8:
      values = np.rint(255 * values).astype(np.uint8)
    return values


def form_of(
    example: Example,
    name: str,
    options: Options,
    shape: tuple[int, ...] | None = None,
) -> Form:
  """Return the form of all rows, by the first example.

  Args:
    example: the first one.
    name: name of the first example, for messages.
    options: options of own data.
    shape: (height, width, channels) that images have where no option says
      another one; None means 28 x 28, grey.

  Raises:
    ValueError: an option is for images or for numbers, and they are the other.
  """
  wanted: tuple[int, ...] = example.values.shape
  deep = True
  if example.image:
    height, width, channels = shape or (_SIDE, _SIDE, 1)
    if options.color is not None:
      channels = 3 if options.color else 1
    wanted = options.size or height, options.size or width, channels
    deep = options.depth == 16 or (
        options.depth is None and example.values.dtype == np.float32
    )
  elif (options.size, options.color, options.depth) != (None, None, None):
    raise ValueError(
        f"own_data options size, color and depth are for images, and {name}"
        " holds numbers: leave them out"
    )
  if options.scales and not deep:
    raise ValueError(
        f"own_data options offset, scale and clip are for numbers, and {name}"
        " is an image of 8 bits, of which 255 is 1: leave them out, or set"
        f" {FLAG}depth=16"
    )
  for option, given in (("offset", options.offset), ("scale", options.scale)):
    if given is not None and len(given) not in (1, wanted[-1]):
      raise ValueError(
          f"own_data option {option} has {len(given)} numbers and the shape of"
          f" {name} is {wanted}: give {FLAG}{option} one number, or"
          f" {wanted[-1]}, the length of its last axis"
      )
  return Form(
      image=example.image,
      shape=wanted,
      dtype=np.dtype(np.float32 if deep else np.uint8),
      options=options,
      first=name,
  )


def resized(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Return pixels of a given shape, in their own type.

  Sides are scaled, not cut, with a filter that averages (bilinear). From colour
  to grey by ITU-R 601.

  Args:
    values: uint8 or float32 [H, W, 1 or 3].
    shape: (height, width, 1 for grey or 3 for RGB).
  """
  height, width, channels = shape
  if values.shape == tuple(shape):
    return values
  size, bilinear = (width, height), Image.Resampling.BILINEAR
  if values.dtype == np.float32:
    if values.shape[2] == 3 and channels == 1:
      values = values @ np.asarray(_LUMA, np.float32)[:, None]
    planes = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(p)).resize(size, bilinear)
        )
        for p in np.moveaxis(values, 2, 0)
    ]
    found = np.stack(planes, axis=2)
    return np.repeat(found, 3, axis=2) if len(planes) < channels else found
  grey = values.shape[2] == 1
  picture = Image.fromarray(values[..., 0] if grey else values)
  picture = picture.convert("L" if channels == 1 else "RGB")
  picture = picture.resize(size, bilinear)
  return np.asarray(picture, np.uint8).reshape(shape)


def _scaled(values: np.ndarray, options: Options, name: str) -> np.ndarray:
  """Return (values - offset) / scale, clipped; ValueError if not finite."""
  offset, scale = np.asarray(options.offset or 0), options.scale or 1
  result = (values.astype(np.float64) - offset) / np.asarray(scale)
  if options.clip is not None:
    low, high = options.clip
    result = np.clip(result, low, high)
  with np.errstate(over="ignore"):
    result = result.astype(np.float32)
  if not np.isfinite(result).all():
    raise ValueError(
        f"{name} exceeds float32 once it is scaled: choose a larger scale or"
        " set clip"
    )
  return result


def _kind(image: bool) -> str:
  return "an image" if image else "numbers"
