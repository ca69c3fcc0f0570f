"""Prepared arrays on disk, made once by one process and mapped by all.

TFDS keeps one record for every published image. The array that later starts map
is made from the records. A file is written next to its destination and moved
there when it is complete, so that no incomplete file is ever read.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil

import numpy as np
import numpy.typing as npt

from episodic_dp import foreign
from episodic_dp.data import originals as originals_lib
from episodic_dp.errors import DataError
from episodic_dp.output import files as output
from episodic_dp.output import phases

# Paths of the original files -> all images in the order of the published table,
# as pixels or as encoded files.
ReadFiles = Callable[[list[pathlib.Path]], Iterable[bytes | np.ndarray]]
THREADS = min(8, os.cpu_count() or 1)
_BATCH, _JOB = 4096, 16  # Rows that are passed to the threads at once, to one.


def mapped_array(
    path: pathlib.Path,
    fits: Callable[[np.ndarray], bool],
    write: Callable[[], None],
) -> np.ndarray:
  """Map an array of a .npy file; write the file if it does not fit.

  One process writes; others that start meanwhile wait for it.

  Args:
    path: the file; its folder holds the lock.
    fits: returns whether a found array is the wanted one.
    write: writes the file.
  """
  found = _map(path, fits)
  if found is None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / "preparing.lock").open("a") as f:
      # A killed process has released its lock.
      fcntl.flock(f, fcntl.LOCK_EX)
      found = _map(path, fits)
      if found is None:
        write()
        found = _map(path, fits)
        assert found is not None, f"{path} was written a moment ago"
  return found


def mapped_rows(
    path: pathlib.Path,
    count: int,
    opened: Callable[[], Callable[[int], np.ndarray]],
    unit: str,
) -> np.ndarray:
  """Map rows of one form that are computed one by one, in several threads.

  Args:
    path: see `mapped_array`.
    count: number of rows.
    opened: called if the rows have to be computed; returns a function from the
      number of a row to the row.
    unit: name of a row, for a progress bar.

  Raises:
    DataError: a row has another shape than the first one.
  """

  def write() -> None:
    row = opened()
    first = row(0)
    with (
        new_mapped_array(path, (count, *first.shape), first.dtype) as rows,
        futures.ThreadPoolExecutor(THREADS) as pool,
        phases.progress(count, unit) as progress,
    ):

      def make(chosen: range) -> int:
        for number in chosen:
          values = row(number)
          if values.shape != first.shape:  # NumPy would repeat a single one.
            raise DataError(
                f"{unit} {number} has another shape than the first: give data,"
                " or a backbone, of one shape"
            )
          rows[number] = values
        return len(chosen)

      rows[0] = first
      progress.update()
      numbers = range(1, count)
      for start in range(0, len(numbers), _BATCH):
        batch = numbers[start : start + _BATCH]
        jobs = [batch[i : i + _JOB] for i in range(0, len(batch), _JOB)]
        for made in pool.map(make, jobs):
          progress.update(made)

  return mapped_array(path, lambda rows: len(rows) == count, write)


def _map(
    path: pathlib.Path, fits: Callable[[np.ndarray], bool]
) -> np.ndarray | None:
  """Map an array, read-only; None if it is absent, damaged or does not fit."""
  try:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    whole = array.offset + array.nbytes == path.stat().st_size
  except Exception:  # A parser of a damaged file may raise anything.
    return None
  if not whole or not fits(array):
    return None
  return array


def published_images(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    read_files: ReadFiles,
    shape: tuple[int, ...],
    *,
    decode: Callable[[bytes], np.ndarray] | None = None,
    sha256: str | None = None,
) -> np.ndarray:
  """Return all images of a published data set, mapped from the cache.

  Images that are not in the cache are prepared from the original files.

  Args:
    originals: original files.
    where: places of the files and of the cache.
    read_files: reads the original files.
    shape: shape of the array; its last three axes are those of an image.
    decode: record -> pixels; None for records that hold pixels.
    sha256: digest of the array; None if it is not known.

  Returns:
    uint8[shape], read-only.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ConnectionError: a download cannot be reached.
    DataError: a file has the wrong checksum or content.
  """
  folder = where.cache / originals.name / originals.copy
  path = folder / f"images-{originals_lib.VERSION}.npy"

  def fits(images: np.ndarray) -> bool:
    if images.shape != shape:
      return False
    return sha256 in (None, output.sha256(images.data))

  def write() -> None:
    # Lazy import: TFDS takes seconds.
    from episodic_dp.data import records

    prepared = records.read(
        folder, _checked(originals, where, read_files, sha256)
    )
    with new_mapped_array(path, shape) as images:
      for row, record in zip(images.reshape(-1, *shape[-3:]), prepared):
        pixels = decode(record) if decode else np.frombuffer(record, np.uint8)
        row[:] = pixels.reshape(row.shape)

  if not path.exists() and not any(folder.glob("images/*/dataset_info.json")):
    originals.find(where)  # Before a folder is made or TFDS is imported.
  return mapped_array(path, fits, write)


def _checked(
    originals: originals_lib.Originals,
    where: originals_lib.Where,
    read_files: ReadFiles,
    sha256: str | None,
) -> Iterator[bytes]:
  """Yield the images of the original files; DataError if they are wrong."""
  paths = originals.find(where)
  names = ", ".join(map(str, paths))
  digest = hashlib.sha256()
  with foreign.reading(names, "cannot be read", "use another copy"):
    for image in read_files(paths):
      content = bytes(image)
      digest.update(content)
      yield content
  if sha256 not in (None, digest.hexdigest()):
    raise DataError(
        f"the images in {names} have sha256 {digest.hexdigest()} instead of"
        f" {sha256}: use another copy"
    )


@contextlib.contextmanager
def new_mapped_array(
    path: pathlib.Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike = np.uint8,
) -> Iterator[np.ndarray]:
  """Yield a mapped array to fill; it becomes `path` unless an error occurs.

  The caller holds a lock.

  Raises:
    OSError: the disk has no room; raised before anything is filled.
  """
  with output.replacing(path) as new:
    array = np.lib.format.open_memmap(
        new, mode="w+", dtype=dtype, shape=shape
    )
    # A write to a mapped file without room would end the process.
    if hasattr(os, "posix_fallocate"):
      with new.open("r+b") as f:
        os.posix_fallocate(f.fileno(), 0, os.fstat(f.fileno()).st_size)
    elif shutil.disk_usage(new.parent).free < array.nbytes:  # macOS.
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    yield array
    array.flush()
