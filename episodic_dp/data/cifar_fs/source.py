"""Names, sizes, files, checksums and classes of CIFAR-FS."""

import dataclasses
import pathlib

from episodic_dp.data import files

NAME = "cifar_fs"
EXAMPLES = 600  # Of each class.
SIZE = 32
VERSION = "1.0.0"  # Of the prepared data.
FOLDER = "cifar_fs32"  # Of the prepared data: TFDS's name of the builder.
# Of uint8[100, 600, 32, 32, 3], classes in the order of CIFAR-100's labels.
ARRAY_SHA256 = (
    "cb85c0eb11325b1687dc50cd6e0e85b192ba6685d1aab5b9e96557be8d8336be"
)

_TABLE = pathlib.Path(__file__).with_name("classes.tsv")
_URL = "https://www.cs.toronto.edu/~kriz/"
# Zips of one lossless WebP picture per class.
_SHEETS = {
    "train": files.Archive(
        "train.zip",
        ("13854673d28af6edf903e51ba6693c6850251551cd79c903844814bc327d8775",),
    ),
    "validation": files.Archive(
        "val.zip",
        ("856cf269597143b4ae58f6cdfce0e333f664adf2b6adb4ea66a668c1e15f19b5",),
    ),
    "test": files.Archive(
        "test.zip",
        ("d9404c5b08ff10e8706451e17624b4b70b721426f6f34e175a43b21a426d1bbf",),
    ),
}
_BINARY = files.Archive(
    "cifar-100-binary.tar.gz",
    ("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",),
    _URL + "cifar-100-binary.tar.gz",
)
_PYTHON = files.Archive(
    "cifar-100-python.tar.gz",
    ("85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",),
    _URL + "cifar-100-python.tar.gz",
)
# The keys are the kinds of `archives.read`; the archive without pickles is the
# one that is downloaded.
ORIGINALS = files.Originals(
    name=NAME,
    title="CIFAR-FS",
    sources={
        "sheets": _SHEETS,
        "binary": {"archive": _BINARY},
        "python": {"archive": _PYTHON},
    },
    online="binary",
)


@dataclasses.dataclass(frozen=True)
class Class:
  """A class of CIFAR-100: its superclass, and its part of CIFAR-FS."""

  name: str
  superclass: str
  part: str


def classes() -> tuple[Class, ...]:
  """The 100 classes in the order of CIFAR-100's labels."""
  lines = _TABLE.read_text().splitlines()
  return tuple(
      Class(*line.split("\t")) for line in lines if not line.startswith("#")
  )


def shape() -> tuple[int, ...]:
  """Of the array of all images: [classes, images of each, 32, 32, 3]."""
  return len(classes()), EXAMPLES, SIZE, SIZE, 3


def superclass_sizes(part: str) -> dict[str, int]:
  """How many classes of a part each superclass holds, by superclass."""
  owners = sorted(c.superclass for c in classes() if c.part == part)
  return {name: owners.count(name) for name in owners}
