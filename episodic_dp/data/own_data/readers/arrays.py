"""Numbers of one example: an .npy, or a text table."""

import csv
import pathlib

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data.own_data.readers import example

_MOST_AXES = 3


def read_npy(path: pathlib.Path, page: int = 0) -> example.Example:
  """An array: uint8 is an image, any other number a feature.

  Raises:
    ValueError: it cannot be read, or is of another type or shape; one sentence.
  """
  del page
  try:
    # Mapped, so that a header which claims more than there is takes no memory.
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(mapped, np.ndarray):
      raise ValueError("it holds several arrays")
    values = np.array(mapped)
  except cache.DAMAGED as e:
    raise ValueError(
        f"{path} cannot be read as an .npy ({example.reason(e, path)}): write"
        " it with numpy.save"
    ) from e
  if values.dtype == np.uint8:
    return image(values, str(path))
  return features(values, str(path))


def image(values: np.ndarray, name: str) -> example.Example:
  """uint8[H, W] or [H, W, 1 or 3] as an example; ValueError for others."""
  if values.ndim == 2:
    values = values[..., None]
  if values.ndim != 3 or values.shape[2] not in (1, 3) or not values.size:
    raise ValueError(
        f"{name} is uint8 of shape {values.shape}, and uint8 is an image: save"
        " [height, width] or [height, width, 1 or 3], or numbers as float32"
    )
  return example.Example(values, image=True)


def features(values: np.ndarray, name: str) -> example.Example:
  """Numbers of one to three axes as an example; ValueError for others."""
  if values.dtype.kind not in "biuf":
    raise ValueError(
        f"{name} is {values.dtype}: save whole numbers or floating point"
    )
  if not 1 <= values.ndim <= _MOST_AXES or not values.size:
    raise ValueError(
        f"{name} has shape {values.shape}: give [features], [time, channels] or"
        " [height, width, channels], none of them 0"
    )
  with np.errstate(over="ignore"):
    values = values.astype(np.float32)
  check_finite(values, name)
  return example.Example(values, image=False)


def check_finite(values: np.ndarray, name: str) -> None:
  """ValueError where a float32 value is NaN or infinite; names the first."""
  wrong = ~np.isfinite(values)
  if wrong.any():
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise ValueError(
        f"{name} holds {values[at]} as float32 at {list(at)}: repair it or"
        " remove it"
    )


def read_table(path: pathlib.Path, page: int = 0) -> example.Example:
  """A text table of numbers, [rows, columns]; one row alone is a vector.

  Commas, semicolons or tabs stand between the numbers. A first line in which
  some cell is no number is a head, and left out.

  Raises:
    ValueError: it cannot be read, or a cell is no number; one sentence.
  """
  del page
  try:
    text = path.read_text(encoding="utf-8-sig")
  except (OSError, UnicodeError) as e:
    raise ValueError(
        f"{path} cannot be read as text ({example.reason(e, path)}): save it as"
        " UTF-8, or remove it"
    ) from e
  first = text.partition("\n")[0]
  delimiter = max(",;\t", key=first.count)
  rows: list[list[float]] = []
  reader = csv.reader(text.splitlines(), delimiter=delimiter)
  try:
    for cells in reader:
      if not cells:
        continue
      try:
        row = [float(cell) for cell in cells]
      except ValueError:
        if rows or reader.line_num > 1:
          raise
        continue
      if rows and len(row) != len(rows[0]):
        raise ValueError(f"{len(row)} numbers after lines of {len(rows[0])}")
      rows.append(row)
  except (ValueError, csv.Error) as e:
    raise ValueError(
        f"line {reader.line_num} of {path} is no row of the table"
        f" ({example.reason(e, path)}): give the same count of numbers in every"
        " line"
    ) from e
  if not rows:
    raise ValueError(f"{path} holds no numbers: fill it or remove it")
  values = np.asarray(rows[0] if len(rows) == 1 else rows)
  return features(values, str(path))
