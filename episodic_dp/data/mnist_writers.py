"""MNIST with the writers of its digits, from QMNIST's labels.

Sources: LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to
document recognition, Proc. IEEE 86, 1998; Yadav and Bottou, Cold Case: The Lost
MNIST Digits, NeurIPS 2019, whose rows of labels follow MNIST's images in order.

Levels. A *writer* is a person: all their images of all digits. A *digit* here
is the images of one of the ten digits by one writer, a dozen or so, and its
guarantee bounds what can be inferred about the presence of, say, this person's
sevens. The digit 7 itself is no unit: that there are ten digits is public. An
*image* is one of them. Guarantees are about adding or removing one such unit.
"""

import dataclasses
import functools
import gzip
import math
import pathlib
from typing import Annotated, NamedTuple, TypeAlias
import zlib

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools

NAME = "mnist_writers"
SIZE = 28
DIGITS = 10
LEVELS = ("writer", "digit", "image")
# Images in the official files, which are MNIST's.
IMAGES = {"train": 60_000, "t10k": 10_000}

_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
# The official files, whose MD5 torchvision lists: f68b3c2d... and 9fb629c4...
# of the images, 0058f8dd... and 5b5b0589... of the labels.
ORIGINALS = originals.Originals(
    name=NAME,
    sources={"files": {
        "train_images": originals.Archive(
            "train-images-idx3-ubyte.gz",
            ("440fcabf73cc546fa21475e81ea37026"
             "5605f56be210a4024d2ca8f203523609",),
            _MNIST + "train-images-idx3-ubyte.gz",
        ),
        "train_labels": originals.Archive(
            "qmnist-train-labels-idx2-int.gz",
            ("2c05dc77f6b916b38e455e97ab129a42"
             "a444f3dbef09b278a366f82904e0dd9f",),
            _QMNIST + "qmnist-train-labels-idx2-int.gz",
        ),
        "t10k_images": originals.Archive(
            "t10k-images-idx3-ubyte.gz",
            ("8d422c7b0a1c1c79245a5bcf07fe86e3"
             "3eeafee792b84584aec276f5a2dbc4e6",),
            _MNIST + "t10k-images-idx3-ubyte.gz",
        ),
        "t10k_labels": originals.Archive(
            "qmnist-test-labels-idx2-int.gz",
            ("9fbcbe594c3766fdf4f0b15c5165dc0d"
             "1e57ac604e01422608bb72c906030d06",),
            _QMNIST + "qmnist-test-labels-idx2-int.gz",
        ),
    }},
    online="files",
)
# Of the header of an IDX file: the type of its numbers.
_TYPES = {b"\x08": ">u1", b"\x0c": ">i4"}
# Columns of QMNIST's labels: the others say where in NIST an image is from.
_DIGIT, _WRITER = 0, 2
_Two: TypeAlias = Annotated[int, functools.partial(_validate.count, least=2)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of MNIST's writers; training data do not depend on them.

  Attributes:
    way: number of digits of a validation or test task; writers of the test file
      with fewer digits are left out.
    per_digit: number of images of each digit in such a task, support and query;
      digits with fewer images are left out of validation and test.
  """

  way: _Two = 5
  per_digit: _Two = 2


class Writer(NamedTuple):
  """A person: their number, the file they are in, images of each digit."""

  number: int
  file: str  # "train" or "t10k": no writer is in both.
  counts: tuple[int, ...]


def writers() -> tuple[Writer, ...]:
  """Return the 836 writers, those of the training file first."""
  return tuple(
      Writer(int(number), file, tuple(map(int, counts.split())))
      for number, file, counts in pools.read_table(_TABLE)
  )


def divide(*, way: int, per_digit: int) -> dict[str, tuple[Writer, ...]]:
  """Return the writers of each part; the rule is public.

  All 539 of the training file train, whatever they wrote. Of the 297 of the
  other file those whose number is a multiple of three validate and the others
  test, except writers without `way` digits of `per_digit` images each, who can
  give no such task.

  Args:
    way: digits of a validation or test task.
    per_digit: images of each of them, support and query.

  Returns:
    part of `dataset.PARTS` -> writers, disjoint.
  """
  everyone = writers()
  able = [
      w for w in everyone
      if w.file == "t10k" and sum(c >= per_digit for c in w.counts) >= way
  ]
  chosen = (
      [w for w in everyone if w.file == "train"],
      [w for w in able if w.number % 3 == 0],
      [w for w in able if w.number % 3],
  )
  return {part: tuple(c) for part, c in zip(dataset.PARTS, chosen)}


def load(options: Options, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, 28, 28, 1].

  The writers of the three are different people (`divide`). The table of all
  writers is public, and so is how many images each has of each digit; it
  declares ten digits for everyone, also where a writer left one out.

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ValueError: a file has the wrong checksum, or no writer is left.
  """
  chosen = divide(way=options.way, per_digit=options.per_digit)
  for part, who in chosen.items():
    if not who:
      raise ValueError(
          f"mnist_writers {options} leave no writer for {part}: use smaller"
          " numbers, such as way=5 and per_digit=6"
      )
  arrays = load_arrays(where)
  images, owners, digits = (arrays[n] for n in ("images", "writers", "digits"))
  parts = {}
  for part, who in chosen.items():
    least = 0 if part == "train" else options.per_digit
    units = [
        (w.number, digit)
        for w in who
        for digit, count in enumerate(w.counts)
        if count >= least
    ]
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
        description=(
            f"{kept.sum()} images of digits by {len(who)} writers of MNIST,"
            f" {SIZE} x {SIZE}, at least {least} of a digit"
        ),
    )
  return dataset.Splits(**parts)


