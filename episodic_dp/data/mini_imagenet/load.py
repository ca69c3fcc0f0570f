"""Loading mini-ImageNet: from the cache, the records or the original files."""

import pathlib
from typing import Literal

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import options
from episodic_dp.data import pool
from episodic_dp.data import prepared
from episodic_dp.data.mini_imagenet import source


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    copy: Literal["webp", "jpeg"] = "webp",
    size: int = source.SIZE,
    seed: int = 0,
    participants: int | None = None,
    way: int = 5,
    per_class: int = 2,
) -> dataset.Splits:
  """The three splits, each an array of uint8[rows, size, size, 3].

  Args:
    data_dir: folder that holds the files of `copy`, or a folder `mini_imagenet`
      with them. Not needed once the data are prepared.
    cache_dir: where the prepared data are kept; None means the environment
      variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: cannot help here, and says so where the files are missing.
    copy: "webp" reads `train_a.zip`, `train_b.zip`, `val.zip` and `test.zip`,
      whose images were re-encoded with loss; "jpeg" a folder `images` or a file
      `images.zip` of the usual 84 x 84 JPEGs, named as in the published lists
      (`n0153282900000005.jpg`). Results can differ slightly between copies.
    size: of the images in pixels: 84, in which case the arrays are mapped from
      the disk, or a divisor, for which squares of pixels are averaged (42 takes
      a quarter of the time and memory).
    seed: public seed of the participants, 0 to 2^32 - 1.
    participants: None trains on the tree class -> image, whose units the
      published lists declare. A number trains on that many synthetic
      participants, drawn from the training classes by a public function of the
      seed (DP-MAML uses 100 000). They share records, so that only a
      participant can be given a guarantee.
    way: classes of each synthetic participant.
    per_class: images of each of these classes (shot + query).

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ValueError: a file has the wrong checksum, an image is missing or has
      another size, or an option is out of range.
  """
  options.check_seed(source.NAME, seed)
  if copy not in source.COPIES:
    raise ValueError(
        f"mini_imagenet option copy={copy!r} must be one of"
        f" {tuple(source.COPIES)}"
    )
  if not 1 <= size <= source.SIZE or source.SIZE % size:
    divisors = [n for n in range(7, 85) if source.SIZE % n == 0]
    raise ValueError(
        f"mini_imagenet option size={size} must divide {source.SIZE}: choose"
        f" one of {', '.join(map(str, divisors))}"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download, copy=copy
  )
  owners = None
  if participants is not None:
    owners = pool.Participants(participants, way, per_class, int(seed))
  table = source.classes()
  parts = {}
  for part in dataset.PARTS:
    labels = [i for i, c in enumerate(table) if c.part == part]
    parts[part] = pool.make(
        f"mini_imagenet/{part}",
        # A slice, since a list of numbers would read the whole part.
        _averaged(images[labels[0] : labels[-1] + 1], size),
        levels=("class", "image"),
        participants=owners if part == "train" else None,
        description=(
            f"{len(labels)} classes of mini-ImageNet, {source.EXAMPLES} images"
            f" each, {size} x {size} RGB, {source.COPIES[copy]},"
            f" public seed {seed}"
        ),
    )
  return dataset.Splits(**parts)


def load_arrays(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    copy: str = "webp",
) -> np.ndarray:
  """All images: mapped from the cache, prepared before where they are not.

  Returns:
    read-only uint8[100, 600, 84, 84, 3], classes and images in the order of
    `source.classes()`; only what is used is read from the disk.
  """
  folder = cache.root(cache_dir) / source.FOLDER / copy
  records = folder / source.VERSION
  cached = folder / f"images-{source.VERSION}.npy"

  def read() -> np.ndarray | None:
    rows, *shape = source.shape()
    return cache.map_array(cached, rows, tuple(shape))

  def make(found: files.Found | None) -> np.ndarray:
    _prepare(records, cached, copy, found)
    images = read()
    assert images is not None, f"{cached} was written a moment ago"
    return images

  return prepared.load(
      source.ORIGINALS[copy],
      records,
      data_dir=data_dir,
      download=download,
      read=read,
      make=make,
  )


def _averaged(images: np.ndarray, size: int) -> np.ndarray:
  """The images with means of squares for pixels; themselves at full size."""
  side = source.SIZE // size
  if side == 1:
    return images
  result = np.empty((*images.shape[:2], size, size, 3), np.uint8)
  for of_class, smaller in zip(images, result):  # One at a time, for memory.
    squares = of_class.reshape(-1, size, side, size, side, 3)
    smaller[:] = np.rint(squares.mean((2, 4), dtype=np.float32))
  return result


def _prepare(
    records: pathlib.Path,
    cached: pathlib.Path,
    copy: str,
    found: files.Found | None,
) -> None:
  """Copies the files into records, and decodes these into one array."""
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.mini_imagenet import builder

  places = {
      name: (c, i)
      for c, owner in enumerate(source.classes())
      for i, name in enumerate(owner.images)
  }
  paths = None if found is None else tuple(found[1].values())
  root = records.parent.parent.parent
  with cache.new_mapped_array(cached, source.shape()) as images:
    count = 0
    for name, image in builder.prepare(root, copy, paths):
      images[places[name]] = image
      count += 1
    if count != len(places):
      raise ValueError(
          f"the prepared mini-ImageNet in {records} has {count} images instead"
          f" of {len(places)}: remove this folder and prepare it again"
      )
