"""Names, sizes, files, checksums and classes of CIFAR-FS."""

import dataclasses
import pathlib

from episodic_dp.data import files

NAME = "cifar_fs"
EXAMPLES = 600  # Of each class.
SIZE = 32
VERSION = "1.0.0"  # Of the prepared data.
PARTS = ("train", "validation", "test")
LEVELS = ("class", "image")
# Of uint8[100, 600, 32, 32, 3], classes in the order of CIFAR-100's labels.
ARRAY_SHA256 = (
    "cb85c0eb11325b1687dc50cd6e0e85b192ba6685d1aab5b9e96557be8d8336be"
)

_TABLE = pathlib.Path(__file__).with_name("classes.tsv")
_URL = "https://www.cs.toronto.edu/~kriz/"
# Each is enough: see `archives`. Zips of one lossless WebP picture per
# class, or one of the official archives; the one without pickles is downloaded.
SOURCES: dict[str, files.Source] = {
    "sheets": {
        "train": files.Archive(
            "train.zip",
            (
                "13854673d28af6edf903e51ba6693c6850251551cd79c903844814bc327d8775",
            ),
        ),
        "validation": files.Archive(
            "val.zip",
            (
                "856cf269597143b4ae58f6cdfce0e333f664adf2b6adb4ea66a668c1e15f19b5",
            ),
        ),
        "test": files.Archive(
            "test.zip",
            (
                "d9404c5b08ff10e8706451e17624b4b70b721426f6f34e175a43b21a426d1bbf",
            ),
        ),
    },
    "binary": {
        "archive": files.Archive(
            "cifar-100-binary.tar.gz",
            (
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
            _URL + "cifar-100-binary.tar.gz",
        )
    },
    "python": {
        "archive": files.Archive(
            "cifar-100-python.tar.gz",
            (
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
            _URL + "cifar-100-python.tar.gz",
        )
    },
}


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


def superclass_sizes(part: str) -> dict[str, int]:
  """How many classes of a part each superclass holds, by superclass."""
  owners = sorted(c.superclass for c in classes() if c.part == part)
  return {name: owners.count(name) for name in owners}
