"""Omniglot at 28 x 28 pixels as a TFDS data set, prepared without TensorFlow.

The builder of TFDS itself decodes images with TensorFlow. This one decodes the
original 105 x 105 one-bit PNGs with Pillow, always as {0, 255} (other decoders
give {0, 1} for one-bit files), and shrinks them by nearest neighbour once, at
preparation, as the code of MAML++ does when it loads them.
"""

from collections.abc import Iterator, Mapping
import io
import pathlib
import re
from typing import Any
import zipfile

import numpy as np
from PIL import Image
import tensorflow_datasets as tfds

from episodic_dp.data import files
from episodic_dp.data import tfds_records
from episodic_dp.data.omniglot import source

_MEMBER = re.compile(
    r"images_(?:background|evaluation)/(?P<character>[^/]+/character\d+)/"
    r"\d+_(?P<drawer>\d+)\.png"
)


class Omniglot28(tfds.core.GeneratorBasedBuilder):
  """1623 characters of 50 alphabets, 20 drawings each; paper 255, ink 0."""

  VERSION = tfds.core.Version(source.VERSION)
  RELEASE_NOTES = {
      source.VERSION: "28 x 28 by nearest neighbour, uint8 {0, 255}."
  }

  def __init__(
      self,
      *,
      archives: Mapping[str, files.Path] | None = None,
      **kwargs: Any,
  ):
    """Takes local archives, or downloads the official ones.

    Args:
      archives: paths of checked local zips by part ("background" and
        "evaluation"); None downloads them, checked against checksums.tsv.
      **kwargs: those of `tfds.core.GeneratorBasedBuilder`.
    """
    self._archives = archives
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=self,
        description=__doc__,
        features=tfds.features.FeaturesDict({
            "image": tfds.features.Tensor(
                shape=(source.SIZE, source.SIZE, 1), dtype=np.uint8
            ),
            "character": tfds.features.Text(),
            "drawer": np.int32,
        }),
        homepage="https://github.com/brendenlake/omniglot",
        citation=(
            "Lake, Salakhutdinov and Tenenbaum, Human-level concept learning"
            " through probabilistic program induction, Science 350, 2015"
        ),
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    archives = self._archives or dl_manager.download(
        source.ORIGINALS.downloads()
    )
    return {
        part: self._generate_examples(archives[part]) for part in source.SETS
    }

  def _generate_examples(
      self, archive: files.Path
  ) -> Iterator[tuple[str, dict[str, Any]]]:
    with zipfile.ZipFile(archive) as z:
      for name in z.namelist():
        found = _MEMBER.fullmatch(name)
        if not found:  # A folder, or a file that is not a drawing.
          continue
        yield name, {
            "image": decode(z.read(name), name),
            "character": found["character"],
            "drawer": int(found["drawer"]),
        }


def prepare(
    cache_dir: pathlib.Path,
    archives: Mapping[str, files.Path] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Prepares the records unless they are there, and reads all of them.

  Args:
    cache_dir: the records go to cache_dir/omniglot28/1.0.0.
    archives: as for `Omniglot28`.

  Returns:
    images uint8[drawings, 28, 28, 1], names [drawings] of the characters,
    drawers int32[drawings] and whether each drawing is of the background set,
    bool[drawings]; in no particular order.

  Raises:
    ValueError: a download has the wrong checksum, a zip cannot be read, or a
      drawing has other values.
  """
  builder = Omniglot28(
      archives=archives, data_dir=cache_dir, file_format="array_record"
  )
  images, names, drawers, background = [], [], [], []
  for part, record in tfds_records.read(builder, source.SETS):
    images.append(record["image"])
    names.append(record["character"])
    drawers.append(record["drawer"])
    background.append(part == "background")
  return (
      np.stack(images),
      np.asarray([n.decode() for n in names]),
      np.asarray(drawers, np.int32),
      np.asarray(background),
  )


def decode(png: bytes, name: str = "image") -> np.ndarray:
  """One drawing, uint8[28, 28, 1] of 0 (ink) and 255 (paper).

  Raises:
    ValueError: the picture has other grey values.
  """
  with Image.open(io.BytesIO(png)) as image:
    grey = image.convert("L").resize(
        (source.SIZE, source.SIZE), Image.Resampling.NEAREST
    )
  array = np.asarray(grey, np.uint8)[..., None]
  if not ((array == 0) | (array == 255)).all():
    raise ValueError(
        f"{name} has grey values {np.unique(array).tolist()}: an Omniglot"
        " drawing has only 0 and 255; use the original one-bit PNGs"
    )
  return array