def load_arrays(where: originals.Where) -> cache.Arrays:
  """Return all images, from the cache or prepared from the files.

  Returns:
    "images" uint8[70000, 28, 28, 1], and their "writers" and "digits",
    int32[70000]; by writer, then digit, then place in the file.
  """
  return cache.arrays(
      ORIGINALS, where, generate=_records, assemble=_assemble
  )


def _records(found: originals.Found) -> originals.Records:
  paths = found[1]
  for file, count in IMAGES.items():
    images, labels = paths[f"{file}_images"], paths[f"{file}_labels"]
    pixels = read_idx(images, (SIZE, SIZE))
    # QMNIST has 50 000 more test labels than MNIST has images, at the end.
    rows = read_idx(labels, (8,))[:count]
    if len(pixels) != count or len(rows) != count:
      raise ValueError(
          f"{images} has {len(pixels)} images and {labels} {len(rows)} rows of"
          f" labels, and {count} belong there: fetch both files again"
      )
    for place, (image, row) in enumerate(zip(pixels, rows)):
      key = f"{row[_WRITER]:05d}/{row[_DIGIT]}/{place:05d}/{file}"
      yield key, image.tobytes()


def _assemble(held: list[tuple[str, bytes]]) -> cache.Arrays:
  keys = np.asarray([key.split("/")[:2] for key, _ in held]).astype(np.int32)
  pixels = np.frombuffer(b"".join(image for _, image in held), np.uint8)
  table = sorted(writers())
  counts = np.asarray([w.counts for w in table])
  numbers = np.repeat([w.number for w in table], counts.sum(1))
  digits = np.repeat(np.tile(np.arange(DIGITS), len(table)), counts.ravel())
  if not np.array_equal(keys, np.stack([numbers, digits], 1)):
    raise ValueError(
        "the files of MNIST hold other counts of a writer's digits than those"
        " published: use another copy"
    )
  return {
      "images": pixels.reshape(-1, SIZE, SIZE, 1),
      "writers": keys[:, 0],
      "digits": keys[:, 1],
  }


def read_idx(path: originals.Path, shape: tuple[int, ...]) -> np.ndarray:
  """Return the array [rows, *shape] of a gzipped IDX file.

  Raises:
    ValueError: it is no such file, or an array of another shape.
  """
  try:
    with gzip.open(path) as f:
      data = f.read()
  except (OSError, EOFError, zlib.error) as e:
    raise ValueError(f"{path} is no whole gzip file: fetch it again") from e
  kind = _TYPES.get(data[2:3])
  start = 4 + 4 * (1 + len(shape))
  head = np.frombuffer(data[4:start].ljust(start - 4, b"\0"), ">i4")
  whole = math.prod(map(int, head)) * np.dtype(kind).itemsize
  if kind is None or tuple(head[1:]) != shape or whole != len(data) - start:
    raise ValueError(
        f"{path} is no IDX file of an array [rows,"
        f" {', '.join(map(str, shape))}]: fetch it again"
    )
  return np.frombuffer(data, kind, offset=start).reshape(head)
