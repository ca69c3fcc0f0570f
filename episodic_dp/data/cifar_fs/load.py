"""Loading CIFAR-FS: from the cache, the records or the original files."""

import hashlib
import pathlib

import numpy as np

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import options
from episodic_dp.data import pool
from episodic_dp.data import prepared
from episodic_dp.data.cifar_fs import source


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    superclasses: bool = False,
    seed: int = 0,
    participants: int | None = None,
    way: int = 5,
    per_class: int = 2,
) -> dataset.Splits:
  """The three splits, each with its own array of uint8[rows, 32, 32, 3].

  Args:
    data_dir: folder that holds `train.zip`, `val.zip` and `test.zip` (one
      lossless WebP picture per class), or `cifar-100-binary.tar.gz`, or
      `cifar-100-python.tar.gz`, or a folder `cifar_fs` with them. Not needed
      once the data are prepared.
    cache_dir: where the prepared data are kept; None means the environment
      variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: fetch the official binary archive (169 MB) when data_dir does not
      have the data.
    superclasses: the training tree is superclass -> class -> image in place of
      class -> image. Its 20 superclasses hold 2 to 5 training classes.
      Validation and test stay class -> image, for their superclasses hold no
      more than three. The published table of classes declares the units of both
      trees, and 600 images of each the sizes.
    seed: public seed of the participants, 0 to 2^32 - 1.
    participants: None trains on the tree as it is. A number trains on that many
      synthetic participants, drawn from the training classes by a public
      function of the seed (DP-MAML uses 400 000). They share records, so that
      only a participant can be given a guarantee.
    way: classes of each synthetic participant.
    per_class: images of each of these classes (shot + query).

  Raises:
    FileNotFoundError: nothing is prepared and the files are not there.
    ValueError: a file has the wrong checksum, or an option is out of range.
  """
  options.check_seed(source.NAME, seed)
  if superclasses and participants is not None:
    raise ValueError(
        f"cifar_fs options superclasses=True and participants={participants}"
        " are two trees over one set of images: choose one"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download
  )
  owners = None
  if participants is not None:
    owners = pool.Participants(participants, way, per_class, int(seed))
  table = source.classes()
  parts = {}
  for part in dataset.PARTS:
    train = part == "train"
    labels = [i for i, c in enumerate(table) if c.part == part]
    tree = None
    if train and superclasses:
      tree = _superclass_tree([table[i] for i in labels])
    parts[part] = pool.make(
        f"cifar_fs/{part}",
        images[labels],
        levels=("class", "image"),
        hierarchy=tree,
        participants=owners if train else None,
        description=(
            f"{len(labels)} classes of CIFAR-FS, {source.EXAMPLES} images"
            f" each, {source.SIZE} x {source.SIZE} RGB, public seed {seed}"
        ),
    )
  return dataset.Splits(**parts)


def _superclass_tree(chosen: list[source.Class]) -> plan.Hierarchy:
  """superclass -> class -> image, over images in the order of the classes.

  The published table of classes declares the units.
  """
  superclasses = [c.superclass for c in chosen]
  names = [c.name for c in chosen]
  return plan.Hierarchy.from_labels(
      {
          "superclass": np.repeat(superclasses, source.EXAMPLES),
          "class": np.repeat(names, source.EXAMPLES),
      },
      leaf="image",
      units=list(zip(superclasses, names)),
  )


def load_arrays(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
) -> np.ndarray:
  """All images: from the cache, or prepared from the files.

  Returns:
    uint8[100, 600, 32, 32, 3]: classes in the order of CIFAR-100's labels, and
    inside a class by the SHA-256 of an image's 3072 bytes (height, width, RGB).
  """
  (images,) = prepared.load_arrays(
      source.ORIGINALS,
      cache.root(cache_dir) / source.FOLDER,
      source.VERSION,
      ("images",),
      data_dir=data_dir,
      download=download,
      prepare=_prepare,
      expected=_as_expected,
  )
  return images


def _as_expected(images: np.ndarray) -> bool:
  return images.dtype == np.uint8 and images.shape == source.shape()


def _prepare(
    records: pathlib.Path, found: files.Found | None
) -> tuple[np.ndarray]:
  """Reads the files through TFDS and puts the records into their order."""
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.cifar_fs import builder

  images, labels = builder.prepare(records.parent.parent, found)
  counts = np.bincount(labels, minlength=len(source.classes()))
  if (counts != source.EXAMPLES).any():
    at = int(np.argmax(counts != source.EXAMPLES))
    raise ValueError(
        f"the prepared CIFAR-FS in {records} has {counts[at]} images of label"
        f" {at} instead of {source.EXAMPLES}: remove this folder and prepare it"
        " again"
    )
  digests = [hashlib.sha256(image).digest() for image in images]
  order = sorted(range(len(digests)), key=lambda i: (labels[i], digests[i]))
  images = images[order].reshape(source.shape())
  digest = hashlib.sha256(images.data).hexdigest()
  if digest != source.ARRAY_SHA256:
    raise ValueError(
        f"the prepared CIFAR-FS in {records} has sha256 {digest} instead of"
        f" {source.ARRAY_SHA256}: remove this folder and prepare it from"
        " another copy"
    )
  return (images,)
