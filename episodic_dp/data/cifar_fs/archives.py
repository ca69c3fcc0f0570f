"""The files that CIFAR-100 comes in, read into arrays.

Three kinds hold the same 60 000 images: the official archive of raw bytes, the
official archive of pickles, and zips with one picture per class that were made
from them without loss. A pickle can run any code when it is loaded; ours are
read by an unpickler that knows arrays and plain values only.
"""

from collections.abc import Mapping, Sequence
import io
import pickle
import tarfile
from typing import Any
import zipfile

import numpy as np
from PIL import Image

from episodic_dp.data import files
from episodic_dp.data.cifar_fs import source

GRID = (24, 25)  # Rows and columns of images in the picture of a class.

Paths = Mapping[str, files.Path]
Labelled = tuple[np.ndarray, np.ndarray]

_SIZE = source.SIZE
# Old pickles name this function by a module that NumPy has moved since.
_ARRAY = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def read(
    kind: str, archives: Paths, names: Sequence[str]
) -> Labelled:
  """All images of one kind of archive.

  Args:
    kind: "sheets", "binary" or "python".
    archives: the paths of its files.
    names: of the classes, in the order of the labels.

  Returns:
    images uint8[images, 32, 32, 3] and labels int64[images], in the order of
    the files.

  Raises:
    ValueError: a file is not of this kind.
  """
  readers = {"sheets": _sheets, "binary": _binary, "python": _python}
  images, labels = readers[kind](archives, names)
  if labels.size and not 0 <= labels.min() <= labels.max() < len(names):
    raise ValueError(
        f"an archive of CIFAR-100 has the label {labels.max()}, and there are"
        f" {len(names)} classes: use the original archive"
    )
  return images, labels


def _sheets(archives: Paths, names: Sequence[str]) -> Labelled:
  """<class>.webp: a grid of the images of a class, row by row."""
  rows, columns = GRID
  images, labels = [], []
  for path in archives.values():
    with zipfile.ZipFile(path) as z:
      for member in sorted(z.namelist()):
        with Image.open(io.BytesIO(z.read(member))) as image:
          sheet = np.asarray(image.convert("RGB"))
        if sheet.shape != (rows * _SIZE, columns * _SIZE, 3):
          raise ValueError(
              f"{member} in {path} has {sheet.shape[0]} x {sheet.shape[1]}"
              f" pixels instead of {rows * _SIZE} x {columns * _SIZE}: use the"
              " lossless pictures of CIFAR-FS"
          )
        grid = sheet.reshape(rows, _SIZE, columns, _SIZE, 3)
        grid = grid.transpose(0, 2, 1, 3, 4)
        images.append(grid.reshape(-1, _SIZE, _SIZE, 3))
        labels.append(names.index(member.removesuffix(".webp")))
  return np.concatenate(images), np.repeat(labels, rows * columns)


def _binary(archives: Paths, names: Sequence[str]) -> Labelled:
  """train.bin and test.bin: per image superclass, class and 3072 bytes."""
  del names
  parts = [
      np.frombuffer(text, np.uint8).reshape(-1, 2 + 3 * _SIZE * _SIZE)
      for text in _members(archives, ("train.bin", "test.bin"))
  ]
  records = np.concatenate(parts)
  return _pixels_last(records[:, 2:]), records[:, 1].astype(np.int64)


def _python(archives: Paths, names: Sequence[str]) -> Labelled:
  """The pickles "train" and "test": dicts of an array and of lists."""
  del names
  batches = [plain_pickle(t) for t in _members(archives, ("train", "test"))]
  return (
      _pixels_last(np.concatenate([batch[b"data"] for batch in batches])),
      np.concatenate([batch[b"fine_labels"] for batch in batches]),
  )


def _members(archives: Paths, members: Sequence[str]) -> list[bytes]:
  """The bytes of these files of one tar archive, wherever they lie in it."""
  (path,) = archives.values()
  found = {}
  with tarfile.open(path) as tar:
    for member in tar:
      name = member.name.rsplit("/", 1)[-1]
      if name in members and member.isfile():
        content = tar.extractfile(member)
        assert content is not None
        found[name] = content.read()
  absent = [name for name in members if name not in found]
  if absent:
    raise ValueError(
        f"{path} holds no file '{absent[0]}': use the original archive"
    )
  return [found[name] for name in members]


def _pixels_last(rows: np.ndarray) -> np.ndarray:
  """uint8[n, 3072] of red, green and blue planes as [n, 32, 32, 3]."""
  return rows.reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1)


class _Unpickler(pickle.Unpickler):
  """Builds arrays and plain values; no other name is looked up."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ALLOWED:
      raise pickle.UnpicklingError(
          f"the pickle asks for {module}.{name}, and only arrays and plain"
          " values are loaded: use the original archive"
      )
    return _ALLOWED[module, name]


def plain_pickle(text: bytes) -> Any:
  """Loads a pickle of arrays and plain values, with strings as bytes.

  Raises:
    pickle.UnpicklingError: the pickle asks for anything else, before it runs.
  """
  return _Unpickler(io.BytesIO(text), encoding="bytes").load()
