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

import dataclasses
import hashlib
import pathlib

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import pool

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

_TABLE = pathlib.Path(__file__).with_name("cifar_fs.tsv")
_URL = "https://www.cs.toronto.edu/~kriz/"
# Each is enough: see `cifar_archives`. Zips of one lossless WebP picture per
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
  pool.check_seed(NAME, seed)
  if superclasses and participants is not None:
    raise ValueError(
        f"cifar_fs options superclasses=True and participants={participants}"
        " are two trees over one set of images: choose one"
    )
  images = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download
  )
  table = classes()
  parts = {}
  for part in PARTS:
    train = part == "train"
    labels = [i for i, c in enumerate(table) if c.part == part]
    parts[part] = pool.make(
        f"cifar_fs/{part}",
        images[labels],
        levels=LEVELS,
        hierarchy=_tree([table[i] for i in labels])
        if train and superclasses
        else None,
        participants=pool.Participants(participants, way, per_class, int(seed))
        if train and participants is not None
        else None,
        description=(
            f"{len(labels)} classes of CIFAR-FS, {EXAMPLES} images each,"
            f" {SIZE} x {SIZE} RGB, public seed {seed}"
        ),
    )
  return dataset.Splits(**parts)


def _tree(chosen: list[Class]) -> plan.Hierarchy:
  """superclass -> class -> image, over images in the order of the classes."""
  return plan.Hierarchy.from_labels(
      {
          "superclass": np.repeat([c.superclass for c in chosen], EXAMPLES),
          "class": np.repeat([c.name for c in chosen], EXAMPLES),
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
  cached = root / f"arrays-{VERSION}.npz"

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
  expected = (len(classes()), EXAMPLES, SIZE, SIZE, 3)
  same = images.dtype == np.uint8 and images.shape == expected
  return images if same else None


def _prepare(root, data_dir, download) -> np.ndarray:
  """Reads the files through TFDS and puts the records into their order."""
  source = files.find_first(NAME, SOURCES, data_dir)
  prepared = root / VERSION
  if source is None and not (prepared / "dataset_info.json").is_file():
    # Said before TFDS is asked, which would retry for minutes when offline.
    if not download:
      raise FileNotFoundError(
          files.missing(NAME, list(SOURCES.values()), data_dir)
      )
    files.check_online(NAME, SOURCES["binary"])
  # Late: this imports TFDS, which takes seconds.
  from episodic_dp.data.builders import cifar_fs32

  images, labels = cifar_fs32.prepare(root.parent, source)
  counts = np.bincount(labels, minlength=len(classes()))
  if (counts != EXAMPLES).any():
    at = int(np.argmax(counts != EXAMPLES))
    raise ValueError(
        f"the prepared CIFAR-FS in {prepared} has {counts[at]} images of label"
        f" {at} instead of {EXAMPLES}: remove this folder and prepare it again"
    )
  digests = [hashlib.sha256(image).digest() for image in images]
  order = sorted(range(len(digests)), key=lambda i: (labels[i], digests[i]))
  images = images[order].reshape(-1, EXAMPLES, SIZE, SIZE, 3)
  digest = hashlib.sha256(images.data).hexdigest()
  if digest != ARRAY_SHA256:
    raise ValueError(
        f"the prepared CIFAR-FS in {prepared} has sha256 {digest} instead of"
        f" {ARRAY_SHA256}: remove this folder and prepare it from another copy"
    )
  return images
