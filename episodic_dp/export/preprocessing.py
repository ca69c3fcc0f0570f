"""Turn examples into inputs of the network, exactly as the run did.

The code that reads own data (`data.own_data.rows`) makes the rows, from the
public settings in model.json and the example alone.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from PIL import Image

from episodic_dp import errors
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows
from episodic_dp.export import folder


def row(
    how: folder.Preprocessing, example: readers.Example, *, invert: bool = False
) -> np.ndarray:
  """Turn one example into a row, uint8 or float32 of `how.shape`.

  Args:
    how: the model's preprocessing.
    example: an example from a reader.
    invert: whether to exchange light and dark of images first.

  Raises:
    ValueError: it has another form or shape; one sentence.
  """
  values = example.values
  if how.kind == "image" and example.image:
    if invert:
      values = 255 - values if values.dtype == np.uint8 else 1 - values
    if how.resample == "nearest":
      values = rows.resized(values, how.shape, Image.Resampling.NEAREST)
  form = rows.Form(
      image=how.kind == "image",
      shape=how.shape,
      dtype=np.dtype(how.dtype),
      rounds=True,
      first="the training data held",
  )
  return form.row(example._replace(values=values))


def scaled(how: folder.Preprocessing, stacked: np.ndarray) -> np.ndarray:
  """Scale rows [n, ...] to float32, as in a training task."""
  values = stacked.astype(np.float32)
  return values / np.float32(255) if how.dtype == "uint8" else values


def of_arrays(
    how: folder.Preprocessing, images: Iterable[Any], what: str
) -> np.ndarray:
  """Turn arrays in memory into rows [n, ...].

  Args:
    how: the model's preprocessing.
    images: an array [n, ...] or a sequence of arrays: images uint8 [H, W], or
      [H, W, 1 or 3], or float32 from 0 to 1 of such a shape, of any size; or
      features of the model's shape.
    what: a name for them, for messages.

  Raises:
    ValueError: there are none, or one cannot be used; one sentence.
  """
  found = []
  for number, values in enumerate(images):
    name = f"number {number} of {what}"
    found.append(row(how, _example(how, np.asarray(values), name)))
  if not found:
    raise errors.RunError(
        f"{what} are empty: give an array [n, ...] or a list of arrays"
    )
  return np.stack(found)


def _example(
    how: folder.Preprocessing, values: np.ndarray, name: str
) -> readers.Example:
  """Turn an array into an example, as a reader does."""
  if how.kind == "features":
    return readers.features_of(values, name)
  if values.dtype != np.uint8:
    floating = np.issubdtype(values.dtype, np.floating)
    if not floating or not (values.min() >= 0 and values.max() <= 1):
      raise ValueError(
          f"{name} is {values.dtype} with values that are not from 0 to 1: give"
          " images as uint8, 0 to 255, or as float32, 0 to 1"
      )
    values = values.astype(np.float32)
  return readers.image_of(values, name)
