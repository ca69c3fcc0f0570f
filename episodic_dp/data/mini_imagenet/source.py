"""Names, sizes, files, checksums and classes of mini-ImageNet."""

import dataclasses
import pathlib

from episodic_dp.data import files

NAME = "mini_imagenet"
EXAMPLES = 600  # Of each class.
SIZE = 84
VERSION = "1.0.0"  # Of the prepared data.
PARTS = ("train", "validation", "test")
LEVELS = ("class", "image")
COPIES = {
    "webp": "re-encoded with loss as WebP",
    "jpeg": "of a copy without a known checksum",
}
# WebP files without folders: 32 + 32 training classes, 16 and 20.
ARCHIVES: files.Source = {
    "train_a": files.Archive(
        "train_a.zip",
        ("b6ab8f60553782bf137be3d58a6470e631ced3bba5c36605c39616dd88e84027",),
    ),
    "train_b": files.Archive(
        "train_b.zip",
        ("5b559b8e6dc789f7e70be04339ea7883c88cc580751bbbc504a4919ff3094b1a",),
    ),
    "validation": files.Archive(
        "val.zip",
        ("567b654e84bb295b5f77e0a10f72d2b920f286fe1b912dc96536112d8dbc5f4f",),
    ),
    "test": files.Archive(
        "test.zip",
        ("5bee05b4c7c4abde51312950ccd75dbdf0ac142897620e21bc4f5ef1d6d56fb8",),
    ),
}

_TABLE = pathlib.Path(__file__).with_name("classes.tsv")


@dataclasses.dataclass(frozen=True)
class Class:
  """A class, its part, and the names of its images without their ending."""

  wnid: str
  part: str
  images: tuple[str, ...]


def classes() -> tuple[Class, ...]:
  """The 100 classes in the order of the published lists, part by part."""
  found = []
  for line in _TABLE.read_text().splitlines():
    if not line.startswith("#"):
      wnid, part, chosen = line.split("\t")
      # The bit of least worth is that of image 1.
      bits = f"{int(chosen, 16):b}"[::-1]
      names = (f"{wnid}{i:08d}" for i, bit in enumerate(bits, 1) if bit == "1")
      found.append(Class(wnid, part, tuple(names)))
  return tuple(found)
