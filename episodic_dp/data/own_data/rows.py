"""From any example to a row of the data set: one shape, one type, one scale.

What a row becomes is decided by public options and by its own file. The first
example says whether there are images or features and, of features, which shape
they have; an example that differs is refused, not changed, so no example's row
follows from another one.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np
from PIL import Image

from episodic_dp.data.own_data.readers.example import Example

_SIDE, _CHANNELS = 28, 1
_DEPTHS = (8, 16)
_FLAG = "--config.data.options."
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, of red, green and blue.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What the user says of rows; all public.

  Attributes:
    size: height and width of images in pixels, or None.
    color: RGB (true) or grey, or None.
    depth: 8 for images of uint8, 16 for float32, or None for what they have.
    offset: numbers to take away from float32 values, one for all or one for
      each entry of their last axis; then
    scale: those to divide by; and then
    clip: the least and the largest value that is kept.
  """

  size: int | None = None
  color: bool | None = None
  depth: int | None = None
  offset: tuple[float, ...] | None = None
  scale: tuple[float, ...] | None = None
  clip: tuple[float, ...] | None = None

  @property
  def scales(self) -> bool:
    """Whether values are scaled or clipped."""
    return any(o is not None for o in (self.offset, self.scale, self.clip))


def options(
    *,
    size: int | None = None,
    color: bool | None = None,
    depth: int | None = None,
    offset: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    clip: Sequence[float] | None = None,
) -> Options:
  """Checked `Options`.

  Raises:
    ValueError: one is out of range; one sentence.
  """
  if size is not None and (
      not isinstance(size, (int, np.integer))
      or isinstance(size, bool)
      or not 1 <= size <= 4096
  ):
    raise ValueError(
        f"own_data option size={size!r} must be a whole number of pixels, 1 to"
        f" 4096, such as {_FLAG}size={_SIDE}"
    )
  if depth not in (None, *_DEPTHS):
    raise ValueError(
        f"own_data option depth={depth!r} must be 8 or 16: give {_FLAG}depth=8"
        f" or {_FLAG}depth=16"
    )
  numbers = {
      name: _numbers(name, value)
      for name, value in (("offset", offset), ("scale", scale), ("clip", clip))
  }
  if 0 in (numbers["scale"] or ()):
    raise ValueError(
        f"own_data option scale={scale!r} divides the values: give numbers"
        f" other than 0, such as {_FLAG}scale=0.5"
    )
  ends = numbers["clip"]
  if ends is not None and (len(ends) != 2 or not ends[0] < ends[1]):
    raise ValueError(
        f"own_data option clip={clip!r} must be the least and the largest"
        f" value, such as {_FLAG}clip=-3,3"
    )
  return Options(
      size=None if size is None else int(size),
      color=None if color is None else bool(color),
      depth=depth,
      **numbers,
  )


