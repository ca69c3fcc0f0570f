"""Turn examples into inputs of the network, exactly as the run did.

The code that reads own data (`data.own_data.rows`) makes the rows, from the
public settings in model.json and the example alone.
"""

from collections.abc import Iterable, Iterator, Sequence
import itertools
import sys
from typing import Any

import numpy as np
from PIL import Image

from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows
from episodic_dp.errors import DataError
from episodic_dp.export import folder
from episodic_dp.plan import labels


def row(how: folder.Preprocessing, example: readers.Example) -> np.ndarray:
  """Turn one example into a row, uint8 or float32 of `how.shape`.

  Args:
    how: the model's preprocessing.
    example: an example from a reader.

  Raises:
    DataError: it has another form or shape; one sentence.
  """
  values = example.values
  if how.resample == "nearest" and example.image:
    values = rows.resized(values, how.shape, Image.Resampling.NEAREST)
  form = rows.Form(
      image=how.kind == "image",
      shape=how.shape,
      dtype=np.dtype(how.dtype),
      rounds=True,
      first="the training data held",
  )
  return form.row(example._replace(values=values))


def given(images: Any) -> Any:
  """Return examples as an array, or as a list of images of several kinds.

  Images of several types are no array: its one type would change the values of
  all images by that of one. Features of several types become float32 one by
  one, for the same reason.

  Raises:
    DataError: they are sparse, masked, lazy, empty or no array.
  """
  # A matrix of a library that is not loaded does not exist.
  sparse = sys.modules.get("scipy.sparse")
  if sparse is not None and sparse.issparse(images):
    raise DataError("the examples are sparse: give X.toarray()")
  if hasattr(images, "collect"):
    raise DataError("the examples are a lazy frame: give X.collect()")
  if np.ma.isMaskedArray(images):
    raise DataError(
        "the examples are a masked array: give X.filled(VALUE), or leave out"
        " the rows with masked values"
    )
  # A frame of polars would turn dates beside numbers into numbers.
  frame = hasattr(images, "columns")  # The `dtypes` of a series are one.
  for kind in getattr(images, "dtypes", ()) if frame else ():
    if getattr(kind, "is_temporal", bool)():
      raise DataError(
          f"a column of the examples is {kind}: leave it out, or give numbers"
          " in a unit that is chosen in public"
      )
  if isinstance(images, Sequence) and not isinstance(images, (str, bytes)):
    if any(isinstance(i, Image.Image) for i in images):
      return list(images)  # Each is decoded once, and named if it cannot be.
    arrays = (labels.array_of("the examples", image) for image in images)
    kinds = {(array.shape, array.dtype) for array in arrays}
    shapes = [*{shape for shape, _ in kinds}]
    if len(shapes) == 1 and len(shapes[0]) == 1 and len(kinds) > 1:
      return np.stack([
          readers.features_of(np.asarray(values), f"row {row} of the examples")
          .values
          for row, values in enumerate(images)
      ])
    if len(kinds) > 1:
      return list(images)
  if isinstance(images, Image.Image):
    raise DataError("the examples are one image: give a list, [image]")
  found = labels.array_of("the examples", images)
  if found.ndim < 1 + (found.dtype.kind not in "OSU") or not found.size:
    raise DataError(
        f"the examples have shape {found.shape}: give an array [n, ...] of at"
        " least one, a list of images, [x] for one alone, or X[:, None] for one"
        " feature"
    )
  return found


def of_arrays(
    how: folder.Preprocessing, images: Iterable[Any], what: str
) -> np.ndarray:
  """Turn examples in memory into rows [n, ...].

  Args:
    how: the model's preprocessing.
    images: an array [n, ...] or a sequence: images uint8 [H, W], or [H, W, 1 or
      3], or float32 from 0 to 1 of such a shape, of any size; images of Pillow,
      read as their files are; or features of the model's shape; or examples of
      a reader.
    what: a name for them, for messages.

  Raises:
    DataError: there are none, one cannot be used, or all are nearly black.
  """
  bright: list[float] = []
  found = np.concatenate([*blocks(how, images, what, _AT_ONCE, bright)])
  readers.check_bits(bright, what)
  return found


_AT_ONCE = 1024


def blocks(
    how: folder.Preprocessing,
    images: Iterable[Any],
    what: str,
    size: int,
    bright: list[float],
) -> Iterator[np.ndarray]:
  """Turn examples in memory into rows, at most `size` at once.

  The first arguments and the errors are those of `of_arrays`; `bright` receives
  the `readers.brightest` of each.
  """
  if not isinstance(images, (list, tuple, Iterator)):
    images = given(images)

  def made(number: int, values: object) -> np.ndarray:
    example = _example(how, values, f"number {number} of {what}")
    bright.append(readers.brightest(example))
    return row(how, example)

  rows_ = itertools.starmap(made, enumerate(images))
  empty = True
  for block in stacked(rows_, size):
    empty = False
    yield block
  if empty:
    raise DataError(
        f"{what} are empty: give an array [n, ...] or a list of arrays"
    )


def stacked(rows_: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
  """Stack rows in blocks [n, ...] of at most `size`; none is empty."""
  left = iter(rows_)
  while found := list(itertools.islice(left, size)):
    yield np.stack(found)


def _example(
    how: folder.Preprocessing, given: Any, name: str
) -> readers.Example:
  """Turn an example in memory into one of a reader."""
  if isinstance(given, readers.Example):
    return given
  if how.kind == "features" and not isinstance(given, Image.Image):
    return readers.features_of(np.asarray(given), name)
  return image(given, name)


def image(given: Any, name: str) -> readers.Example:
  """Turn an image in memory into uint8 or float32 [H, W, 1 or 3].

  Args:
    given: uint8, bool, uint16, or floating point from 0 to 1, of shape [H, W]
      or [H, W, 1 or 3]; or an image of Pillow.
    name: its name, for messages.

  Raises:
    ValueError: it has another form; one sentence.
  """
  if isinstance(given, Image.Image):
    return readers.picture_of(given, name)
  values = np.asarray(given)
  if values.ndim < 2:
    raise DataError(
        f"{name} is {values.dtype} of shape {values.shape}: give images"
        " [n, height, width], a list of such or of Pillow's (of files,"
        " [PIL.Image.open(file).copy() for file in X]), or [image] for one, and"
        " features of one length as numpy.stack(X)"
    )
  if values.ndim == 2 and values.shape[1] in (1, 3):
    raise DataError(
        f"{name} has shape {values.shape}, which is a row of one image, or a"
        " series: give [image], and train series by the preset own_data with"
        " network='conv1d'"
    )
  if values.ndim == 3 and values.shape[2] in (2, 4):
    raise DataError(
        f"{name} has {values.shape[2]} channels, and which they are is not"
        " known: give Pillow's image itself, or image.convert('RGB')"
    )
  if values.dtype == bool:  # Pillow's mode 1.
    values = values * np.uint8(255)
  if values.dtype.newbyteorder("=") not in (np.uint8, np.uint16):
    floating = np.issubdtype(values.dtype, np.floating)
    if floating:
      readers.features_of(values, name)  # Names the place of NaN and infinity.
    if not floating or not (values.min() >= 0 and values.max() <= 1):
      raise DataError(
          f"{name} is {values.dtype} and not floating point from 0 to 1: give"
          " images as uint8, 0 to 255, or as float32, 0 to 1, and features as"
          " [n, features]"
      )
    values = values.astype(np.float32)
  return readers.image_of(values, name)
