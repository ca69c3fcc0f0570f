"""Arrays on disk, prepared from original files in one way for all sets.

One TFDS record is kept for every image; the arrays that training maps are made
of the records.
"""

from collections.abc import Callable
import pathlib
from typing import TypeVar

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data import originals as originals_lib

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
Records = cache.Records


def arrays(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    *,
    generate: Callable[[originals_lib.Found], Records],
    assemble: Callable[[list[tuple[str, bytes]]], Arrays],
    fits: Callable[[Arrays], bool],
) -> Arrays:
  """Return the arrays in the cache, made of the original files if need be.

  Args:
    originals: the files.
    where: their places.
    generate: the images of the files.
    assemble: the arrays of all records, in the order of their keys.
    fits: whether cached arrays are those of the data set.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ConnectionError: a download cannot be reached.
    ValueError: a file has the wrong checksum or content.
  """
  folder = where.cache / originals.name
  path = folder / f"arrays-{cache.VERSION}.npz"

  def read() -> Arrays | None:
    found = cache.read_arrays(path)
    return found if found is not None and fits(found) else None

  def make(held: Records) -> Arrays:
    made = assemble(sorted(held))
    if not fits(made):
      raise ValueError(
          f"the prepared {originals.name} in {folder} has other sizes than"
          " those published: remove this folder and prepare it again from"
          " another copy"
      )
    cache.save_arrays(path, **made)
    return made

  return from_records(originals, where, folder, generate, read, make)


def from_records(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    folder: pathlib.Path,
    generate: Callable[[originals_lib.Found], Records],
    read: Callable[[], T | None],
    make: Callable[[Records], T],
) -> T:
  """Return what `read` finds, or make it of the records of a folder.

  Missing files are named before a folder is made or TFDS is imported; see
  `arrays`.
  """
  found = read()
  if found is not None:
    return found
  if not (folder / cache.VERSION / "dataset_info.json").is_file():
    originals.find(where)
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data import records

  def make_anew() -> T:
    return make(records.read(folder, lambda: generate(originals.find(where))))

  return cache.read_or_make(folder, read, make_anew)
