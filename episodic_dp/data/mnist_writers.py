"""MNIST with the writers of its digits, from QMNIST's labels.

Sources: LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to
document recognition, Proc. IEEE 86, 1998; Yadav and Bottou, Cold Case: The Lost
MNIST Digits, NeurIPS 2019, whose rows of labels follow MNIST's images in order.

Levels. A *writer* is a person: all of their images of all digits. A *digit*
here is one writer's images of one of the ten digits, a dozen or so. Its
guarantee bounds what can be inferred about the presence of, for example, this
person's sevens. The digit 7 itself is not a unit: that there are ten digits is
public. An *image* is one of them. Guarantees are for adding or removing one
such unit.
"""

import dataclasses
import gzip
import pathlib
from typing import NamedTuple

import numpy as np

from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.errors import PlanError

NAME = "mnist_writers"
SIZE = 28
DIGITS = 10
LEVELS = ("writer", "digit", "image")
# SHA-256 of the array of `load_images`.
ARRAY_SHA256 = (
    "add15a0a01f6e297354f1ef7c6bc525e2861f93d110018a70e50554b1538f2c5"
)

_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
ORIGINALS = originals.read(NAME)
# The third byte of an IDX file: the type of its numbers.
_TYPES = {8: ">u1", 12: ">i4"}
# Columns of QMNIST's labels; the others give an image's place in NIST.
_DIGIT, _WRITER = 0, 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class MnistWriters:
  """Options of MNIST's writers; training data do not depend on them.

  Attributes:
    way: number of digits of a validation or test task; writers of the test file
      with fewer digits are left out.
    per_digit: number of images of each digit in such a task, support and query;
      digits with fewer images are left out of validation and test.
  """

  way: plain.Count = 5
  per_digit: plain.Count = 2


class Writer(NamedTuple):
  """A person: their number, their file, and their images of each digit."""

  number: int
  file: str  # "train" or "t10k": no writer is in both.
  counts: tuple[int, ...]


def writers() -> tuple[Writer, ...]:
  """Return the 836 writers, those of the training file first."""
  return tuple(
      Writer(int(number), file, tuple(map(int, counts.split())))
      for number, file, counts in originals.read_table(_TABLE)
  )


def divide(*, way: int, per_digit: int) -> dict[str, tuple[Writer, ...]]:
  """Return the writers of each part; the rule is public.

  All 539 writers of the training file train, whatever they wrote. Of the 297
  writers of the other file, those whose number is a multiple of three validate
  and the others test, except writers without `way` digits of `per_digit` images
  each, who cannot form such a task.

  Args:
    way: digits of a validation or test task.
    per_digit: images of each of them, support and query.

  Returns:
    part of `dataset.PARTS` -> writers, disjoint.
  """
  everyone = writers()
  able = []
  for writer in everyone:
    digits = [count for count in writer.counts if count >= per_digit]
    if writer.file == "t10k" and len(digits) >= way:
      able.append(writer)
  chosen = (
      [w for w in everyone if w.file == "train"],
      [w for w in able if w.number % 3 == 0],
      [w for w in able if w.number % 3],
  )
  return {part: tuple(c) for part, c in zip(dataset.PARTS, chosen)}


def load(options: MnistWriters, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, 28, 28, 1].

  The writers of the three are different people (`divide`). The table of all
  writers is public, and so is the number of images of each digit that each has.
  It declares ten digits for everyone, even if a writer left one out.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    DataError: a file has the wrong checksum, or no writer remains.
  """
  chosen = divide(way=options.way, per_digit=options.per_digit)
  for part, who in chosen.items():
    if not who:
      raise PlanError(
          f"mnist_writers {options} leave no writer for {part}: use smaller"
          " numbers, such as way=5 and per_digit=6"
      )
  images, (owners, digits) = load_images(where), _units_of_images().T
  parts = {}
  for part, who in chosen.items():
    least = options.per_digit
    if part == "train":
      least = 0
    units = []
    for w in who:
      for digit, count in enumerate(w.counts):
        if count >= least:
          units.append((w.number, digit))
    kept = np.isin(
        owners * DIGITS + digits, [w * DIGITS + digit for w, digit in units]
    )
    parts[part] = dataset.ArrayDataset(
        name=f"{NAME}/{part}",
        images=images[kept],
        hierarchy=plan.Hierarchy.from_labels(
            {"writer": owners[kept], "digit": digits[kept]},
            leaf="image",
            units=units,
        ),
        labels=digits[kept],
    )
  return dataset.Splits(**parts)


def _units_of_images() -> np.ndarray:
  """Return the writer and the digit of each image, int32[70000, 2]."""
  table = sorted(writers())
  units = [(w.number, digit) for w in table for digit in range(DIGITS)]
  counts = np.ravel([w.counts for w in table])
  return np.repeat(np.asarray(units, np.int32), counts, axis=0)


def load_images(where: originals.Where) -> np.ndarray:
  """Return all images, mapped from the cache or prepared from the files.

  Returns:
    uint8[70000, 28, 28, 1], by writer, then digit, then place in the file.
  """
  return cache.published_images(
      ORIGINALS,
      where,
      _read_files,
      (len(_units_of_images()), SIZE, SIZE, 1),
      sha256=ARRAY_SHA256,
  )


def _read_files(paths: list[pathlib.Path]) -> np.ndarray:
  images, rows, more_images, more_rows = map(read_idx, paths)
  images = np.concatenate([images, more_images])
  # QMNIST has 50 000 more test labels than MNIST has images, at the end.
  labels = np.concatenate([rows, more_rows])[: len(images)]
  return images[np.lexsort((labels[:, _DIGIT], labels[:, _WRITER]))]


def read_idx(path: originals.Path) -> np.ndarray:
  """Return the array of a gzipped IDX file.

  Raises:
    ValueError, OSError and others: it is not such a file.
  """
  with gzip.open(path) as f:
    data = f.read()
  axes = data[3]
  shape = np.frombuffer(data, ">i4", axes, offset=4)
  values = np.frombuffer(data, _TYPES[data[2]], offset=4 * (1 + axes))
  return values.reshape(shape)
