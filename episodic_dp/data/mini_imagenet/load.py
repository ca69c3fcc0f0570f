"""mini-ImageNet: 100 classes of ImageNet, 600 images of 84 x 84 each.

Source: Vinyals et al., Matching networks for one shot learning, NeurIPS 2016;
classes and images are those of Ravi and Larochelle, Optimization as a model for
few-shot learning, ICLR 2017. The images are a subset of ILSVRC 2012, for
research and education only, and are not published as a download: their files
are needed once. They are kept as TFDS records and as one array of 1.27 GB on
disk, which is mapped into memory and read where it is used.
"""

import os
import pathlib
from typing import Literal

import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import pool
from episodic_dp.data.mini_imagenet import source

_ORIGINALS = ("images", "images.zip")


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
  pool.check_seed(source.NAME, seed)
  if copy not in source.COPIES:
    raise ValueError(
        f"mini_imagenet option copy={copy!r} must be one of"
        f" {tuple(source.COPIES)}"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download, copy=copy
  )
  table = source.classes()
  parts = {}
  for part in source.PARTS:
    labels = [i for i, c in enumerate(table) if c.part == part]
    parts[part] = pool.make(
        f"mini_imagenet/{part}",
        # A slice, since a list of numbers would read the whole part.
        images[labels[0] : labels[-1] + 1],
        levels=source.LEVELS,
        participants=pool.Participants(participants, way, per_class, int(seed))
        if part == "train" and participants is not None
        else None,
        description=(
            f"{len(labels)} classes of mini-ImageNet, {source.EXAMPLES} images"
            f" each, {source.SIZE} x {source.SIZE} RGB, {source.COPIES[copy]},"
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
  root = files.cache_root(cache_dir) / "mini_imagenet84" / copy
  cached = root / f"images-{source.VERSION}.npy"

  def make() -> np.ndarray:
    _prepare(root, cached, data_dir, download, copy)
    images = _read(cached)
    assert images is not None, f"{cached} was written a moment ago"
    return images

  return files.read_or_make(root, lambda: _read(cached), make)


def _shape() -> tuple[int, ...]:
  return (len(source.classes()), source.EXAMPLES, source.SIZE, source.SIZE, 3)


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
  found = _find(data_dir, copy)
  prepared = root / source.VERSION
  if found is None and not (prepared / "dataset_info.json").is_file():
    raise FileNotFoundError(_missing(data_dir, download, copy))
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.mini_imagenet import builder

  places = {
      name: (c, i)
      for c, owner in enumerate(source.classes())
      for i, name in enumerate(owner.images)
  }
  with files.new_file(cached) as temporary:
    images = np.lib.format.open_memmap(
        temporary, mode="w+", dtype=np.uint8, shape=_shape()
    )
    with temporary.open("r+b") as f:  # A full disk is an error, not a crash.
      os.posix_fallocate(f.fileno(), 0, temporary.stat().st_size)
    count = 0
    for name, image in builder.prepare(
        root.parent.parent, copy, found
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
    found = files.find(source.NAME, source.ARCHIVES, data_dir)
    return None if found is None else tuple(found.values())
  if data_dir is not None:
    root = pathlib.Path(data_dir).expanduser()
    for folder in (root / source.NAME, root):
      for name in _ORIGINALS:
        if (folder / name).exists():
          return (folder / name,)
  return None


def _missing(data_dir, download, copy) -> str:
  """One sentence: what is missing, and where to put it."""
  if copy == "webp":
    text = files.missing(source.NAME, [source.ARCHIVES], data_dir)
  else:
    where = "no data_dir was given"
    if data_dir is not None:
      own = f"{data_dir}/{source.NAME}"
      where = f"neither {data_dir} nor {own} holds images"
    text = (
        f"'{source.NAME}' is not prepared yet and {where}: put a folder"
        " images, or images.zip, with the 60 000 JPEGs of"
        f" {source.SIZE} x {source.SIZE} pixels (no checksum is known) into DIR"
        f" or DIR/{source.NAME} and pass data_dir=DIR"
    )
  if download:
    text = f"download=True cannot fetch mini-ImageNet, and {text}"
  return text
