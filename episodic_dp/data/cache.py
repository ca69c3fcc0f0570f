"""Prepared arrays on disk, made once by one process and read by all.

One TFDS record is kept for every published image; the arrays that training maps
are made of the records.

A file is written next to its place and moved there when it is complete, so that
no incomplete file is accepted. Arrays in an .npz are read as a whole and
checked; an array in an .npy is mapped and may exceed the memory.
"""

from collections.abc import Callable, Iterator
import contextlib
import fcntl
import lzma
import os
import pathlib
import struct
import tokenize
from typing import TypeVar
import zipfile
import zlib

import numpy as np
import numpy.typing as npt

from episodic_dp.data import originals as originals_lib
from episodic_dp.output import files as output

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

# Reading arrays from a file raises these where its bytes are wrong: also for
# unwanted compression and encryption (RuntimeError), and for sizes that no
# machine has.
DAMAGED = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_or_make(
    folder: pathlib.Path, read: Callable[[], T | None], make: Callable[[], T]
) -> T:
  """Read a prepared object, or make it.

  One process makes; others that start meanwhile wait for it and then read.

  Args:
    folder: holds the lock.
    read: returns None where nothing is made yet.
    make: saves and returns what `read` will find.
  """
  found = read()
  if found is None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "preparing.lock").open("a") as f:
      # That of a killed process is free again.
      fcntl.flock(f, fcntl.LOCK_EX)
      found = read()
      if found is None:
        found = make()
  return found


def arrays(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    *,
    generate: Callable[[originals_lib.Found], originals_lib.Records],
    assemble: Callable[[list[tuple[str, bytes]]], Arrays],
) -> Arrays:
  """Return the arrays in the cache, made of the original files if need be.

  Args:
    originals: original files.
    where: places of the files and of the cache.
    generate: found files -> their images.
    assemble: all records in the order of their keys -> arrays.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ConnectionError: a download cannot be reached.
    ValueError: a file has the wrong checksum or content.
  """
  folder = where.cache / originals.name
  path = folder / f"arrays-{originals_lib.VERSION}.npz"

  def make(records: originals_lib.Records) -> Arrays:
    made = assemble(sorted(records))
    save_arrays(path, **made)
    return made

  return from_records(
      originals, where, folder, generate, lambda: read_arrays(path), make
  )


def from_records(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    folder: pathlib.Path,
    generate: Callable[[originals_lib.Found], originals_lib.Records],
    read: Callable[[], T | None],
    make: Callable[[originals_lib.Records], T],
) -> T:
  """Return what `read` finds, or make it of the records of a folder.

  Missing files are named before a folder is made or TFDS is imported; see
  `arrays`.
  """
  found = read()
  if found is not None:
    return found
  if not (folder / originals_lib.VERSION / "dataset_info.json").is_file():
    originals.find(where)
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data import records

  return read_or_make(
      folder,
      read,
      lambda: make(
          records.read(folder, lambda: generate(originals.find(where)))
      ),
  )


def save_arrays(path: pathlib.Path, **found: np.ndarray) -> None:
  """Write an .npz in one step: the file is either complete or not there."""
  with output.replacing(path) as beside, beside.open("wb") as f:
    np.savez(f, allow_pickle=False, **found)


def read_arrays(path: pathlib.Path) -> Arrays | None:
  """Return the arrays of an .npz, or None when it is absent or damaged.

  Every member of an .npz carries a CRC-32, which reading checks.
  """
  try:
    with np.load(path, allow_pickle=False) as found:
      return {name: found[name] for name in found.files}
  except DAMAGED:
    return None


@contextlib.contextmanager
def new_mapped_array(
    path: pathlib.Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike = np.uint8,
) -> Iterator[np.ndarray]:
  """Yield a mapped array to fill; it becomes `path` unless an error occurs.

  The caller holds a lock.

  Raises:
    OSError: the disk has no room, said before anything is filled.
  """
  with output.replacing(path) as beside:
    array = np.lib.format.open_memmap(
        beside, mode="w+", dtype=dtype, shape=shape
    )
    with beside.open("r+b") as f:
      # A mapped write that finds no room would end the process.
      os.posix_fallocate(f.fileno(), 0, os.fstat(f.fileno()).st_size)
    yield array
    array.flush()


def map_array(
    path: pathlib.Path, rows: int, shape: tuple[int, ...] | None = None
) -> np.ndarray | None:
  """Map an array, read-only; None when it is absent, damaged or another one.

  Args:
    path: file .npy of uint8 or float32.
    rows: number of rows.
    shape: shape of a row; None for any shape of one to three axes.
  """
  try:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    whole = array.offset + array.nbytes == path.stat().st_size
  except (AttributeError, *DAMAGED):  # Several arrays, or none that is mapped.
    return None
  fits = array.shape[1:] == shape if shape else 2 <= array.ndim <= 4
  known = array.dtype in (np.uint8, np.float32)
  return array if whole and fits and known and len(array) == rows else None
