"""Rows of one shape and type from examples of any format.

A row depends on public options and on its own file. The first example decides
between images and features and gives the shape of features; an example that
differs is refused, not changed, so that no row depends on another example.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import Literal

import numpy as np
from PIL import Image

from episodic_dp import _validate
from episodic_dp import foreign
from episodic_dp import plain
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import dataset
from episodic_dp.data.own_data.readers import Example
from episodic_dp.errors import DataError
from episodic_dp.output import phases

_SIDE = 28
_FLAG = "--config.data.options."
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, of red, green and blue.


def written(**options: object) -> str:
  """Write options for Python and, in brackets, for a command."""
  python = " and ".join(f"{k}={v!r}" for k, v in options.items())
  command = " ".join(f"{_FLAG}{k}={v}" for k, v in options.items())
  return f"{python} (in a command {command})"


def crossing_options(level: str, *, divided: bool) -> str:
  """Return all options of units that are in several classes, for a message.

  Args:
    level: the level of these units.
    divided: whether the source names the parts itself.
  """
  units = {"crossing": level}
  if not divided:
    units["by"] = level
  return (
      f"{written(**units)}, and {written(depth=8)}, or 16, if only some images"
      " have more than 8 bits"
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnData:
  """Options of own data, all public.

  Attributes:
    levels: names of the levels, primary units first, examples last; None means
      class, image or group, class, image.
    size: height and width of images in pixels; None means 28, or the size in an
      .npz.
    color: whether images are RGB; None means grey, or the colours of an .npz.
    depth: bits of an image, 8 for uint8 or 16 for float32; None keeps the bits
      of the files, which must then be 8 in all or more than 8 in all.
    shares: shares of the units for training, validation and test, if the source
      does not name the parts; None means 0.6, 0.2, 0.2.
    by: level whose units are divided, equal names together; None means the
      first.
    crossing: second level, if units of one name under several primary units are
      one unit, such as a patient with images of several diagnoses. Its
      guarantee covers all of them, and it may be in one part only.
    seed: public seed of the division into parts, below 2^32.
    backbone: public network whose features replace the images, which are of
      its size and RGB; None for the images.
  """

  levels: tuple[str, ...] | None = None
  size: plain.Count | None = None
  color: bool | None = None
  depth: Literal[8, 16] | None = None
  shares: tuple[plain.Positive, plain.Positive, plain.Positive] | None = None
  by: str | None = None
  crossing: str | None = None
  seed: dataset.Seed = 0
  backbone: backbone_lib.Backbone | None = None

  def __post_init__(self) -> None:
    if self.levels is not None and (
        not 2 <= len(self.levels) == len(set(self.levels))
    ):
      raise _validate.refusal(
          "levels", self.levels, "two different names or more, examples last"
      )
    if (self.size or 0) ** 2 > foreign.MOST_PIXELS:
      raise _validate.refusal(
          "size", self.size, f"at most {math.isqrt(foreign.MOST_PIXELS)} pixels"
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
  """The one form of all rows.

  Attributes:
    image: whether rows are images.
    shape: shape of a row.
    dtype: uint8 or float32.
    rounds: whether images of another type are converted to dtype.
    first: name of the example that determined the form.
  """

  image: bool
  shape: tuple[int, ...]
  dtype: np.dtype
  rounds: bool
  first: str

  def row(self, example: Example) -> np.ndarray:
    """Return an example as a row.

    Raises:
      DataError: it differs from the first one.
    """
    values, same = example.values, example.image == self.image
    if not same or not (self.image or values.shape == self.shape):
      words = {True: "an image", False: "numbers"}
      raise DataError(
          f"{example.name} holds {words[example.image]} of shape"
          f" {values.shape} and {self.first} {words[self.image]} of shape"
          f" {self.shape}: convert all to one type and shape"
      )
    if not self.image:
      return values
    if values.dtype != self.dtype and not self.rounds:
      raise DataError(
          f"{example.name} is {values.dtype} and {self.first} {self.dtype}:"
          f" keep all bits with {written(depth=16)}, or round all with"
          " depth=8"
      )
    if self.dtype == np.uint8:
      return rounded(resized(values, self.shape))
    return resized(scaled(values), self.shape)


def image_shape(
    options: OwnData, shape: tuple[int, ...] | None
) -> tuple[int, int, int]:
  """Return the (height, width, channels) to which images are brought.

  Args:
    options: options of own data.
    shape: that of the images of an array; None means 28 x 28, grey.
  """
  height, width, channels = shape or (_SIDE, _SIDE, 1)
  if options.color is not None:
    channels = 3 if options.color else 1
  return options.size or height, options.size or width, channels


def form_of(
    example: Example,
    options: OwnData,
    shape: tuple[int, ...] | None = None,
) -> Form:
  """Return the form of all rows, by the first example.

  Args:
    example: the first one.
    options: options of own data.
    shape: as for `image_shape`.

  Raises:
    DataError: an option is for images, but the example holds numbers.
  """
  wanted: tuple[int, ...] = example.values.shape
  dtype = example.values.dtype
  if example.image:
    wanted = image_shape(options, shape)
    if options.depth is not None:
      dtype = np.dtype(np.uint8 if options.depth == 8 else np.float32)
  elif (options.size, options.color, options.depth) != (None, None, None):
    raise DataError(
        "own_data options size, color, depth and backbone are for images, and"
        f" {example.name} holds numbers: leave them out"
    )
  return Form(
      image=example.image,
      shape=wanted,
      dtype=dtype,
      rounds=options.depth is not None,
      first=example.name,
  )


def resized(
    values: np.ndarray,
    shape: tuple[int, ...],
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> np.ndarray:
  """Return pixels of a given shape, in their own type.

  Images are scaled, not cropped. Grey values follow ITU-R 601.

  Args:
    values: uint8 or float32 [H, W, 1 or 3].
    shape: (height, width, 1 for grey or 3 for RGB).
    resample: filter of Pillow; BILINEAR averages.
  """
  height, width, channels = shape
  if values.shape[2] < channels:
    values = np.repeat(values, channels, axis=2)
  elif values.shape[2] > channels and values.dtype == np.uint8:
    values = np.asarray(Image.fromarray(values).convert("L"))[..., None]
  elif values.shape[2] > channels:
    values = values @ np.asarray(_LUMA, np.float32)[:, None]
  if values.shape == tuple(shape):
    return values
  planes = [
      Image.fromarray(np.ascontiguousarray(plane))
      for plane in np.moveaxis(values, 2, 0)
  ]
  scaled = [plane.resize((width, height), resample) for plane in planes]
  return np.stack([np.asarray(plane) for plane in scaled], axis=2)


def scaled(values: np.ndarray) -> np.ndarray:
  """Return rows as a network takes them, float32, 255 of uint8 being 1."""
  found = values.astype(np.float32)
  if values.dtype == np.uint8:
    return found / np.float32(255)
  return found


def rounded(values: np.ndarray) -> np.ndarray:
  """Return pixels as uint8; of float32, 1 becomes 255."""
  if values.dtype == np.uint8:
    return values
  return np.rint(255 * values).astype(np.uint8)


def features(
    images: np.ndarray, network: backbone_lib.Network
) -> Iterator[np.ndarray]:
  """Yield the features of each image, float32[d], with a progress bar.

  Args:
    images: uint8[n, H, W, 1 or 3].
    network: a backbone; images are scaled to its size.

  Raises:
    DataError: it fails, or its numbers of features differ.
  """
  with phases.progress(len(images), "image") as progress:
    size = 0
    for image in images:
      found = network.features(resized(image, network.shape))
      size = size or found.size
      if found.size != size:
        raise DataError(
            "the backbone makes another number of features of each image: give"
            " one that always makes as many"
        )
      yield found
      progress.update()
