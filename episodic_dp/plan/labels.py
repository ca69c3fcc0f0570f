"""Labels that name units: read exactly, or refused with their row.

Two labels are one unit only if they are equal. Nothing is converted on the way
that could make two labels one, or one label two.
"""

from collections.abc import Callable, Iterable
from typing import Any
import unicodedata

import numpy as np

from episodic_dp import errors

# Kind of labels -> its types.
_KINDS: dict[str, tuple[type, ...]] = {
    "true or false": (bool, np.bool_),
    "a number": (int, float, np.integer, np.floating),
    "text": (str,),
    "bytes": (bytes,),
}
_LONGEST = 120  # Characters of a name in a message.

Where = Callable[[int], str]  # Position of a label -> its place, for messages.


def kind_of(label: type) -> str:
  """Return the kind of labels of a type; "" for a type that is no label."""
  for kind, types in _KINDS.items():
    if issubclass(label, types):
      return kind
  return ""


def read(name: str, values: Any, where: Where | None = None) -> np.ndarray:
  """Return labels as a vector whose elements are equal for equal units alone.

  Args:
    name: what they are, for messages: "people".
    values: [rows] or [rows, 1], a list, an array or a column of a table:
      numbers, text, UTF-8 bytes, or truth values, not a mixture of them.
    where: None says "row 3 of people", counted from 0.

  Returns:
    int64, float64 or bool [rows]; or object[rows] of Python's numbers or text.

  Raises:
    PlanError: they are no vector; or a label is missing, of another kind than
      the first, a float that may stand for several whole numbers, or text that
      differs from another label only in blanks or in its Unicode form. The
      message names its place.
  """
  where = where or (lambda row: f"row {row} of {name}")
  if np.ma.is_masked(values):
    values = values.tolist()  # None for those that are masked.
  if not hasattr(values, "__array__"):
    # NumPy's choice of a type would turn 1 into "1", and 2^60 + 1 into 2^60.
    values = np.asarray(values, object)
  array = np.asarray(values)
  if array.ndim == 2 and array.shape[1] == 1:
    array = array[:, 0]
  if array.ndim != 1:
    raise errors.PlanError(
        f"{name} have shape {array.shape}: give a vector with one label for"
        " each row of the data"
    )
  if array.dtype.kind == "f":
    return _floats(where, array)
  if array.dtype.kind == "b":
    return array
  if array.dtype.kind in "iu":
    whole = array.astype(np.int64)
    # Values of uint64 above the range are negative now.
    return whole if (whole == array).all() else array.astype(object)
  if array.dtype.kind not in "OSTU":
    raise errors.PlanError(
        f"{name} are {array.dtype}: give whole numbers or text"
    )
  return _objects(where, array.astype(object))


def check_names(where: Where, names: Iterable[str]) -> None:
  """Refuse names that differ only in blanks or in their Unicode form.

  Args:
    where: position of a name -> its place, for messages.
    names: names; equal ones are one unit.

  Raises:
    PlanError: there are two such names; it quotes both in ASCII.
  """
  places: dict[str, int] = {}
  spellings: dict[str, str] = {}
  for number, spelling in enumerate(names):
    if spelling in places:
      continue
    places[spelling] = number
    form = " ".join(unicodedata.normalize("NFC", spelling).split())
    other = spellings.setdefault(form, spelling)
    if other != spelling:
      raise errors.PlanError(
          f"{where(places[other])} is {ascii(other)[:_LONGEST]} and"
          f" {where(number)} is"
          f" {ascii(spelling)[:_LONGEST]}, which differ only in blanks or in"
          " their Unicode form: spell one name one way, and make two names"
          " differ visibly"
      )


def _floats(where: Where, array: np.ndarray) -> np.ndarray:
  """Return floats as float64; PlanError unless each stands for one number."""
  bits = min(53, np.finfo(array.dtype).nmant + 1)
  wrong = ~(np.abs(array) < 2.0**bits)
  if wrong.any():
    row = int(np.argmax(wrong))
    raise errors.PlanError(
        f"{where(row)} is {array[row]}, which names nobody or, from"
        f" 2^{bits} on, several numbers: leave the row out, or give whole"
        " numbers or text"
    )
  return array.astype(np.float64)


def _objects(where: Where, array: np.ndarray) -> np.ndarray:
  """Return Python's objects as labels of one kind; PlanError if they are not.

  Args:
    where: position of a label -> its place, for messages.
    array: object[rows].
  """
  items = array.tolist()
  kinds = {label: kind_of(label) for label in set(map(type, items))}
  first = kinds[type(items[0])] if items else ""
  for row, item in enumerate(items):
    kind = kinds[type(item)]
    blank = kind in ("text", "bytes") and not item.strip()
    if not kind or blank or item != item:
      raise errors.PlanError(
          f"{where(row)} is {errors.shown(item)}, which is no label:"
          " leave the row out, or give a whole number or text"
      )
    if kind != first:
      raise errors.PlanError(
          f"{where(row)} is {errors.shown(item)}, {kind}, and {where(0)} is"
          f" {errors.shown(items[0])}, {first}: give numbers alone or text"
          " alone"
      )
  if first == "true or false":
    return array.astype(bool)
  if first == "a number":
    return _numbers(where, items)
  if first == "bytes":
    try:
      items = [item.decode() for item in items]
    except UnicodeDecodeError as e:
      raise errors.PlanError(
          f"{where(items.index(e.object))} is {errors.shown(e.object)}, which"
          " is no text in UTF-8: decode the bytes"
      ) from e
  check_names(where, items)
  return np.asarray(items, object)


def _numbers(where: Where, items: list[Any]) -> np.ndarray:
  """Return numbers as int64, float64 or, if neither is exact, objects."""
  floats = [isinstance(item, (float, np.floating)) for item in items]
  # A filling of two bytes leaves the array the type of the floats.
  checked = _floats(where, np.asarray([
      item if own else np.float16(0) for own, item in zip(floats, items)
  ]))
  if all(floats):
    return checked
  exact = [
      float(item) if own else int(item) for own, item in zip(floats, items)
  ]
  try:
    whole = np.asarray(exact, np.int64)
  except OverflowError:
    return np.asarray(exact, object)
  # A float with a fraction was cut off.
  return whole if whole.tolist() == exact else np.asarray(exact, object)
