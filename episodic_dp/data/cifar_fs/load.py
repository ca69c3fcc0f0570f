"""CIFAR-FS: the 100 classes of CIFAR-100, 600 images of 32 x 32 each.

Sources: Krizhevsky, Learning multiple layers of features from tiny images,
2009; the division into 64 / 16 / 20 classes is that of Bertinetto et al.,
Meta-learning with differentiable closed-form solvers, ICLR 2019. The images are
read once, through TFDS without TensorFlow, and cached; later starts read one
array. Every copy gives the same array: inside a class the images stand in the
order of the SHA-256 of their raw bytes, and the checksum of the whole is known.
CIFAR-100 holds 26 images twice, 15 of them in two parts of CIFAR-FS; as is the
custom, nothing is removed.
"""

import hashlib
import pathlib

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import pool
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
      more than three.
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
  pool.check_seed(source.NAME, seed)
  if superclasses and participants is not None:
    raise ValueError(
        f"cifar_fs options superclasses=True and participants={participants}"
        " are two trees over one set of images: choose one"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download
  )
  table = source.classes()
  parts = {}
  for part in source.PARTS:
    train = part == "train"
    labels = [i for i, c in enumerate(table) if c.part == part]
    parts[part] = pool.make(
        f"cifar_fs/{part}",
        images[labels],
        levels=source.LEVELS,
        hierarchy=_tree([table[i] for i in labels])
        if train and superclasses
        else None,
        participants=pool.Participants(participants, way, per_class, int(seed))
        if train and participants is not None
        else None,
        description=(
            f"{len(labels)} classes of CIFAR-FS, {source.EXAMPLES} images"
            f" each, {source.SIZE} x {source.SIZE} RGB, public seed {seed}"
        ),
    )
  return dataset.Splits(**parts)


def _tree(chosen: list[source.Class]) -> plan.Hierarchy:
  """superclass -> class -> image, over images in the order of the classes."""
  superclasses = [c.superclass for c in chosen]
  names = [c.name for c in chosen]
  return plan.Hierarchy.from_labels(
      {
          "superclass": np.repeat(superclasses, source.EXAMPLES),
          "class": np.repeat(names, source.EXAMPLES),
      },
      leaf="image",
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
  root = files.cache_root(cache_dir) / "cifar_fs32"
  cached = root / f"arrays-{source.VERSION}.npz"

  def make() -> np.ndarray:
    images = _prepare(root, data_dir, download)
    files.save_arrays(cached, images=images)
    return images

  return files.read_or_make(root, lambda: _read(cached), make)


def _read(path: pathlib.Path) -> np.ndarray | None:
  """The cached array, or None when it is absent, damaged or another."""
  arrays = files.read_arrays(path, ("images",))
  if arrays is None:
    return None
  (images,) = arrays
  expected = (
      len(source.classes()), source.EXAMPLES, source.SIZE, source.SIZE, 3
  )
  same = images.dtype == np.uint8 and images.shape == expected
  return images if same else None


def _prepare(root, data_dir, download) -> np.ndarray:
  """Reads the files through TFDS and puts the records into their order."""
  found = files.find_first(source.NAME, source.SOURCES, data_dir)
  prepared = root / source.VERSION
  if found is None and not (prepared / "dataset_info.json").is_file():
    # Said before TFDS is asked, which would retry for minutes when offline.
    if not download:
      raise FileNotFoundError(
          files.missing(
              source.NAME, list(source.SOURCES.values()), data_dir
          )
      )
    files.check_online(source.NAME, source.SOURCES["binary"])
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.cifar_fs import builder

  images, labels = builder.prepare(root.parent, found)
  counts = np.bincount(labels, minlength=len(source.classes()))
  if (counts != source.EXAMPLES).any():
    at = int(np.argmax(counts != source.EXAMPLES))
    raise ValueError(
        f"the prepared CIFAR-FS in {prepared} has {counts[at]} images of label"
        f" {at} instead of {source.EXAMPLES}: remove this folder and prepare it"
        " again"
    )
  digests = [hashlib.sha256(image).digest() for image in images]
  order = sorted(range(len(digests)), key=lambda i: (labels[i], digests[i]))
  images = images[order].reshape(
      -1, source.EXAMPLES, source.SIZE, source.SIZE, 3
  )
  digest = hashlib.sha256(images.data).hexdigest()
  if digest != source.ARRAY_SHA256:
    raise ValueError(
        f"the prepared CIFAR-FS in {prepared} has sha256 {digest} instead of"
        f" {source.ARRAY_SHA256}: remove this folder and prepare it from"
        " another copy"
    )
  return images
