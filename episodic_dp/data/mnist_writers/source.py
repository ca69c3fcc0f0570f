"""Names, sizes, files, checksums and writers of MNIST with writer numbers."""

import dataclasses
import pathlib

from episodic_dp.data import dataset
from episodic_dp.data import files

NAME = "mnist_writers"
SIZE = 28
DIGITS = 10
LEVELS = ("writer", "digit", "image")
VERSION = "1.0.0"  # Of the prepared data.
FOLDER = "mnist_writers28"  # Of the prepared data: TFDS's name of the builder.
# Of the official files, which MNIST's number of images is published with.
IMAGES = {"train": 60_000, "t10k": 10_000}

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
# The official files, whose MD5 torchvision lists: f68b3c2d... and 9fb629c4...
# of the images, 0058f8dd... and 5b5b0589... of the labels.
_FILES = {
    "train_images": files.Archive(
        "train-images-idx3-ubyte.gz",
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",),
        _MNIST + "train-images-idx3-ubyte.gz",
    ),
    "train_labels": files.Archive(
        "qmnist-train-labels-idx2-int.gz",
        ("2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",),
        _QMNIST + "qmnist-train-labels-idx2-int.gz",
    ),
    "t10k_images": files.Archive(
        "t10k-images-idx3-ubyte.gz",
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",),
        _MNIST + "t10k-images-idx3-ubyte.gz",
    ),
    "t10k_labels": files.Archive(
        "qmnist-test-labels-idx2-int.gz",
        ("9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",),
        _QMNIST + "qmnist-test-labels-idx2-int.gz",
    ),
}
ORIGINALS = files.Originals(
    name=NAME, title="MNIST", sources={"files": _FILES}, online="files"
)

_TABLE = pathlib.Path(__file__).with_name("writers.tsv")


@dataclasses.dataclass(frozen=True)
class Writer:
  """A person: their number, the file they are in, images of each digit."""

  number: int
  file: str  # "train" or "t10k": no writer is in both.
  counts: tuple[int, ...]

  def has(self, digits: int, images: int) -> bool:
    """Whether so many digits have so many images each."""
    return sum(count >= images for count in self.counts) >= digits


def writers() -> tuple[Writer, ...]:
  """The 836 writers, those of the training file first, numbers rising."""
  found = []
  for line in _TABLE.read_text().splitlines():
    if not line.startswith("#"):
      number, file, counts = line.split("\t")
      found.append(
          Writer(int(number), file, tuple(int(c) for c in counts.split()))
      )
  return tuple(found)


def divide(*, way: int, per_digit: int) -> dict[str, tuple[Writer, ...]]:
  """The writers of each part; the rule is public.

  All 539 of the training file train, whatever they wrote. Of the 297 of the
  other file those whose number is a multiple of three validate and the others
  test, but for writers without `way` digits of `per_digit` images each, who can
  give no such task.

  Args:
    way: digits of a validation or test task.
    per_digit: images of each of them, support and query.

  Returns:
    part of `dataset.PARTS` -> writers, disjoint.
  """
  everyone = writers()
  able = [
      w for w in everyone if w.file == "t10k" and w.has(way, per_digit)
  ]
  chosen = (
      [w for w in everyone if w.file == "train"],
      [w for w in able if w.number % 3 == 0],
      [w for w in able if w.number % 3],
  )
  return {part: tuple(c) for part, c in zip(dataset.PARTS, chosen)}
