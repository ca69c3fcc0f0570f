"""From original files to cached arrays, in one way for all TFDS data sets."""

from collections.abc import Callable
import pathlib
from typing import TypeVar

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

  def prepare() -> T:
    found = originals.find(data_dir)
    if found is None and not (records / "dataset_info.json").is_file():
      # Said before TFDS is asked, which would retry for minutes when offline.
      if not download:
        raise FileNotFoundError(originals.missing(data_dir))
      if originals.online is None:
        raise FileNotFoundError(
            f"download=True cannot fetch {originals.title}, and"
            f" {originals.missing(data_dir)}"
        )
      originals.check_online()
    return make(found)

  return cache.read_or_make(records.parent, read, prepare)
