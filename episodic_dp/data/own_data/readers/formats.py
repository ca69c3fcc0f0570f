"""Which files hold examples, how many, and how one is read: any format.

Pictures in the formats of Pillow (of .tif every page), DICOM (every frame; by
its suffix or its magic) and uint8 in an .npy are images. Other numbers in an
.npy, .csv or .tsv are features.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
import pathlib

from PIL import Image

from episodic_dp.data.own_data.readers import arrays
from episodic_dp.data.own_data.readers import dicom
from episodic_dp.data.own_data.readers import pictures
from episodic_dp.data.own_data.readers.example import Example


@dataclasses.dataclass(frozen=True)
class Format:
  """How files of one format are read.

  Attributes:
    pages: the numbers of the examples of a file; ValueError, one sentence,
      where it cannot be read.
    read: one of them; likewise.
    table: whether it is a text table, which may lie beside other files and
      describe them.
  """

  pages: Callable[[str], Sequence[int]]
  read: Callable[[pathlib.Path, int], Example]
  table: bool = False


def _one(path: str) -> Sequence[int]:
  """Of a file that is one example, and is not opened to say so."""
  del path
  return (0,)


_PICTURE = Format(_one, pictures.read)
_TIFF = Format(pictures.tiff_pages, pictures.read)
_DICOM = Format(dicom.pages, dicom.read)
_NPY = Format(_one, arrays.read_npy)
_TABLE = Format(_one, arrays.read_table, table=True)


@functools.cache
def _suffixes() -> dict[str, Format]:
  known = Image.registered_extensions()
  opened = {s: _PICTURE for s, kind in known.items() if kind in Image.OPEN}
  return opened | {
      ".tif": _TIFF,
      ".tiff": _TIFF,
      ".dcm": _DICOM,
      ".dicom": _DICOM,
      ".npy": _NPY,
      ".csv": _TABLE,
      ".tsv": _TABLE,
  }


def format_of(path: str | os.PathLike[str]) -> Format | None:
  """The format of a file by its suffix, or None where it is no example.

  Only a file of an unknown suffix is looked into: names of DICOM files end in
  numbers, or in nothing.
  """
  # No `Path` is made of it: a data set may have millions of files.
  path = os.fspath(path)
  found = _suffixes().get(os.path.splitext(path)[1].lower())
  if found is None and dicom.has_magic(path):
    return _DICOM
  return found


def pages(path: str | os.PathLike[str]) -> Sequence[int]:
  """The numbers of a file's examples, each for `read`.

  One number but for TIFF and DICOM files of several pages or frames, whose
  heads are read.

  Raises:
    ValueError: it is of no known format, or cannot be read; one sentence.
  """
  return _known(path).pages(os.fspath(path))


def read(path: pathlib.Path, page: int = 0) -> Example:
  """Reads one example of a file, with all the bits that it has.

  Args:
    path: of a file in any of the formats.
    page: one of `pages(path)`.

  Raises:
    ValueError: it is of no known format, or cannot be read; one sentence.
  """
  return _known(path).read(path, page)


def _known(path: str | os.PathLike[str]) -> Format:
  found = format_of(path)
  if found is None:
    raise ValueError(
        f"{path} is of no format that is read: give images (such as .png, .jpg"
        " or .tif), DICOM, .npy or .csv"
    )
  return found
