"""mini-ImageNet: 100 classes of ImageNet, 600 images of 84 x 84 each.

Source: Vinyals et al., Matching networks for one shot learning, NeurIPS 2016;
classes and images are those of Ravi and Larochelle, Optimization as a model for
few-shot learning, ICLR 2017. The images are a subset of ILSVRC 2012, for
research and education only, and are not published as a download: their files
are needed once. They are kept as TFDS records and as one array of 1.27 GB on
disk, which is mapped into memory and read where it is used.
"""

import dataclasses
import os
import pathlib
from typing import Literal

import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import pool

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

_TABLE = pathlib.Path(__file__).with_name("mini_imagenet.tsv")
_ORIGINALS = ("images", "images.zip")


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


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    copy: Literal["webp", "jpeg"] = "webp",
    seed: int = 0,
    participants: int | None = None,
    way: int = 5,
    per_class: int = 2,
) -> dataset.Splits:
  """The three splits, each a mapped array of uint8[rows, 84, 84, 3].

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
    seed: public seed of the participants, 0 to 2^32 - 1.
    participants: None trains on the tree class -> image. A number trains on
      that many synthetic participants, drawn from the training classes by a
      public function of the seed (DP-MAML uses 100 000). They share records, so
      that only a participant can be given a guarantee.
    way: classes of each synthetic participant.
    per_class: images of each of these classes (shot + query).

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ValueError: a file has the wrong checksum, an image is missing or has
      another size, or an option is out of range.
  """
  pool.check_seed(NAME, seed)
  if copy not in COPIES:
    raise ValueError(
        f"mini_imagenet option copy={copy!r} must be one of {tuple(COPIES)}"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download, copy=copy
  )
  table = classes()
  parts = {}
  for part in PARTS:
    labels = [i for i, c in enumerate(table) if c.part == part]
    parts[part] = pool.make(
        f"mini_imagenet/{part}",
        # A slice, since a list of numbers would read the whole part.
        images[labels[0] : labels[-1] + 1],
        levels=LEVELS,
        participants=pool.Participants(participants, way, per_class, int(seed))
        if part == "train" and participants is not None
        else None,
        description=(
            f"{len(labels)} classes of mini-ImageNet, {EXAMPLES} images each,"
            f" {SIZE} x {SIZE} RGB, {COPIES[copy]}, public seed {seed}"
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
    `classes()`; only what is used is read from the disk.
  """
  root = files.cache_root(cache_dir) / "mini_imagenet84" / copy
  cached = root / f"images-{VERSION}.npy"

  def make() -> np.ndarray:
    _prepare(root, cached, data_dir, download, copy)
    images = _read(cached)
    assert images is not None, f"{cached} was written a moment ago"
    return images

  return files.read_or_make(root, lambda: _read(cached), make)


def _shape() -> tuple[int, ...]:
  return (len(classes()), EXAMPLES, SIZE, SIZE, 3)


def _read(path: pathlib.Path) -> np.ndarray | None:
  """The cached array, or None when it is absent, cut short or another."""
  try:
    images = np.load(path, mmap_mode="r", allow_pickle=False)
  except (OSError, ValueError, EOFError):
    return None
  same = images.dtype == np.uint8 and images.shape == _shape()
  return images if same else None


def _prepare(root, cached, data_dir, download, copy) -> None:
  """Copies the files into records, and decodes these into one array."""
  source = _find(data_dir, copy)
  prepared = root / VERSION
  if source is None and not (prepared / "dataset_info.json").is_file():
    raise FileNotFoundError(_missing(data_dir, download, copy))
  # Late: this imports TFDS, which takes seconds.
  from episodic_dp.data.builders import mini_imagenet84

  places = {
      name: (c, i)
      for c, owner in enumerate(classes())
      for i, name in enumerate(owner.images)
  }
  with files.new_file(cached) as temporary:
    images = np.lib.format.open_memmap(
        temporary, mode="w+", dtype=np.uint8, shape=_shape()
    )
    with temporary.open("r+b") as f:  # A full disk is an error, not a crash.
      os.posix_fallocate(f.fileno(), 0, temporary.stat().st_size)
    count = 0
    for name, image in mini_imagenet84.prepare(
        root.parent.parent, copy, source
    ):
      images[places[name]] = image
      count += 1
    if count != len(places):
      raise ValueError(
          f"the prepared mini-ImageNet in {prepared} has {count} images instead"
          f" of {len(places)}: remove this folder and prepare it again"
      )
    images.flush()


def _find(data_dir, copy) -> tuple[pathlib.Path, ...] | None:
  """The archives, or the folder, that hold the images."""
  if copy == "webp":
    found = files.find(NAME, ARCHIVES, data_dir)
    return None if found is None else tuple(found.values())
  if data_dir is not None:
    root = pathlib.Path(data_dir).expanduser()
    for folder in (root / NAME, root):
      for name in _ORIGINALS:
        if (folder / name).exists():
          return (folder / name,)
  return None


def _missing(data_dir, download, copy) -> str:
  """One sentence: what is missing, and where to put it."""
  if copy == "webp":
    text = files.missing(NAME, [ARCHIVES], data_dir)
  else:
    where = "no data_dir was given"
    if data_dir is not None:
      where = f"neither {data_dir} nor {data_dir}/{NAME} holds images"
    text = (
        f"'{NAME}' is not prepared yet and {where}: put a folder images, or"
        f" images.zip, with the 60 000 JPEGs of {SIZE} x {SIZE} pixels (no"
        f" checksum is known) into DIR or DIR/{NAME} and pass data_dir=DIR"
    )
  if download:
    text = f"download=True cannot fetch mini-ImageNet, and {text}"
  return text
