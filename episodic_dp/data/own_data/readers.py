"""Readers of files that hold one example each.

Pictures of raster formats (`foreign.RASTER`), DICOM (recognised by suffix or
first bytes) and uint8 in an .npy are images. Other numbers in an .npy are
features.

A DICOM file is scaled by its header: by rescale slope and intercept, then by
the file's first window; MONOCHROME1 is inverted. A file without a window is
scaled by the range of its stored bits. No pixel affects the scale of a file.
"""

from collections.abc import Callable, Sequence
import numbers
import os
import pathlib
from typing import Any, NamedTuple
import warnings

import numpy as np
from PIL import Image
from PIL import ImageFile
from PIL import ImageOps

from episodic_dp import foreign
from episodic_dp.errors import DataError
from episodic_dp.errors import shown

_GREY = ("MONOCHROME1", "MONOCHROME2")
_MOST_AXES = 3
_NO_IMAGE, _REPAIR = "cannot be read as an image", "repair it or remove it"
_DARK = 1.001 / 255  # Above 1 of 8 bits, and above 8 bits in 16.
_DIM = 0.063  # Above 12 bits in 16, and above 16 of 8 bits.
_DEFLATED = "1.2.840.10008.1.2.1.99"  # A transfer syntax of DICOM.


class Example(NamedTuple):
  """One example as a file holds it.

  Attributes:
    values: an image as uint8[H, W, 1 or 3], 0 to 255, or with more than 8 bits
      as float32[H, W, 1 or 3], 0 to 1; or features as float32 of one to three
      axes, all finite.
    image: whether the example is an image, which may be resized.
    name: place of the example, for messages.
    inverted: whether light and dark of an image were exchanged.
  """

  values: np.ndarray
  image: bool
  name: str
  inverted: bool = False

  @property
  def white(self) -> int:
    """Return the value of white in an image."""
    return 255 if self.values.dtype == np.uint8 else 1


Reader = Callable[[pathlib.Path], Example]


def reader_of(path: str | os.PathLike[str]) -> Reader | None:
  """Return the reader of a file by its suffix; None if it is not an example.

  Only a file of an unknown suffix is opened: names of DICOM files end in
  numbers, or have no suffix.
  """
  # Without `Path`: a data set may have millions of files.
  path = os.fspath(path)
  suffix = os.path.splitext(path)[1].lower()
  if suffix == ".npy":
    return read_npy
  if Image.registered_extensions().get(suffix) in foreign.RASTER:
    return read_picture
  if suffix in (".dcm", ".dicom") or _is_dicom(path):
    return read_dicom
  return None


def read(path: pathlib.Path) -> Example:
  """Read the example of a file, with all its bits.

  Raises:
    DataError: the format is unknown, or the file cannot be read.
  """
  reader = reader_of(path)
  if reader is None:
    raise DataError(
        f"{path} has no supported format: give images (such as .png, .jpg"
        " or .tif), DICOM or .npy"
    )
  return reader(path)


def read_picture(path: pathlib.Path) -> Example:
  """Decode a picture; see `picture_of`.

  Raises:
    DataError: the file cannot be read, holds several pictures, or
      its values have no known scale.
  """
  with (
      foreign.reading(path, _NO_IMAGE, _REPAIR),
      # Pillow maps a named TIFF, and scrambles one that is to be turned.
      path.open("rb") as file,
      foreign.picture(file) as picture,
  ):
    pages = getattr(picture, "n_frames", 1)
    # Cameras add a preview to a JPEG, which is then an MPO.
    if pages > 1 and picture.format != "MPO":
      raise DataError(f"it holds {pages} pages: save each as a file")
    ImageOps.exif_transpose(picture, in_place=True)
  return picture_of(picture, str(path))


