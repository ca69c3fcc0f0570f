"""CIFAR-FS as a TFDS data set, prepared without TensorFlow."""

from collections.abc import Iterator
import pathlib
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import tfds_records
from episodic_dp.data.cifar_fs import archives
from episodic_dp.data.cifar_fs import source


class CifarFs32(tfds.core.GeneratorBasedBuilder):
  """60 000 RGB images of 100 classes in 20 superclasses, 32 x 32 pixels.

  The classes are divided into 64 for training, 16 for validation and 20 for
  test, as in CIFAR-FS.
  """

  VERSION = tfds.core.Version(source.VERSION)
  RELEASE_NOTES = {source.VERSION: "The raw bytes of CIFAR-100."}

  def __init__(self, *, found: files.Found | None = None, **kwargs: Any):
    """Takes local archives, or downloads the official one.

    Args:
      found: a kind of archive and the paths of its checked files, as in
        `source.ORIGINALS`; None downloads the binary archive, checked against
        checksums.tsv.
      **kwargs: those of `tfds.core.GeneratorBasedBuilder`.
    """
    self._found = found
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=self,
        description=self.__doc__,
        features=tfds.features.FeaturesDict({
            "image": tfds.features.Tensor(
                shape=(source.SIZE, source.SIZE, 3),
                dtype=np.uint8,
                encoding=tfds.features.Encoding.BYTES,
            ),
            "label": np.int32,
            "class": tfds.features.Text(),
            "superclass": tfds.features.Text(),
        }),
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        citation=(
            "Krizhevsky, Learning multiple layers of features from tiny images,"
            " 2009; Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with"
            " differentiable closed-form solvers, ICLR 2019"
        ),
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    kind, paths = self._found or (
        "binary",
        dl_manager.download(source.ORIGINALS.downloads()),
    )
    names = [c.name for c in source.classes()]
    images, labels = archives.read(kind, paths, names)
    return {
        part: self._generate_examples(images, labels, part)
        for part in dataset.PARTS
    }

  def _generate_examples(
      self, images: np.ndarray, labels: np.ndarray, part: str
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    table = source.classes()
    for i, label in enumerate(labels):
      if table[label].part == part:
        yield i, {
            "image": images[i],
            "label": label,
            "class": table[label].name,
            "superclass": table[label].superclass,
        }


def prepare(
    cache_dir: pathlib.Path, found: files.Found | None = None
) -> tuple[np.ndarray, np.ndarray]:
  """Prepares the records unless they are there, and reads all of them.

  Args:
    cache_dir: the records go to cache_dir/cifar_fs32/1.0.0.
    found: as for `CifarFs32`.

  Returns:
    images uint8[images, 32, 32, 3] and labels int32[images], in no particular
    order.

  Raises:
    ValueError: a download has the wrong checksum, or a file cannot be read.
  """
  builder = CifarFs32(
      found=found, data_dir=cache_dir, file_format="array_record"
  )
  images, labels = [], []
  for _, record in tfds_records.read(builder, dataset.PARTS):
    images.append(record["image"])
    labels.append(record["label"])
  return np.stack(images), np.asarray(labels, np.int32)
