"""CIFAR-FS: the 100 classes of CIFAR-100, 600 images of 32 x 32 each.

Sources: Krizhevsky, Learning multiple layers of features from tiny images,
2009; the division into 64 / 16 / 20 classes is that of Bertinetto et al.,
Meta-learning with differentiable closed-form solvers, ICLR 2019. Every copy
gives the same array: the images of a class are in the order of the SHA-256 of
their raw bytes, and the checksum of the array is known. CIFAR-100 holds 26
images twice, 15 of them in two parts of CIFAR-FS; as is common, nothing is
removed.

Two forms of files hold these images: the official archive of raw bytes, and
zips with one picture per class that were made from it without loss. The
official archive of pickles is not read: a pickle can run any code.
"""

import collections
from collections.abc import Iterator
import dataclasses
import hashlib
import pathlib
import tarfile
from typing import NamedTuple
import zipfile

import numpy as np

from episodic_dp import foreign
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools
from episodic_dp.errors import PlanError
from episodic_dp.output import files

EXAMPLES = 600  # Of each class.
SIZE = 32
# Of uint8[100, 600, 32, 32, 3], classes in the order of CIFAR-100's labels.
ARRAY_SHA256 = (
    "cb85c0eb11325b1687dc50cd6e0e85b192ba6685d1aab5b9e96557be8d8336be"
)

_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
# Sheets are zips of one lossless WebP picture per class.
ORIGINALS = originals.read("cifar_fs")

Paths = list[pathlib.Path]
Images = Iterator[tuple[int, np.ndarray]]  # A label and an image.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarFS(pools.Pool):
  """Options of CIFAR-FS (DP-MAML has 400 000 participants).

  Attributes:
    superclasses: whether the training tree is superclass -> class -> image
      instead of class -> image. Its 20 superclasses hold 2 to 5 training
      classes. Validation and test stay class -> image, since their superclasses
      hold at most three. The published table declares the units of both trees.
    backbone: public network whose features replace the images; None for the
      images.
  """

  superclasses: bool = False
  backbone: backbone_lib.Backbone | None = None

  def __post_init__(self) -> None:
    if self.superclasses and self.participants is not None:
      raise PlanError(
          f"cifar_fs options superclasses=True and"
          f" participants={self.participants} are two trees over one set of"
          " images: choose one"
      )


class CifarClass(NamedTuple):
  """A class of CIFAR-100: its superclass, and its part of CIFAR-FS."""

  name: str
  superclass: str
  part: str


def classes() -> tuple[CifarClass, ...]:
  """Return the 100 classes in the order of CIFAR-100's labels."""
  return tuple(CifarClass(*columns) for columns in originals.read_table(_TABLE))


def superclass_sizes() -> dict[str, int]:
  """Return superclass -> its number of training classes, by name."""
  owners = sorted(c.superclass for c in classes() if c.part == "train")
  return collections.Counter(owners)


def load(options: CifarFS, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, 32, 32, 3].

  With a backbone they are float32[rows, features].

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    DataError: a file has the wrong checksum, or the backbone cannot be used.
  """
  images, table = load_images(where), classes()
  if options.backbone is not None:
    images = _features(images, options.backbone, where)
  part_of = np.asarray([c.part for c in table])
  trees = {}
  if options.superclasses:
    trees["train"] = pools.grouped_tree(
        ("superclass", "class", "image"),
        [(c.superclass, c.name) for c in table if c.part == "train"],
        EXAMPLES,
    )
  return pools.make_splits(
      "cifar_fs",
      {part: images[part_of == part] for part in dataset.PARTS},
      options,
      levels=("class", "image"),
      trees=trees,
  )


def load_images(where: originals.Where) -> np.ndarray:
  """Return all images, mapped from the cache or prepared from the files.

  Returns:
    uint8[100, 600, 32, 32, 3]: classes in the order of CIFAR-100's labels, and
    inside a class by the SHA-256 of an image's 3072 bytes (height, width, RGB).
  """
  return cache.published_images(
      ORIGINALS,
      where,
      _read_files,
      (len(classes()), EXAMPLES, SIZE, SIZE, 3),
      sha256=ARRAY_SHA256,
  )


def _features(
    images: np.ndarray,
    backbone: backbone_lib.Backbone,
    where: originals.Where,
) -> np.ndarray:
  """Return the features of all images, float32[100, 600, d], computed once."""
  # Lazy import: other runs are accounted for without Pillow.
  from episodic_dp.data.own_data import rows as rows_lib

  network = backbone.opened()
  about = f"1/{dataclasses.replace(network.backbone, file='')}"
  digest = files.sha256(about.encode())[:32]
  path = where.cache / ORIGINALS.name / f"features-{digest}.npy"
  classes, examples, *shape = images.shape
  flat = images.reshape(-1, *shape)

  def features(number: int) -> np.ndarray:
    return network.features(rows_lib.resized(flat[number], network.shape))

  rows = cache.mapped_rows(path, len(flat), lambda: features, "image")
  return rows.reshape(classes, examples, -1)


def _read_files(paths: Paths) -> list[bytes]:
  read = _binary
  if len(paths) > 1:
    read = _sheets
  images = read(paths)
  held = [(label, image.tobytes()) for label, image in images]
  held.sort(key=lambda one: (one[0], hashlib.sha256(one[1]).digest()))
  return [image for _, image in held]


def _sheets(paths: Paths) -> Images:
  """Read <class>.webp: a grid of the images of a class, row by row."""
  labels = {c.name: label for label, c in enumerate(classes())}
  for path in paths:
    with zipfile.ZipFile(path) as z:
      for member in z.namelist():
        with z.open(member) as content, foreign.picture(content) as picture:
          sheet = np.asarray(picture.convert("RGB"))
        columns = sheet.shape[1] // SIZE
        grid = sheet.reshape(-1, SIZE, columns, SIZE, 3).swapaxes(1, 2)
        for image in grid.reshape(-1, SIZE, SIZE, 3):
          yield labels[member.removesuffix(".webp")], image


def _binary(paths: Paths) -> Images:
  """Read train.bin and test.bin: superclass, class and 3072 bytes an image."""
  (path,) = paths
  with tarfile.open(path, "r:gz") as tar:
    for member in tar:
      file = tar.extractfile(member)
      if file and member.name.endswith(("/train.bin", "/test.bin")):
        content = np.frombuffer(file.read(), np.uint8)
        for row in content.reshape(-1, 2 + 3 * SIZE * SIZE):
          yield row[1], row[2:].reshape(3, SIZE, SIZE).transpose(1, 2, 0)
