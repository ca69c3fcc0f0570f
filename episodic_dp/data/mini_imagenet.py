"""mini-ImageNet: 100 classes of ImageNet, 600 images of 84 x 84 each.

Sources: Vinyals et al., Matching networks for one shot learning, NeurIPS 2016;
the classes and images are those of Ravi and Larochelle, Optimization as a model
for few-shot learning, ICLR 2017. The records hold the unchanged files. One
array is decoded from them, and later starts map it from the disk.
"""

from collections.abc import Iterator
import dataclasses
import io
import pathlib
from typing import Literal, NamedTuple
import zipfile

import numpy as np

from episodic_dp import _validate
from episodic_dp import foreign
from episodic_dp import plain
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools
from episodic_dp.errors import DataError

EXAMPLES = 600  # Of each class.
SIZE = 84

_MOST_BYTES = 2**30  # Of all files in a zip.
_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
ORIGINALS = {  # By copy.
    # WebP files without folders: 32 + 32 training classes, 16 and 20.
    "webp": originals.read("mini_imagenet", "webp"),
    "jpeg": originals.read("mini_imagenet", "jpeg"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniImageNet(pools.Pool):
  """Options of mini-ImageNet (DP-MAML has 100 000 participants).

  Attributes:
    copy: files to read. "webp" reads `train_a.zip`, `train_b.zip`, `val.zip`
      and `test.zip`, whose images were re-encoded with loss; "jpeg" a folder
      `images` or a file `images.zip` of the usual 84 x 84 JPEGs, named as in
      the published lists (`n0153282900000005.jpg`). Results can differ slightly
      between copies.
    size: height and width of the images in pixels: 84, mapped from the disk, or
      a divisor of 84, for which squares of pixels are averaged (42 takes a
      quarter of the time and memory).
  """

  copy: Literal["webp", "jpeg"] = "webp"
  size: plain.Count = SIZE

  def __post_init__(self) -> None:
    divisors = [n for n in range(7, SIZE + 1) if SIZE % n == 0]
    _validate.one_of("size", self.size, divisors)


class ImageNetClass(NamedTuple):
  """A class, its part, and the names of its images without their suffix."""

  wnid: str
  part: str
  images: tuple[str, ...]


def classes() -> tuple[ImageNetClass, ...]:
  """Return the 100 classes in the order of the published lists."""
  found = []
  for wnid, part, chosen in originals.read_table(_TABLE):
    # The least significant bit represents image 1.
    bits = f"{int(chosen, 16):b}"[::-1]
    names = (f"{wnid}{i:08d}" for i, bit in enumerate(bits, 1) if bit == "1")
    found.append(ImageNetClass(wnid, part, tuple(names)))
  return tuple(found)


def load(options: MiniImageNet, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, size, size, 3].

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    DataError: a file has the wrong checksum, or an image is missing or has
      another size.
  """
  images, table = load_images(options.copy, where), classes()
  parts = {}
  for part in dataset.PARTS:
    labels = [i for i, c in enumerate(table) if c.part == part]
    # A slice, since indexing with a list would read the whole part.
    parts[part] = _averaged(images[labels[0] : labels[-1] + 1], options.size)
  return pools.make_splits(
      "mini_imagenet",
      parts,
      options,
      levels=("class", "image"),
      trees={},
  )


def _averaged(images: np.ndarray, size: int) -> np.ndarray:
  """Replace squares of pixels by their means, except at full size."""
  side = SIZE // size
  if side == 1:
    return images
  result = []
  for held in images:  # One class at a time, to save memory.
    squares = held.reshape(-1, size, side, size, side, 3)
    means = squares.mean((2, 4), dtype=np.float32)
    result.append(np.rint(means).astype(np.uint8))
  return np.stack(result)


def load_images(copy: str, where: originals.Where) -> np.ndarray:
  """Return all images, mapped from the cache or prepared from the files.

  Returns:
    read-only uint8[100, 600, 84, 84, 3], classes and images in the order of
    `classes`; only the rows in use are read from the disk.
  """
  return cache.published_images(
      ORIGINALS[copy],
      where,
      _read_files,
      (len(classes()), EXAMPLES, SIZE, SIZE, 3),
      decode=decode,
  )


def _read_files(paths: list[pathlib.Path]) -> Iterator[bytes]:
  contents: dict[str, bytes] = {}  # About 200 MB.
  for path in paths:
    contents |= _contents(path)
  names = [name for owner in classes() for name in owner.images]
  absent = [name for name in names if name not in contents]
  if absent:
    raise DataError(
        f"{len(absent)} of the {len(names)} images of mini-ImageNet are absent,"
        f" such as {absent[0]}"
    )
  for name in names:
    decode(contents[name], name)  # Refused before more is copied.
    yield contents[name]


def _contents(path: pathlib.Path) -> dict[str, bytes]:
  """Return name without suffix -> content of every file of a folder or zip."""
  if path.is_dir():
    return {file.stem: file.read_bytes() for file in path.iterdir()}
  with zipfile.ZipFile(path) as z:
    unpacked = sum(info.file_size for info in z.infolist())
    if unpacked > _MOST_BYTES:
      raise DataError(f"it unpacks to {unpacked} bytes, too many")
    return {pathlib.PurePath(n).stem: z.read(n) for n in z.namelist()}


def decode(content: bytes, name: str = "an image") -> np.ndarray:
  """Return a picture as uint8[84, 84, 3].

  Raises:
    DataError: it is damaged, not a picture, or of another size.
  """
  try:
    with foreign.picture(io.BytesIO(content)) as image:
      pixels = np.asarray(image.convert("RGB"))
  except (OSError, ValueError) as e:
    raise DataError(f"{name} cannot be decoded: {e}") from e
  if pixels.shape != (SIZE, SIZE, 3):
    raise DataError(f"{name} is not {SIZE} x {SIZE}: {pixels.shape}")
  return pixels
