"""Images of a data set as TFDS records, prepared without TensorFlow.

Importing this module imports tensorflow_datasets, which takes seconds.
"""

from collections.abc import Iterable, Iterator
import pathlib
import shutil
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from episodic_dp.data import originals
from episodic_dp.output import phases


class Images(tfds.core.GeneratorBasedBuilder):
  """Images of a data set in their order, as bytes."""

  VERSION = tfds.core.Version(originals.VERSION)
  content: Iterable[bytes]

  def _info(self) -> tfds.core.DatasetInfo:
    image = tfds.features.Tensor(shape=(), dtype=np.object_)
    return tfds.core.DatasetInfo(
        builder=self,
        features=tfds.features.FeaturesDict({"image": image}),
        disable_shuffling=True,
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    return {"images": self._generate_examples()}

  def _generate_examples(self) -> Iterator[tuple[int, dict[str, bytes]]]:
    for place, image in enumerate(self.content):
      yield place, {"image": image}


def read(folder: pathlib.Path, images: Iterable[bytes]) -> Iterator[bytes]:
  """Yield every record in order; prepare the records first if there are none.

  TFDS writes into a temporary folder and renames it at the end, so that an
  interrupted preparation is not accepted. The caller holds the lock of the
  folder. Remains of interrupted preparations are removed.

  Args:
    folder: folder of the data set in the cache.
    images: all images, read only if there are no records.
  """
  for left in folder.glob("images/incomplete.*"):
    shutil.rmtree(left)
  builder = Images(data_dir=folder, file_format="array_record")
  builder.content = images
  builder.download_and_prepare()
  source = builder.as_data_source(split="images")
  with phases.progress(len(source), "image") as progress:
    for record in source:
      yield record["image"]
      progress.update()
