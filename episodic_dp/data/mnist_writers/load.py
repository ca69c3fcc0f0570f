"""Loading MNIST with its writers: from the cache, the records or the files.

What the levels protect. A *writer* is a person: all their images of all digits.
A *digit* here is what one writer wrote of one of the ten digits, a dozen images
or so, and its guarantee bounds what can be told of whether this person's
sevens, say, were in the data. The digit 7 itself is no unit: that there are ten
digits is public. An *image* is one of them. Guarantees are about adding or
removing one such unit.
"""

import pathlib

import numpy as np

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import options
from episodic_dp.data import prepared
from episodic_dp.data.mnist_writers import source

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

_FIELDS = ("images", "writers", "digits")  # Of the cached file.


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    way: int = 5,
    per_digit: int = 2,
) -> dataset.Splits:
  """The three splits, each with its own array of uint8[rows, 28, 28, 1].

  The writers of the three are different people (`source.divide`). The table of
  all writers is public, and so is how many images each has of each digit; it
  declares ten digits for everyone, also where a writer left one out.

  Args:
    data_dir: folder that holds the two files of MNIST's images and the two of
      QMNIST's labels, or a folder `mnist_writers` with them. Not needed once
      the data are prepared.
    cache_dir: where the prepared data are kept; None means the environment
      variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: fetch the official files (13 MB) when data_dir does not have them.
    way: digits of a validation or test task: writers of the test file with
      fewer digits are left out. Training data do not depend on it.
    per_digit: images of each digit in such a task, support and query: digits
      with fewer are left out of validation and test.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ValueError: a file has the wrong checksum, or an option is out of range.
  """
  options.check_count(source.NAME, "way", way, least=2)
  options.check_count(source.NAME, "per_digit", per_digit, least=2)
  chosen = source.divide(way=way, per_digit=per_digit)
  for part, who in chosen.items():
    if not who:
      raise ValueError(
          f"mnist_writers options way={way} and per_digit={per_digit} leave no"
          f" writer for {part}: use smaller numbers, such as way=5 and"
          " per_digit=6"
      )
  images, writers, digits = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download
  )
  parts = {}
  for part, who in chosen.items():
    least = 0 if part == "train" else per_digit
    units = [
        (w.number, digit)
        for w in who
        for digit, count in enumerate(w.counts)
        if count >= least
    ]
    numbers = writers * source.DIGITS + digits
    kept = np.isin(numbers, [w * source.DIGITS + d for w, d in units])
    parts[part] = dataset.ArrayDataset(
        name=f"{source.NAME}/{part}",
        images=images[kept],
        hierarchy=plan.Hierarchy.from_labels(
            {"writer": writers[kept], "digit": digits[kept]},
            leaf="image",
            units=units,
        ),
        labels=digits[kept],
        description=(
            f"{kept.sum()} images of digits by {len(who)} writers of MNIST,"
            f" {source.SIZE} x {source.SIZE}, at least {least} of a digit"
        ),
    )
  return dataset.Splits(**parts)


def load_arrays(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
) -> Arrays:
  """All images: from the cache, or prepared from the files.

  Returns:
    uint8[70000, 28, 28, 1] images, and their writers and digits, int32[70000];
    by writer, then digit, then place in the file.
  """
  images, writers, digits = prepared.load_arrays(
      source.ORIGINALS,
      cache.root(cache_dir) / source.FOLDER,
      source.VERSION,
      _FIELDS,
      data_dir=data_dir,
      download=download,
      prepare=_prepare,
      expected=_as_published,
  )
  return images, writers, digits


def _as_published(
    images: np.ndarray, writers: np.ndarray, digits: np.ndarray
) -> bool:
  """Whether every writer has as many images of each digit as is published."""
  table = sorted(source.writers(), key=lambda w: w.number)
  counts = np.asarray([w.counts for w in table]).ravel()
  units = np.repeat(np.arange(counts.size), counts)
  numbers = np.asarray([w.number for w in table])
  return (
      images.dtype == np.uint8
      and images.shape == (units.size, source.SIZE, source.SIZE, 1)
      and np.array_equal(writers, numbers[units // source.DIGITS])
      and np.array_equal(digits, units % source.DIGITS)
  )


def _prepare(records: pathlib.Path, found: files.Found | None) -> Arrays:
  """Reads the files through TFDS and puts the records into their order."""
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.mnist_writers import builder

  images, writers, digits, rows = builder.prepare(
      records.parent.parent, found and found[1]
  )
  order = np.lexsort((rows, digits, writers))
  arrays = images[order], writers[order], digits[order]
  if not _as_published(*arrays):
    raise ValueError(
        f"the prepared MNIST in {records} has {len(images)} images, and not of"
        " every writer as many as are published: remove this folder and"
        " prepare it again"
    )
  return arrays
