"""Prepared arrays on disk: made once, by one process, and read by all.

A file is written beside its place and moved there when it is complete, so that
nothing half-made is ever accepted. Arrays in an .npz are read as a whole and
checked; one in an .npy is mapped, and may exceed all memory.
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

from episodic_dp.output import files as output

T = TypeVar("T")
Records = Iterator[tuple[str, bytes]]  # A unique key, an image.
VERSION = "2.0.0"  # Of records and arrays.

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


@contextlib.contextmanager
def lock(path: pathlib.Path) -> Iterator[None]:
  """Hold an exclusive lock; that of a killed process is free again."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("a") as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    yield


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
    with lock(folder / "preparing.lock"):
      found = read()
      if found is None:
        found = make()
  return found


def save_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Write an .npz in one step: the file is either complete or not there."""
  with output.replacing(path) as beside, beside.open("wb") as f:
    np.savez(f, allow_pickle=False, **arrays)


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray] | None:
  """Return the arrays of an .npz, or None when it is absent or damaged.

  Every member of an .npz carries a CRC-32, which reading checks.
  """
  try:
    with np.load(path, allow_pickle=False) as arrays:
      return {name: arrays[name] for name in arrays.files}
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
    path: of an .npy of uint8 or float32.
    rows: how many there are.
    shape: of a row; None for any of one to three axes.
  """
  try:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    whole = array.offset + array.nbytes == path.stat().st_size
  except (AttributeError, *DAMAGED):  # Several arrays, or none that is mapped.
    return None
  fits = array.shape[1:] == shape if shape else 2 <= array.ndim <= 4
  known = array.dtype in (np.uint8, np.float32)
  return array if whole and fits and known and len(array) == rows else None
