"""The records of a TFDS builder: prepared once without TensorFlow, and read.

Importing this module imports tensorflow_datasets, which takes seconds.
"""

from collections.abc import Iterator, Sequence
import pathlib
import shutil
from typing import Any
import zipfile

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import download_manager
import tqdm


def read(
    builder: tfds.core.DatasetBuilder, splits: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Every record with the name of its split, in no particular order.

  They are prepared before unless they are there; TFDS shows the progress. It
  writes into a temporary folder and renames it at the end, so a killed
  preparation is not taken for a finished one; the caller holds the lock of this
  data set, and what killed ones left behind is removed.

  Raises:
    ValueError: a download has the wrong checksum, or an archive is unreadable.
  """
  _prepare(builder)
  total = sum(builder.info.splits[split].num_examples for split in splits)
  with tqdm.tqdm(
      total=total,
      desc=f"Reading {builder.name}",
      unit=" images",
      leave=False,
      mininterval=1.0,
  ) as bar:
    for split in splits:
      for record in builder.as_data_source(split=split):
        yield split, record
        bar.update()


def _prepare(builder: tfds.core.DatasetBuilder) -> None:
  for left in pathlib.Path(builder.data_dir).parent.glob("incomplete.*"):
    shutil.rmtree(left)
  try:
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(
            try_download_gcs=False, force_checksums_validation=True
        )
    )
  except download_manager.NonMatchingChecksumError as e:
    raise ValueError(
        "a downloaded file is not the published one, so try again or put the"
        f" files into data_dir: {' '.join(str(e).split())}"
    ) from e
  except zipfile.BadZipFile as e:
    raise ValueError(
        f"a zip of {builder.name} cannot be read ({e}): fetch it again"
    ) from e
