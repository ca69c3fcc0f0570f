"""Names, sizes, files, checksums and classes of mini-ImageNet."""

import dataclasses
import pathlib

from episodic_dp.data import files

NAME = "mini_imagenet"
EXAMPLES = 600  # Of each class.
SIZE = 84
VERSION = "1.0.0"  # Of the prepared data.
FOLDER = "mini_imagenet84"  # Of the prepared data: TFDS's name of the builder.
COPIES = {
    "webp": "re-encoded with loss as WebP",
    "jpeg": "of a copy without a known checksum",
}

_TITLE = "mini-ImageNet"
_TABLE = pathlib.Path(__file__).with_name("classes.tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Jpegs(files.Originals):
  """A folder `images` or a file `images.zip`, of no known checksum."""

  def find(self, data_dir: files.Path | None) -> files.Found | None:
    if data_dir is None:
      return None
    root = pathlib.Path(data_dir).expanduser()
    for folder in (root / self.name, root):
      for place in (folder / "images", folder / "images.zip"):
        if place.exists():
          return "jpegs", {"all": place}
    return None

  def missing(self, data_dir: files.Path | None) -> str:
    where = "no data_dir was given"
    if data_dir is not None:
      where = f"neither {data_dir} nor {data_dir}/{self.name} holds images"
    return (
        f"'{self.name}' is not prepared yet and {where}: put a folder images,"
        f" or images.zip, with the 60 000 JPEGs of {SIZE} x {SIZE} pixels (no"
        f" checksum is known) into DIR or DIR/{self.name} and"
        f" {files.given(download=False)}"
    )


# WebP files without folders: 32 + 32 training classes, 16 and 20.
_WEBPS = {
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
ORIGINALS = {  # By copy.
    "webp": files.Originals(name=NAME, title=_TITLE, sources={"zips": _WEBPS}),
    "jpeg": _Jpegs(name=NAME, title=_TITLE, sources={}),
}


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
      # The least significant bit stands for image 1.
      bits = f"{int(chosen, 16):b}"[::-1]
      names = (f"{wnid}{i:08d}" for i, bit in enumerate(bits, 1) if bit == "1")
      found.append(Class(wnid, part, tuple(names)))
  return tuple(found)


def shape() -> tuple[int, ...]:
  """Of the array of all images: [classes, images of each, 84, 84, 3]."""
  return len(classes()), EXAMPLES, SIZE, SIZE, 3
