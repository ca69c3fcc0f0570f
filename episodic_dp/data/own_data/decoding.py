"""Own data as one array on disk, read once and mapped by later runs."""

from concurrent import futures
import hashlib
import os
import pathlib
import tempfile

from absl import logging
import numpy as np

from episodic_dp.data import cache
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.output import phases

_BATCH = 1024  # Examples handed to the reading threads at once.


def decoded(
    listing: listing_lib.Listing,
    records: np.ndarray,
    options: rows_lib.Options,
    root: pathlib.Path,
) -> np.ndarray:
  """The rows of some records, in order: mapped, and made where they are not.

  Args:
    listing: the data.
    records: int64[n], numbers of examples.
    options: of the rows.
    root: the folder of what is made, readable by its owner alone.

  Returns:
    uint8 or float32 [n, ...], of one to three axes more.

  Raises:
    ValueError: an example cannot be read, or differs from the first one; or
      the folder cannot be written; one sentence.
  """
  about = f"2/{listing.source.resolve()}/{listing.fingerprint}/{options}/"
  digest = hashlib.sha256(
      about.encode(errors="surrogateescape")
      + np.ascontiguousarray(records, "<i8").tobytes()
  ).hexdigest()
  path = root / f"{digest[:32]}.npy"

  def read() -> np.ndarray | None:
    return cache.map_array(path, len(records))

  def make() -> np.ndarray:
    _decode(listing, records, options, path)
    found = read()
    if found is None:
      raise ValueError(
          f"{path} was written and cannot be read: see that the disk is sound,"
          " or choose another cache_dir"
      )
    return found

  found = read()
  if found is None:
    _make_private_folder(root)
    found = cache.read_or_make(root, read, make)
  return found


def _make_private_folder(root: pathlib.Path) -> None:
  """Makes a folder that its owner alone may read; ValueError if it cannot."""
  try:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=root):
      pass
  except OSError as e:
    raise ValueError(
        f"{root} cannot be written ({e.strerror}): choose another cache_dir"
        " (the environment variable TFDS_DATA_DIR)"
    ) from e


def _decode(
    listing: listing_lib.Listing,
    records: np.ndarray,
    options: rows_lib.Options,
    path: pathlib.Path,
) -> None:
  """Reads all records in one form, in order, into a new file."""
  read = listing.reader()
  numbers = records.tolist()
  first = numbers[0]
  form = rows_lib.form_of(
      read(first), listing.name_of(first), options, listing.shape
  )
  seen: set[bytes] = set()
  try:
    with (
        cache.new_mapped_array(
            path, (len(numbers), *form.shape), form.dtype
        ) as rows,
        futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
        phases.progress(len(numbers), listing.levels[-1]) as progress,
    ):

      def one(place: int) -> bytes:
        number = numbers[place]
        rows[place] = form.row(read(number), listing.name_of(number))
        return hashlib.blake2b(rows[place], digest_size=16).digest()

      for start in range(0, len(numbers), _BATCH):
        batch = range(start, min(start + _BATCH, len(numbers)))
        for digest in pool.map(one, batch):
          seen.add(digest)
          progress.update()
  except OSError as e:
    raise ValueError(
        f"{path.parent} cannot take the {len(numbers)} rows that were read"
        f" ({e.strerror or e}): make room, or choose another cache_dir"
    ) from e
  copies = len(numbers) - len(seen)
  if copies:
    logging.warning(
        "%d rows of %s have the same values as another one: each copy is a"
        " record of its own, and a guarantee for one '%s' covers one of them",
        copies, listing.source, listing.levels[-1],
    )
