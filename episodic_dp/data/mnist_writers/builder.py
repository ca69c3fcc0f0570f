"""MNIST with writer numbers as a TFDS data set, prepared without TensorFlow.

The builders of TFDS know MNIST without its writers. This one joins the images
to QMNIST's labels, whose rows follow them in order, and keeps every byte.
"""

from collections.abc import Iterator, Mapping
import gzip
import math
import pathlib
from typing import Any
import zlib

import numpy as np
import tensorflow_datasets as tfds

from episodic_dp.data import files
from episodic_dp.data import tfds_records
from episodic_dp.data.mnist_writers import source

# Of the header of an IDX file: what its numbers are.
_TYPES = {8: ">u1", 12: ">i4"}
# Columns of QMNIST's labels: the others say where in NIST an image is from.
_DIGIT, _WRITER = 0, 2


class MnistWriters28(tfds.core.GeneratorBasedBuilder):
  """70 000 digits by 836 writers; paper 0, ink 255."""

  VERSION = tfds.core.Version(source.VERSION)
  RELEASE_NOTES = {source.VERSION: "The bytes of MNIST, QMNIST's writers."}

  def __init__(
      self, *, paths: Mapping[str, files.Path] | None = None, **kwargs: Any
  ):
    """Takes local files, or downloads the official ones.

    Args:
      paths: of checked local files by part, as in `source.ORIGINALS`; None
        downloads them, checked against checksums.tsv.
      **kwargs: those of `tfds.core.GeneratorBasedBuilder`.
    """
    self._paths = paths
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=self,
        description=self.__doc__,
        features=tfds.features.FeaturesDict({
            "image": tfds.features.Tensor(
                shape=(source.SIZE, source.SIZE, 1),
                dtype=np.uint8,
                encoding=tfds.features.Encoding.BYTES,
            ),
            "writer": np.int32,
            "digit": np.int32,
            "row": np.int32,  # Of the file.
        }),
        homepage="https://github.com/facebookresearch/qmnist",
        citation=(
            "LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied"
            " to document recognition, Proc. IEEE 86, 1998; Yadav and Bottou,"
            " Cold Case: The Lost MNIST Digits, NeurIPS 2019"
        ),
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    paths = self._paths or dl_manager.download(source.ORIGINALS.downloads())
    return {
        file: self._generate_examples(
            paths[f"{file}_images"], paths[f"{file}_labels"], count
        )
        for file, count in source.IMAGES.items()
    }

  def _generate_examples(
      self, images: files.Path, labels: files.Path, count: int
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    pixels = read_idx(images, (source.SIZE, source.SIZE))[..., None]
    # QMNIST has 50 000 more test labels than MNIST has images, at the end.
    rows = read_idx(labels, (8,))[:count]
    if len(pixels) != count or len(rows) != count:
      raise ValueError(
          f"{images} has {len(pixels)} images and {labels} {len(rows)} rows of"
          f" labels, and {count} belong there: fetch both files again"
      )
    for i, (image, row) in enumerate(zip(pixels, rows)):
      yield i, {
          "image": image,
          "writer": row[_WRITER],
          "digit": row[_DIGIT],
          "row": i,
      }


def prepare(
    cache_dir: pathlib.Path, paths: Mapping[str, files.Path] | None = None
) -> tuple[np.ndarray, ...]:
  """Prepares the records unless they are there, and reads all of them.

  Args:
    cache_dir: the records go to cache_dir/mnist_writers28/1.0.0.
    paths: as for `MnistWriters28`.

  Returns:
    images uint8[images, 28, 28, 1]; writers, digits and rows of their file,
    int32[images]; in no particular order.

  Raises:
    ValueError: a download has the wrong checksum, or a file cannot be read.
  """
  builder = MnistWriters28(
      paths=paths, data_dir=cache_dir, file_format="array_record"
  )
  found: dict[str, list[Any]] = {
      name: [] for name in ("image", "writer", "digit", "row")
  }
  for _, record in tfds_records.read(builder, tuple(source.IMAGES)):
    for name, values in found.items():
      values.append(record[name])
  images, *numbers = found.values()
  return np.stack(images), *(np.asarray(n, np.int32) for n in numbers)


def read_idx(path: files.Path, shape: tuple[int, ...]) -> np.ndarray:
  """The array [rows, *shape] of a gzipped IDX file.

  Raises:
    ValueError: it is no such file, or an array of another shape.
  """
  try:
    with gzip.open(path) as f:
      data = f.read()
  except (OSError, EOFError, zlib.error) as e:
    raise ValueError(f"{path} is no whole gzip file: fetch it again") from e
  kind = _TYPES.get(data[2]) if data[:2] == b"\0\0" and len(data) > 4 else None
  axes = data[3] if kind else 0
  start = 4 + 4 * axes
  if kind and len(data) >= start:
    found = tuple(int(n) for n in np.frombuffer(data, ">i4", axes, 4))
    whole = math.prod(found) * np.dtype(kind).itemsize == len(data) - start
    if whole and found[1:] == shape:
      return np.frombuffer(data, kind, offset=start).reshape(found)
  raise ValueError(
      f"{path} is no IDX file of an array [rows, {', '.join(map(str, shape))}]:"
      " fetch it again"
  )
