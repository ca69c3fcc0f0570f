"""Images of a data set as TFDS records, prepared without TensorFlow.

Importing this module imports tensorflow_datasets, which takes seconds.
"""

from collections.abc import Callable, Iterator
import pathlib
import shutil
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from episodic_dp.data import originals
from episodic_dp.output import phases


class Images(tfds.core.GeneratorBasedBuilder):
  """Images of a data set, each with a key."""

  VERSION = tfds.core.Version(originals.VERSION)

  def __init__(
      self,
      *,
      name: str,
      generate: Callable[[], originals.Records],
      **kwargs: Any,
  ):
    self.name = name
    self._generate = generate
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    features = {
        "key": tfds.features.Text(),
        "image": tfds.features.Tensor(shape=(), dtype=np.object_),
    }
    return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features)
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    del dl_manager
    return {"images": self._generate_examples()}

  def _generate_examples(self) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, image in self._generate():
      yield key, {"key": key, "image": image}


def read(
    folder: pathlib.Path, generate: Callable[[], originals.Records]
) -> originals.Records:
  """Yield every record in no order, prepared before unless they are there.

  TFDS writes into a temporary folder and renames it at the end, so that a
  killed preparation is not accepted. The caller holds the lock of the folder;
  remains of killed preparations are removed.

  Args:
    folder: folder of the data set in the cache.
    generate: keys and bytes of the images.
  """
  for left in folder.glob("incomplete.*"):
    shutil.rmtree(left)
  builder = Images(
      name=folder.name,
      generate=generate,
      data_dir=folder.parent,
      file_format="array_record",
  )
  builder.download_and_prepare()
  total = builder.info.splits["images"].num_examples
  with phases.progress(total, "image") as progress:
    for record in builder.as_data_source(split="images"):
      yield record["key"].decode(), record["image"]
      progress.update()
