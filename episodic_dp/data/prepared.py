"""From original files to cached arrays, in one way for all TFDS data sets."""

from collections.abc import Callable, Sequence
import pathlib
from typing import TypeVar

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data import files

T = TypeVar("T")


def load(
    originals: files.Originals,
    records: pathlib.Path,
    *,
    data_dir: files.Path | None,
    download: bool,
    read: Callable[[], T | None],
    make: Callable[[files.Found | None], T],
) -> T:
  """The arrays in the cache, or else what is made of the files, once.

  Args:
    originals: the files.
    records: the folder of the prepared TFDS records, whose parent holds the
      lock.
    data_dir: where to look for the files.
    download: whether to fetch them where they are not.
    read: reads the cached arrays; None where there are none.
    make: prepares the records from the files that were found, or by a download
      where it is given None, unless they are there; caches the arrays.

  Raises:
    FileNotFoundError: neither records nor files are there; says what to do.
    ConnectionError: a download cannot be reached.
    ValueError: a file has the wrong checksum.
  """
  arrays = read()
  if arrays is not None:
    return arrays
  found = originals.find(data_dir)
  if found is None and not (records / "dataset_info.json").is_file():
    # Said before a folder is made in the cache, and before TFDS is asked, which
    # would retry for minutes when offline.
    if not download:
      raise FileNotFoundError(originals.missing(data_dir))
    if originals.online is None:
      raise FileNotFoundError(
          f"--download cannot fetch {originals.title}, and"
          f" {originals.missing(data_dir)}"
      )
    originals.check_online()
  return cache.read_or_make(records.parent, read, lambda: make(found))


def load_arrays(
    originals: files.Originals,
    folder: pathlib.Path,
    version: str,
    names: Sequence[str],
    *,
    data_dir: files.Path | None,
    download: bool,
    prepare: Callable[
        [pathlib.Path, files.Found | None], tuple[np.ndarray, ...]
    ],
    expected: Callable[..., bool],
) -> tuple[np.ndarray, ...]:
  """`load` of arrays that are kept together in one file beside the records.

  Args:
    originals: the files.
    folder: of the data set in the cache.
    version: of the prepared data.
    names: of the arrays in the file.
    data_dir: as for `load`, and so is the next.
    download: whether to fetch the files.
    prepare: makes the arrays of the folder of the records and the files.
    expected: whether arrays that were read are those of the data set; others
      are made anew.
  """
  records, cached = folder / version, folder / f"arrays-{version}.npz"

  def read() -> tuple[np.ndarray, ...] | None:
    arrays = cache.read_arrays(cached, names)
    return arrays if arrays is not None and expected(*arrays) else None

  def make(found: files.Found | None) -> tuple[np.ndarray, ...]:
    arrays = prepare(records, found)
    cache.save_arrays(cached, **dict(zip(names, arrays)))
    return arrays

  return load(
      originals,
      records,
      data_dir=data_dir,
      download=download,
      read=read,
      make=make,
  )
