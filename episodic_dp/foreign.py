"""Open files that others made, within bounds of memory and time.

No file may start another program: Pillow would hand PostScript to Ghostscript.
So pictures have one of a few raster formats, recognised by their first bytes.
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
from typing import Any, IO, TYPE_CHECKING

from episodic_dp.errors import DataError
from episodic_dp.errors import shortened
from episodic_dp.errors import shown

if TYPE_CHECKING:
  from PIL import Image

RASTER = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The formats of Pillow that are read, all of them without another program."""
MOST_PIXELS = 2**26  # Of a picture: 8192 x 8192.
# Bytes to which any file of arrays may unpack, and a larger one for each of its
# bytes. Deflate reaches a thousand, and drawings on white about sixty.
_MOST_UNPACKED, _MOST_RATIO = 2**30, 200


@contextlib.contextmanager
def reading(place: object, fault: str, remedy: str) -> Iterator[None]:
  """Report every error as that of a file that cannot be used.

  Args:
    place: the file.
    fault: "cannot be read as an image".
    remedy: end of the sentence.

  Raises:
    DataError: an error of any type.
  """
  try:
    yield
  except Exception as e:  # Parsers of damaged files may raise anything.
    raise DataError(f"{place} {fault} ({reason(e, place)}): {remedy}") from e


def reason(error: Exception, place: object) -> str:
  """Shorten a library's error message, which may quote the whole file."""
  text = str(getattr(error, "strerror", None) or error)
  text = " ".join(text.replace(str(place), "it").split())
  text = text or type(error).__name__
  if "allow_pickle" in text:
    # NumPy reports any unknown content so, and advises to trust it.
    text = "it holds something other than plain NumPy arrays"
  return shortened(text)


def picture(file: str | os.PathLike[str] | IO[bytes]) -> "Image.Image":
  """Open a picture without reading its pixels.

  Raises:
    DataError: its first bytes are those of no format in `RASTER`, or it has
      more than `MOST_PIXELS` pixels.
    Exception: of any other type, if it is damaged.
  """
  # Lazy import: presets of published pictures are accounted for without it.
  from PIL import Image
  from PIL import UnidentifiedImageError

  try:
    image = Image.open(file, formats=RASTER)
  except UnidentifiedImageError as e:
    raise DataError(
        f"it does not begin as one of {', '.join(RASTER)}"
    ) from e
  try:
    check_picture(image)
  except ValueError:
    image.close()
    raise
  return image


def check_picture(image: "Image.Image") -> None:
  """Raise DataError for a picture of another format, or a too large one."""
  # Computed pictures have no format, and MPO is JPEG with more pictures.
  if image.format not in (None, "MPO", *RASTER):
    raise DataError(
        f"its format {image.format} is none of {', '.join(RASTER)}"
    )
  if image.width * image.height > MOST_PIXELS:
    raise DataError(
        f"it has {image.width} x {image.height} pixels, more than"
        f" {MOST_PIXELS}: make it smaller"
    )


def check_commas(path: str | os.PathLike[str], header: Sequence[str]) -> None:
  """Raise DataError if the columns of a table are not divided by commas."""
  if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
    raise DataError(
        f"{path} has semicolons or tabs between its columns,"
        f" {shown(header[0])}: save it with commas"
    )


def check_arrays(file: Any) -> None:
  """Raise DataError if an open NpzFile unpacks to too many bytes.

  The sizes that the file states are bounds even if they are false: no more
  bytes of an entry are unpacked.
  """
  unpacked = sum(info.file_size for info in file.zip.infolist())
  most = max(_MOST_UNPACKED, _MOST_RATIO * file.zip.fp.seek(0, os.SEEK_END))
  if unpacked > most:
    raise DataError(
        f"it unpacks to {unpacked} bytes, more than {most}: save it with"
        " numpy.savez"
    )
