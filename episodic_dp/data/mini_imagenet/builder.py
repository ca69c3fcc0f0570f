"""mini-ImageNet as a TFDS data set, prepared without TensorFlow.

The records hold the files as they are; arrays are decoded from them.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
import io
import pathlib
from typing import Any
import zipfile

import numpy as np
from PIL import Image
import tensorflow_datasets as tfds

from episodic_dp.data import dataset
from episodic_dp.data import tfds_records
from episodic_dp.data.mini_imagenet import source


class MiniImagenet84(tfds.core.GeneratorBasedBuilder):
  """60 000 RGB images of 100 classes of ImageNet, 84 x 84 pixels.

  The classes are divided into 64 for training, 16 for validation and 20 for
  test, as by Ravi and Larochelle.
  """

  VERSION = tfds.core.Version(source.VERSION)
  RELEASE_NOTES = {source.VERSION: "The files, not decoded."}
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name=copy, description=f"Images {about}.")
      for copy, about in source.COPIES.items()
  ]

  def __init__(
      self,
      *,
      paths: Sequence[pathlib.Path] | None = None,
      **kwargs: Any,
  ):
    """Takes local files; there is no download.

    Args:
      paths: zips or folders that together hold every image once; None for
        records that are prepared already.
      **kwargs: those of `tfds.core.GeneratorBasedBuilder`.
    """
    self._paths = paths
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=self,
        description=self.__doc__,
        features=tfds.features.FeaturesDict({
            "file": tfds.features.Tensor(shape=(), dtype=np.object_),
            "name": tfds.features.Text(),
            "class": tfds.features.Text(),
        }),
        citation=(
            "Vinyals et al., Matching networks for one shot learning, NeurIPS"
            " 2016; Ravi and Larochelle, Optimization as a model for few-shot"
            " learning, ICLR 2017"
        ),
    )

  def _split_generators(
      self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    del dl_manager
    if self._paths is None:
      raise ValueError(
          "mini-ImageNet has no download: load it once with"
          " data.load('mini_imagenet', data_dir=DIR)"
      )
    with _opened(self._paths) as readers:
      names = [n for c in source.classes() for n in c.images]
      absent = [name for name in names if name not in readers]
    if absent:
      raise ValueError(
          f"{' and '.join(map(str, self._paths))} lacks {len(absent)} of the"
          f" {len(names)} images of mini-ImageNet, such as {absent[0]}: use a"
          " whole copy, with files named as in the published lists"
      )
    return {part: self._generate_examples(part) for part in dataset.PARTS}

  def _generate_examples(self, part: str) -> Iterator[tuple[str, Any]]:
    assert self._paths is not None
    with _opened(self._paths) as readers:
      for owner in source.classes():
        for name in owner.images if owner.part == part else ():
          content = readers[name]()
          with _image(content, name):  # Refused before more is copied.
            yield name, {"file": content, "name": name, "class": owner.wnid}


@contextlib.contextmanager
def _opened(
    paths: Sequence[pathlib.Path],
) -> Iterator[dict[str, Callable[[], bytes]]]:
  """A reader for every file, by its name without folder and ending."""
  readers: dict[str, Callable[[], bytes]] = {}
  with contextlib.ExitStack() as stack:
    for path in paths:
      if path.is_dir():
        readers |= {f.stem: f.read_bytes for f in path.iterdir()}
      else:
        z = stack.enter_context(zipfile.ZipFile(path))
        for member in z.namelist():
          stem = pathlib.PurePosixPath(member).stem
          readers[stem] = functools.partial(z.read, member)
    yield readers


def prepare(
    cache_dir: pathlib.Path,
    copy: str,
    paths: Sequence[pathlib.Path] | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
  """Prepares the records unless they are there, and decodes all of them.

  Args:
    cache_dir: the records go to cache_dir/mini_imagenet84/COPY/1.0.0.
    copy: one of `source.COPIES`.
    paths: as for `MiniImagenet84`.

  Yields:
    The name of an image, without ending, and uint8[84, 84, 3]; in no particular
    order.

  Raises:
    ValueError: a file is missing, cannot be read or has another size.
  """
  builder = MiniImagenet84(
      paths=paths, config=copy, data_dir=cache_dir, file_format="array_record"
  )
  for _, record in tfds_records.read(builder, dataset.PARTS):
    name = record["name"].decode()
    try:
      with _image(record["file"], name) as image:
        array = np.asarray(image.convert("RGB"))
    except OSError as e:  # Cut short, which its head does not show.
      raise ValueError(
          f"{name} cannot be decoded ({e}): remove"
          f" {builder.data_dir} and prepare it from another copy"
      ) from e
    yield name, array


@contextlib.contextmanager
def _image(content: bytes, name: str) -> Iterator[Image.Image]:
  """Opens a picture without decoding it; ValueError for another size."""
  size = source.SIZE
  try:
    image = Image.open(io.BytesIO(content))
  except OSError as e:
    raise ValueError(f"{name} is not an image: use another copy") from e
  with image:
    if image.size != (size, size):
      raise ValueError(
          f"{name} has {image.size[0]} x {image.size[1]} pixels instead of"
          f" {size} x {size}: use a copy of mini-ImageNet at this size"
      )
    yield image