def _numbers(name: str, value: object) -> tuple[float, ...] | None:
  """One number or several as a tuple, or None; ValueError for others."""
  if value is None:
    return None
  several = tuple(value) if isinstance(value, (tuple, list)) else (value,)
  if not several or not all(
      isinstance(v, (int, float)) and not isinstance(v, bool)
      and np.isfinite(v) for v in several
  ):
    raise ValueError(
        f"own_data option {name}={value!r} must be a finite number, or several,"
        f" such as {_FLAG}{name}=0.5,1"
    )
  return tuple(float(v) for v in several)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
  """What all rows are.

  Attributes:
    image: whether they are images.
    shape: of a row.
    dtype: uint8, or float32.
    options: as above.
    first: the name of the example that the form is of.
  """

  image: bool
  shape: tuple[int, ...]
  dtype: np.dtype
  options: Options
  first: str

  def row(self, example: Example, name: str) -> np.ndarray:
    """An example as a row.

    Raises:
      ValueError: it differs from the first one, or a value is infinite once it
        is scaled; one sentence.
    """
    values = example.values
    if example.image != self.image:
      raise ValueError(
          f"{name} holds {_kind(example.image)} and {self.first}"
          f" {_kind(self.image)}: give each kind a folder or a file of its own"
      )
    if self.image:
      values = self._pixels(values, name)
    elif values.shape != self.shape:
      raise ValueError(
          f"{name} has shape {values.shape} and {self.first} {self.shape}:"
          " bring all to one shape"
      )
    if values.dtype == np.float32 and self.options.scales:
      values = _scaled(values, self.options, name)
    return values

  def _pixels(self, values: np.ndarray, name: str) -> np.ndarray:
    """An image of the wanted size, colour and depth."""
    if values.dtype != self.dtype and self.options.depth is None:
      held = {True: "8 bits a value", False: "more than 8"}
      raise ValueError(
          f"{name} has {held[values.dtype == np.uint8]} and {self.first}"
          f" {held[self.dtype == np.uint8]}: keep what there is with"
          f" {_FLAG}depth=16, or round all with {_FLAG}depth=8"
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
    shape: tuple[int, int, int] | None = None,
) -> Form:
  """What all rows are, by the first example.

  Args:
    example: the first one.
    name: of it, for messages.
    options: as above.
    shape: (height, width, channels) that images have where no option says
      another one; None means 28 x 28, grey.

  Raises:
    ValueError: an option is of images or of numbers, and they are the other;
      one sentence.
  """
  if example.image:
    wanted, dtype = _image_form(example, name, options, shape)
  else:
    wanted, dtype = example.values.shape, np.dtype(np.float32)
    for option in ("size", "color", "depth"):
      if getattr(options, option) is not None:
        raise ValueError(
            f"own_data option {option}={getattr(options, option)} is of images,"
            f" and {name} holds numbers: leave {_FLAG}{option} out"
        )
  for option, given in (("offset", options.offset), ("scale", options.scale)):
    if given is not None and len(given) not in (1, wanted[-1]):
      raise ValueError(
          f"own_data option {option} has {len(given)} numbers and the shape of"
          f" {name} is {wanted}: give {_FLAG}{option} one number, or"
          f" {wanted[-1]}, the length of its last axis"
      )
  return Form(
      image=example.image,
      shape=wanted,
      dtype=dtype,
      options=options,
      first=name,
  )


def _image_form(
    example: Example,
    name: str,
    options: Options,
    shape: tuple[int, int, int] | None,
) -> tuple[tuple[int, int, int], np.dtype]:
  """Shape and type of rows that are images."""
  height, width, channels = shape or (_SIDE, _SIDE, _CHANNELS)
  if options.size is not None:
    height = width = options.size
  if options.color is not None:
    channels = 3 if options.color else 1
  deep = options.depth == 16 or (
      options.depth is None and example.values.dtype == np.float32
  )
  if options.scales and not deep:
    raise ValueError(
        f"own_data options offset, scale and clip are of numbers, and {name} is"
        " an image of 8 bits, of which 255 is 1: leave them out, or set"
        f" {_FLAG}depth=16"
    )
  return (height, width, channels), np.dtype(np.float32 if deep else np.uint8)


def resized(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Pixels of a given shape, in their own type.

  Sides are scaled, not cut, with a filter that averages what it drops
  (bilinear). From colour to grey by ITU-R 601.

  Args:
    values: uint8 or float32 [H, W, 1 or 3].
    shape: (height, width, 1 for grey or 3 for RGB).
  """
  height, width, channels = shape
  if values.shape == tuple(shape):
    return values
  if values.dtype == np.float32:
    if values.shape[2] == 3 and channels == 1:
      values = values @ np.asarray(_LUMA, np.float32)[:, None]
    planes = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(plane)).resize(
                (width, height), Image.Resampling.BILINEAR
            )
        )
        for plane in np.moveaxis(values, 2, 0)
    ]
    found = np.stack(planes, axis=2)
    return np.repeat(found, 3, axis=2) if len(planes) < channels else found
  grey = values.shape[2] == 1
  picture = Image.fromarray(values[..., 0] if grey else values)
  picture = picture.convert("L" if channels == 1 else "RGB")
  picture = picture.resize((width, height), Image.Resampling.BILINEAR)
  return np.asarray(picture, np.uint8).reshape(shape)


def _scaled(values: np.ndarray, options: Options, name: str) -> np.ndarray:
  """(values - offset) / scale, clipped; ValueError where it is not finite."""
  result = values.astype(np.float64)
  if options.offset is not None:
    result = result - np.asarray(options.offset)
  if options.scale is not None:
    result = result / np.asarray(options.scale)
  if options.clip is not None:
    least, largest = options.clip
    result = np.clip(result, least, largest)
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