def picture_of(picture: Image.Image, name: str) -> Example:
  """Return a picture of Pillow as an example, upright and put on white.

  Grey pictures of 16 bits become float32, 65535 being 1; Pillow reads colours
  with 8 bits each.

  Raises:
    DataError: its values have no known scale, or it is too large.
  """
  with foreign.reading(name, _NO_IMAGE, _REPAIR):
    foreign.check_picture(picture)
    if isinstance(picture, ImageFile.ImageFile):
      # Pillow maps a named TIFF, and scrambles one that is to be turned.
      mapped, picture.filename = picture.filename, ""
      picture.load()
      picture.filename = mapped
    picture = ImageOps.exif_transpose(picture)
  if picture.mode.startswith("I;16"):
    return image_of(np.asarray(picture, np.uint16), name)
  if picture.mode in ("I", "F"):
    raise DataError(
        f"the values of {name} (mode {picture.mode} of Pillow) have no known"
        " scale: save it as a grey picture of 8 or 16 bits, or as .npy to keep"
        " its numbers"
    )
  if picture.mode == "La":  # Pillow converts it to LA alone.
    picture = picture.convert("LA")
  mode = "RGB"
  if picture.mode in ("L", "LA", "1"):
    mode = "L"
  if picture.has_transparency_data:
    over = picture.convert("RGBA")
    under = Image.new("RGBA", over.size, "white")
    picture = Image.alpha_composite(under, over)
  if picture.mode != mode:
    picture = picture.convert(mode)
  return image_of(np.asarray(picture), name)


def read_npy(path: pathlib.Path) -> Example:
  """Read an array: uint8 is an image, other numbers are features.

  Raises:
    DataError: it cannot be read, or is of another type or shape.
  """
  with foreign.reading(path, "cannot be read as an .npy", _REPAIR):
    # Mapped, so that a header that claims too much takes no memory.
    values = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
  if values.dtype == np.uint8:
    return image_of(values, str(path))
  return features_of(values, str(path))


def read_dicom(path: pathlib.Path) -> Example:
  """Read the one frame of a DICOM file as float32, 0 to 1.

  Raises:
    DataError: it cannot be read, or pydicom is missing.
  """
  try:
    # Lazy import: only DICOM needs this optional package.
    import pydicom
    import pydicom.pixels
  except ImportError as e:
    raise DataError(
        f"{path} needs the package pydicom: pip install 'episodic_dp[dicom]'"
    ) from e
  with foreign.reading(path, "cannot be read as DICOM", _REPAIR):
    head = _undeflated(pydicom, path)
    frames = int(head.get("NumberOfFrames") or 1)
    if frames > 1:
      raise DataError(f"it holds {frames} frames: save each as a file")
    values = np.atleast_3d(_scaled(pydicom.pixels, head))
    if not np.isfinite(values).all():
      raise DataError("its scale gives values that are NaN")
  values = np.clip(values, 0, 1).astype(np.float32)
  return Example(values, image=True, name=str(path))


def _undeflated(pydicom: Any, path: pathlib.Path) -> Any:
  """Return the content of a DICOM file that cannot unpack to gigabytes.

  Raises:
    DataError: all of it is deflated, or it has too many pixels.
    Exception: of any other type, if it is damaged.
  """
  meta = pydicom.filereader.read_file_meta_info(path)
  if meta.get("TransferSyntaxUID") == _DEFLATED:
    raise DataError("it is deflated: save it in another transfer syntax")
  head = pydicom.dcmread(path)
  if head.Rows * head.Columns > foreign.MOST_PIXELS:
    raise DataError(
        f"it has {head.Rows} x {head.Columns} pixels, more than"
        f" {foreign.MOST_PIXELS}"
    )
  return head


def _is_dicom(path: str) -> bool:
  """Return whether a file starts as DICOM does and is not an index."""
  if os.path.basename(path).upper() == "DICOMDIR":
    return False
  with open(path, "rb") as f:
    return f.read(132)[128:] == b"DICM"


