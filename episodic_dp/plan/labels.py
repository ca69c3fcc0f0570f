"""Labels that name units: read exactly, or refused with their row.

Two labels are one unit only if they are equal. Nothing is converted on the way
that could make two labels one, or one label two.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import re
from typing import Any
import unicodedata

import numpy as np
import numpy.typing as npt

from episodic_dp.errors import DataError
from episodic_dp.errors import shortened
from episodic_dp.errors import shown

# Kind of labels -> its types.
_KINDS: dict[str, tuple[type, ...]] = {
    "true or false": (bool, np.bool_),
    "a number": (int, float, np.integer, np.floating),
    "text": (str,),
    "bytes": (bytes,),
}
_MISSING = ("nan", "NaN", "<NA>", "NaT")
_LONGEST = 120  # Characters of a name in a message.
# Letters and marks that show nothing, such as the selector of an emoji's form,
# and those that show a blank. Python counts both as printable.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f"
    "\U000e0100-\U000e01ef]"
)
_BLANK = re.compile("[\u2800\u3164\uffa0]")

Where = Callable[[int], str]  # Position of a label -> its place, for messages.


def kind_of(label: object) -> str:
  """Return the kind of a label, for messages; "" if it is none."""
  for kind, types in _KINDS.items():
    if isinstance(label, types):
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
    DataError: they are no vector; or a label is missing, of another kind than
      the first, a float that may stand for several whole numbers, or text that
      differs from another label only in what `check_names` refuses. The message
      names its place.
  """
  where = where or (lambda row: f"row {row} of {name}")
  if np.ma.is_masked(values):
    values = values.tolist()  # None for those that are masked.
  kind = None
  if not hasattr(values, "__array__"):
    # NumPy's choice of a type would turn 1 into "1", and 2^60 + 1 into 2^60.
    kind = object
  array = array_of(name, values, kind)
  if array.ndim == 2 and array.shape[1] == 1:
    array = array[:, 0]
  if array.ndim != 1:
    raise DataError(
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
    if not (whole == array).all():
      return array.astype(object)
    return whole
  if array.dtype.kind not in "OSTU":
    raise DataError(
        f"{name} are {array.dtype}: give whole numbers or text"
    )
  items = array.astype(object).tolist()
  for row, item in enumerate(items):
    if getattr(item, "shape", None) == ():  # A tensor with one number.
      items[row] = array_of(name, item)[()]
  return _objects(where, items)


def array_of(
    name: str, values: npt.ArrayLike, kind: npt.DTypeLike | None = None
) -> np.ndarray:
  """Return an array; DataError for what NumPy cannot read, as a generator."""
  try:
    array = np.asarray(values, kind)
    one = array.shape == () and array.dtype == object
    if one and isinstance(array[()], Iterable):
      raise TypeError(f"a {type(values).__name__}")
    return array
  except Exception as e:  # A tensor's own, such as that it is on a GPU.
    raise DataError(
        f"{name} are no array ({shortened(str(e))}): give a NumPy array or a"
        " list"
    ) from e


def check_names(where: Where, names: Sequence[str]) -> None:
  """Refuse missing names, and those that look alike.

  They differ only in blanks, in invisible characters, such as a zero-width
  space, or in their Unicode form.

  Args:
    where: position of a name -> its place, for messages.
    names: names; equal ones are one unit.

  Raises:
    DataError: there are two such names, which it quotes in ASCII, or one that
      stands for a missing value.
  """
  found: dict[str, str] = {}
  for name in dict.fromkeys(names):
    form = _BLANK.sub(" ", _UNSEEN.sub("", name))
    if not form.isprintable():
      form = "".join(c for c in form if unicodedata.category(c) != "Cf")
    form = " ".join(unicodedata.normalize("NFC", form).split())
    if form in _MISSING:
      raise DataError(
          f"{where(names.index(name))} is {name!r}, as missing values are"
          " written: leave it out, or give another name"
      )
    other = found.setdefault(form, name)
    if other != name:
      first, second = (
          f"{where(names.index(one))} is {ascii(one)[:_LONGEST]}"
          for one in (other, name)
      )
      raise DataError(
          f"{first} and {second}, which differ only in blanks, in invisible"
          " characters or in their Unicode form: spell one name one way, and"
          " make two names differ visibly"
      )


def _floats(where: Where, array: np.ndarray) -> np.ndarray:
  """Return floats as float64; DataError unless each stands for one number."""
  bits = min(53, np.finfo(array.dtype).nmant + 1)
  wrong = ~(np.abs(array) < 2.0**bits)
  if wrong.any():
    row = int(np.argmax(wrong))
    raise DataError(
        f"{where(row)} is {array[row]}, which names nobody or, from 2^{bits}"
        " on, several numbers: leave the row out, or give whole numbers or text"
    )
  found = array.astype(np.float64)
  if (found != array).any():
    row = int(np.argmax(found != array))
    raise DataError(
        f"{where(row)} is {array[row]}, which 64 bits cannot hold: give whole"
        " numbers or text"
    )
  return found


def _objects(where: Where, items: list[Any]) -> np.ndarray:
  """Return Python's objects as labels of one kind; DataError if they are not.

  Args:
    where: position of a label -> its place, for messages.
    items: the labels.
  """
  kind = ""
  if items:
    kind = kind_of(items[0])
  for row, item in enumerate(items):
    own = kind_of(item)
    blank = own in ("text", "bytes") and not item.strip()
    if not own or blank or item != item:
      raise DataError(
          f"{where(row)} is {shown(item)}, which is no label: leave the"
          " row out, or give a whole number or text"
      )
    if own != kind:
      raise DataError(
          f"{where(row)} is {shown(item)}, {own}, and {where(0)} is"
          f" {shown(items[0])}, {kind}: give numbers alone or text alone"
      )
  if kind == "true or false":
    return np.asarray(items, bool)
  if kind == "a number":
    return _numbers(where, items)
  if kind == "bytes":
    try:
      items = [item.decode() for item in items]
    except UnicodeDecodeError as e:
      raise DataError(
          f"{where(items.index(e.object))} is {shown(e.object)}, which"
          " is no text in UTF-8: decode the bytes"
      ) from e
  check_names(where, items)
  return np.asarray(items, object)


def _numbers(where: Where, items: list[Any]) -> np.ndarray:
  """Return numbers as int64, or as objects if that would change one."""
  floating = (float, np.floating)
  for kind in {type(item) for item in items if isinstance(item, floating)}:
    own = [item if type(item) is kind else 0 for item in items]
    _floats(where, np.asarray(own, kind))
  exact = [float(i) if isinstance(i, floating) else int(i) for i in items]
  with contextlib.suppress(OverflowError):
    whole = np.asarray(exact, np.int64)
    if whole.tolist() == exact:
      return whole
  return np.asarray(exact, object)
