"""Arrays on disk that are mapped rather than read: they may exceed all memory.

A file is written beside its place and moved there when it is complete.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import uuid

import numpy as np

from episodic_dp.data import files


@contextlib.contextmanager
def writing(
    path: pathlib.Path, shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
  """A new uint8 array to fill; it becomes `path` unless something is raised.

  The caller holds a lock: what earlier, killed writers left is removed.

  Raises:
    OSError: the disk has no room, said before anything is filled.
  """
  for left in path.parent.glob(f"{path.name}.*.incomplete"):
    left.unlink(missing_ok=True)
  temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.incomplete")
  try:
    array = np.lib.format.open_memmap(
        temporary, mode="w+", dtype=np.uint8, shape=shape
    )
    with temporary.open("r+b") as f:
      # A mapped write that finds no room would end the process.
      os.posix_fallocate(f.fileno(), 0, os.fstat(f.fileno()).st_size)
      yield array
      array.flush()
      os.fsync(f.fileno())
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)


def read(path: pathlib.Path, shape: tuple[int, ...]) -> np.ndarray | None:
  """Maps an array for reading; None when it is absent or not the one asked."""
  try:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
  except files.DAMAGED:
    return None
  as_asked = array.dtype == np.uint8 and array.shape == shape
  return array if as_asked else None