def _scaled(pixels: Any, head: Any) -> np.ndarray:
  """Return the frame of a DICOM file as float64[H, W] or [H, W, 3], 0 to 1.

  Args:
    pixels: module `pydicom.pixels`.
    head: content of the file.

  Raises:
    Exception: of any type, if the file is damaged.
  """
  values = pixels.pixel_array(head)
  kind, bits = head.PhotometricInterpretation, int(head.BitsStored)
  if kind == "RGB" or kind.startswith("YBR"):
    return values / (2.0**bits - 1)
  if kind not in _GREY or head.get("ModalityLUTSequence"):
    raise DataError(
        f"its colours are {kind}, or in a table: save it as grey or RGB"
    )
  # The least and largest stored value after rescaling, from the header only.
  least = 0
  if head.PixelRepresentation:
    least = -(2 ** (bits - 1))
  ends = np.asarray([least, least + 2**bits - 1])
  low, high = pixels.apply_modality_lut(ends, head).astype(float)
  values = pixels.apply_modality_lut(values, head)
  if "WindowCenter" in head and "WindowWidth" in head:
    values = pixels.apply_windowing(values, head)
  else:
    low, high = min(low, high), max(low, high)
  values = (values - low) / (high - low)
  if kind == "MONOCHROME1":
    return 1 - values
  return values


def image_of(values: np.ndarray, name: str) -> Example:
  """Return pixels [H, W] or [H, W, 1 or 3] as an example; DataError else.

  Of uint16, 65535 becomes 1.
  """
  if values.ndim == 2:
    values = values[..., None]
  shape = values.shape
  if len(shape) == 3 and shape[2] not in (1, 3) and shape[0] in (1, 3):
    raise DataError(
        f"{name} has shape {shape}, channels first: give"
        " numpy.moveaxis(image, 0, -1)"
    )
  if len(shape) != 3 or shape[2] not in (1, 3) or not values.size:
    raise DataError(
        f"{name} is {values.dtype} of shape {shape}, but uint8 is an"
        " image: save [height, width], [height, width, 1 or 3], or"
        " numbers as float32"
    )
  if values.dtype.newbyteorder("=") == np.uint16:
    values = values.astype(np.float32) / 65535
  return Example(values, image=True, name=name)


def brightest(example: Example) -> float:
  """Return the largest value of an image, white being 1; 0 of features.

  It is that of its file, before light and dark were exchanged.
  """
  values, white = example.values, example.white
  largest = white - values.min() if example.inverted else values.max()
  return example.image * float(largest) / white


def check_bits(bright: Sequence[float], what: str) -> None:
  """Refuse images that look like 8 bits in 16, or like 0 and 1 in 8.

  It warns of several that look like 12 bits in 16.

  Args:
    bright: `brightest` of all examples of a set, since one image may be dark.
    what: a name for them, for messages.

  Raises:
    DataError: all are nearly black.
  """
  if 0 < max(bright) < _DARK:
    raise DataError(
        f"{what} are nearly black, with no value above 1 of 255: give 8 bits as"
        " uint8, truth values as bool or 0 and 255, and multiply others by a"
        " public number"
    )
  if len(bright) > 1 and 0 < max(bright) < _DIM:
    warnings.warn(
        f"{what} are dark, with no value above {max(bright):.0%} of white:"
        " multiply 12 bits in 16 by 16, and others by a public number",
        stacklevel=2,
    )


def features_of(values: np.ndarray, name: str) -> Example:
  """Return numbers with one to three axes as an example; DataError else."""
  if values.dtype == object:
    # A row of a frame of pandas whose columns have several types.
    for place, value in enumerate(values.flat):
      if not isinstance(value, numbers.Real):
        raise DataError(
            f"{name} holds {shown(value)} at [{place}], which is no number:"
            " leave it out, or replace it by a number that is chosen in public"
        )
    values = values.astype(np.float64)
  if values.dtype.kind not in "biuf":
    raise DataError(
        f"{name} is {values.dtype}: give whole numbers or floating point, as"
        " X.astype('float32')"
    )
  if not 1 <= values.ndim <= _MOST_AXES or not values.size:
    raise DataError(
        f"{name} has shape {values.shape}: give [features], [time, channels] or"
        " [height, width, channels], none of them 0"
    )
  with np.errstate(over="ignore"):
    values = values.astype(np.float32)
  wrong = ~np.isfinite(values)
  if wrong.any():
    at = [int(i) for i in np.argwhere(wrong)[0]]
    raise DataError(
        f"{name} holds {values[tuple(at)]} as float32 at {at}: repair it or"
        " remove it"
    )
  return Example(values, image=False, name=name)
