"""An NPZ of arrays: examples, one label array per level and, perhaps, `split`.

  numpy.savez("own.npz", images=uint8[n, H, W, C], **{"class": labels})
  numpy.savez("own.npz", features=float32[n, ...], **{"class": labels})

`images` are uint8, or uint16 of which 65535 is 1; `features` are numbers of one
to three axes each. Labels are listed without reading either.

`units` is the public list of all units, so that one whose examples were all
taken away is still there, empty. It has a row for each unit, the labels of the
units that it lies in and its own, in the order of the levels (or one label,
where there is one level above the examples): `units=[["ann", "cat"], ["bob",
""]]`, where "" says that the unit has nothing below. With `split` there is also
`units_split`, one part for each row. Without `units`, those that occur in the
labels are taken to be all, and guarantees say so.
"""

from collections.abc import Sequence
import hashlib
import itertools
import math
import pathlib
import re
from typing import Any, NamedTuple
import zipfile

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data.readers import arrays as array_readers
from episodic_dp.data.own_data.readers import example
from episodic_dp.errors import shown

_IMAGES, _FEATURES, _SPLIT, _UNITS, _UNITS_SPLIT = _READ = (
    "images", "features", "split", "units", "units_split"
)
_MAX_SIDE = 2**15


def listing(
    path: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """Lists the records of a file.

  Args:
    path: the file.
    levels: the label arrays, primary level first, and a name for the examples;
      None means class, image, or group, class, image where there is an array
      `group`.

  Raises:
    ValueError: an array is missing, unknown, of another length or type; one
      sentence that names it.
  """
  head = _read_head(path, levels)

  def reader() -> listing_lib.Reader:
    try:
      with np.load(path, allow_pickle=False) as arrays:
        values = arrays[head.examples]
    except cache.DAMAGED as e:
      raise ValueError(
          f"array '{head.examples}' of {path} cannot be read"
          f" ({example.reason(e, path)}): write the file again"
      ) from e
    is_image = head.examples == _IMAGES
    return lambda record: _example(values[record], is_image, name_of(record))

  def name_of(record: int) -> str:
    return f"row {record} of {path}"

  return listing_lib.Listing(
      source=path,
      levels=head.levels,
      classes=_with_empty(
          path, _classes(head.labels, head.split), head.units
      ),
      declared=head.units is not None,
      fingerprint=head.fingerprint,
      shape=_shape_of_images(head),
      reader=reader,
      name_of=name_of,
  )


def _example(values: np.ndarray, is_image: bool, name: str) -> example.Example:
  """A row of an array as an example; ValueError where it is not finite."""
  if not is_image:
    return array_readers.features(values, name)
  if values.dtype == np.uint16:
    values = values.astype(np.float32) / 65535
  if values.ndim == 2:
    values = values[..., None]
  return example.Example(values, image=True)


def _shape_of_images(head: "_Head") -> tuple[int, int, int] | None:
  if head.examples != _IMAGES:
    return None
  height, width, *channels = head.shape[1:]
  return height, width, channels[0] if channels else 1


class _Head(NamedTuple):
  """All that a file holds but its examples.

  Attributes:
    levels: their names, the examples last.
    labels: an array for each level but the last.
    split: one of `dataset.PARTS` for each example, or None.
    units: the declared units, each with its part or None; or None.
    examples: the name of their array.
    shape: of that array.
    fingerprint: as in `Listing`.
  """

  levels: tuple[str, ...]
  labels: list[np.ndarray]
  split: np.ndarray | None
  units: list[tuple[tuple[Any, ...], str | None]] | None
  examples: str
  shape: tuple[int, ...]
  fingerprint: str


def _read_head(path: pathlib.Path, levels: Sequence[str] | None) -> _Head:
  """Reads and checks a file but for its examples; raises as `listing`."""
  try:
    found = np.load(path, allow_pickle=False)
    if not isinstance(found, np.lib.npyio.NpzFile):
      raise ValueError("it is one array")
    with found as arrays:
      names = arrays.files
      if levels is None:
        levels = (*(("group",) if "group" in names else ()), "class", "image")
      examples = _check_names(path, arrays, levels)
      shape = (_image_shape if examples == _IMAGES else _feature_shape)(path)
      labels = [
          _vector(path, name, arrays, shape[0], kinds="biuUS")
          for name in levels[:-1]
      ]
      split = None
      if _SPLIT in names:
        split = _vector(path, _SPLIT, arrays, shape[0], kinds="U")
        _check_split(path, _SPLIT, split)
      units = _units(path, arrays, levels, labels)
      status = path.stat()
  except _Refused:
    raise
  except cache.DAMAGED as e:
    raise ValueError(
        f"{path} cannot be read as an .npz of arrays"
        f" ({example.reason(e, path)}): write it with numpy.savez(file,"
        " images=..., **{'class': ...})"
    ) from e
  about = f"{levels}/{status.st_size}/{status.st_mtime_ns}"
  fingerprint = hashlib.sha256(about.encode()).hexdigest()
  return _Head(
      tuple(levels), labels, split, units, examples, shape, fingerprint
  )


def _check_split(path: pathlib.Path, name: str, split: np.ndarray) -> None:
  wrong = ~np.isin(split, dataset.PARTS)
  if wrong.any():
    raise _Refused(
        f"array '{name}' of {path} holds {shown(str(split[np.argmax(wrong)]))}:"
        f" use {', '.join(dataset.PARTS)}"
    )


class _Refused(ValueError):
  """An error whose text is for the user already: it is not wrapped again."""


def _check_names(
    path: pathlib.Path, arrays: np.lib.npyio.NpzFile, levels: Sequence[str]
) -> str:
  """The name of the array that holds the examples."""
  names = arrays.files
  if len(levels) < 2:
    raise _Refused(
        f"own_data option levels={tuple(levels)} needs two names or more: the"
        " label arrays and, last, what one example is called"
    )
  examples = _FEATURES if _FEATURES in names else _IMAGES
  if {_FEATURES, _IMAGES} <= set(names):
    raise _Refused(
        f"{path} has both '{_IMAGES}' and '{_FEATURES}': leave one of them out"
    )
  for name in (examples, *levels[:-1]):
    if name not in names:
      remedy = "" if name == examples else _levels_there(path, arrays)
      raise _Refused(
          f"{path} has the arrays {shown(names)} and no '{name}': add it"
          f"{remedy}"
      )
  for name in names:
    if name not in (*_READ, *levels[:-1]):
      raise _Refused(
          f"{path} has an array {shown(name)} that nothing reads: leave it out,"
          f" name it in levels, or call it '{_SPLIT}' if it says what is for"
          " training"
      )
  return examples


def _levels_there(path: pathlib.Path, arrays: np.lib.npyio.NpzFile) -> str:
  """How to name the label arrays that are there, or ""."""
  labels = [name for name in arrays.files if name not in _READ]
  if len(labels) not in (1, 2) or not all(
      re.fullmatch(r"[\w.-]+", name)
      and _header(path, name)[1].kind in "biuUS"
      for name in labels
  ):
    return ""
  labels.sort(key=lambda name: (name != "group", name == "class"))
  if len(labels) == 2 and labels[0] != "group":
    first, second = (arrays[name].ravel().tolist() for name in labels)
    # The first lies in the second, which is then the outer one.
    if len(set(zip(first, second))) == len(set(first)) > len(set(second)):
      labels.reverse()
  return (
      ", or name the label arrays that are there, the outermost first, and the"
      f" examples with --config=own_data:levels={'/'.join([*labels, 'image'])}"
  )


def _image_shape(path: pathlib.Path) -> tuple[int, ...]:
  """The shape of `images`, from its header alone."""
  shape, dtype = _header(path, _IMAGES)
  _check_no_objects(path, _IMAGES, dtype)
  if dtype not in (np.uint8, np.uint16):
    raise _Refused(
        f"array '{_IMAGES}' of {path} is {dtype}: save uint8, 0 to 255, or"
        f" uint16, 0 to 65535, or call it '{_FEATURES}' to have its numbers as"
        " they are"
    )
  if (
      len(shape) not in (3, 4)
      or 0 in shape
      or max(shape[1:3]) > _MAX_SIDE
      or (len(shape) == 4 and shape[3] not in (1, 3))
  ):
    raise _Refused(
        f"array '{_IMAGES}' of {path} has shape {shape}: give [n, height,"
        " width] or [n, height, width, 1 or 3], none of them 0"
    )
  return shape


def _feature_shape(path: pathlib.Path) -> tuple[int, ...]:
  """The shape of `features`, from its header alone."""
  shape, dtype = _header(path, _FEATURES)
  _check_no_objects(path, _FEATURES, dtype)
  if dtype.kind not in "biuf":
    raise _Refused(
        f"array '{_FEATURES}' of {path} is {dtype}: save whole numbers or"
        " floating point"
    )
  if not 2 <= len(shape) <= 4 or 0 in shape:
    raise _Refused(
        f"array '{_FEATURES}' of {path} has shape {shape}: give [n, features],"
        " [n, time, channels] or [n, height, width, channels], none of them 0"
    )
  return shape


def _check_no_objects(path: pathlib.Path, name: str, dtype: np.dtype) -> None:
  if dtype.kind == "O":
    raise _Refused(
        f"array '{name}' of {path} holds objects, such as arrays of several"
        " shapes: bring them to one shape and save numbers [n, ...]"
    )


def _header(path: pathlib.Path, name: str) -> tuple[tuple[int, ...], np.dtype]:
  """Shape and dtype of an array, of which nothing is read."""
  with zipfile.ZipFile(path) as z, z.open(f"{name}.npy") as f:
    version = np.lib.format.read_magic(f)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
      raise ValueError(f"array format {version} is unknown")
    shape, _, dtype = read(f)
    held = z.getinfo(f"{name}.npy").file_size
  # Before memory is taken for it.
  if not dtype.hasobject and math.prod(shape) * dtype.itemsize > held:
    raise ValueError(
        f"the header of '{name}' claims shape {shape}, more than its"
        f" {held} bytes"
    )
  return shape, dtype


def _vector(
    path: pathlib.Path,
    name: str,
    arrays: np.lib.npyio.NpzFile,
    rows: int,
    *,
    kinds: str,
) -> np.ndarray:
  """An array with one entry a record, of a dtype kind in `kinds`."""
  shape, dtype = _header(path, name)
  if dtype.kind not in kinds or len(shape) != 1:
    raise _Refused(
        f"array '{name}' of {path} is {dtype} of shape {shape}: give one whole"
        " number or one string per row"
    )
  if shape[0] != rows:
    raise _Refused(
        f"array '{name}' of {path} has {shape[0]} entries for {rows} rows:"
        " give one per row"
    )
  return arrays[name]


def _classes(
    labels: list[np.ndarray], split: np.ndarray | None
) -> tuple[listing_lib.Class, ...]:
  """Rows by label; a class that is in two parts occurs once for each."""
  values, codes = zip(*(np.unique(a, return_inverse=True) for a in labels))
  if split is not None:
    codes = (*codes, np.unique(split, return_inverse=True)[1])
  order = np.lexsort(tuple(reversed(codes)))
  table = np.stack([code[order] for code in codes], axis=1)
  starts = np.flatnonzero(
      np.append(True, (table[1:] != table[:-1]).any(axis=1))
  )
  result = []
  for first, end in itertools.pairwise([*starts.tolist(), len(order)]):
    rows = order[first:end]
    path = tuple(v[code].item() for v, code in zip(values, table[first]))
    part = None if split is None else str(split[rows[0]])
    result.append(listing_lib.Class(path=path, records=rows, part=part))
  return tuple(result)


def _units(
    path: pathlib.Path,
    arrays: np.lib.npyio.NpzFile,
    levels: Sequence[str],
    labels: list[np.ndarray],
) -> list[tuple[tuple[Any, ...], str | None]] | None:
  """The declared units and their parts, or None where nothing declares them."""
  if _UNITS not in arrays.files or _UNITS in levels:
    return None
  shape, dtype = _header(path, _UNITS)
  depth = len(labels)
  fits = shape[1:] == (depth,) or (len(shape) == 1 and depth == 1)
  if dtype.kind not in "biuUS" or not fits:
    raise _Refused(
        f"array '{_UNITS}' of {path} is {dtype} of shape {shape}: give one row"
        f" for each unit, with {depth} whole numbers or strings"
    )
  table = arrays[_UNITS].reshape(shape[0], depth)
  columns = [_as_labels(path, c, label) for c, label in zip(table.T, labels)]
  parts: list[str | None] = [None] * shape[0]
  if _SPLIT in arrays.files:
    if _UNITS_SPLIT not in arrays.files:
      raise _Refused(
          f"{path} has '{_UNITS}' and '{_SPLIT}', and nothing says the part of"
          f" an empty unit: add an array '{_UNITS_SPLIT}'"
      )
    split = _vector(path, _UNITS_SPLIT, arrays, shape[0], kinds="U")
    _check_split(path, _UNITS_SPLIT, split)
    parts = split.tolist()
  nothing = ("", b"")
  found = []
  for row, part in zip(zip(*columns), parts):
    unit = tuple(itertools.takewhile(lambda label: label not in nothing, row))
    if not unit or any(label not in nothing for label in row[len(unit) :]):
      raise _Refused(
          f"array '{_UNITS}' of {path} has the row {row}: only labels at its"
          " end may be empty"
      )
    found.append((unit, part))
  return found


def _as_labels(
    path: pathlib.Path, column: np.ndarray, labels: np.ndarray
) -> list[Any]:
  """Declared labels of one level as values of the records' label array."""
  if column.dtype.kind == labels.dtype.kind:
    return column.tolist()
  try:
    kind = labels.dtype.type
    return [v if v == "" else kind(v).item() for v in column.tolist()]
  except (ValueError, TypeError, OverflowError) as e:
    raise _Refused(
        f"array '{_UNITS}' of {path} holds labels that are no {labels.dtype},"
        " as those of the records are"
    ) from e


def _with_empty(
    path: pathlib.Path,
    classes: tuple[listing_lib.Class, ...],
    units: list[tuple[tuple[Any, ...], str | None]] | None,
) -> tuple[listing_lib.Class, ...]:
  """The classes and the declared units without one, sorted by path."""
  if units is None:
    return classes
  known = {unit for unit, _ in units}
  for one in classes:
    if one.path not in known:
      raise _Refused(
          f"{path} has rows of {shown('/'.join(map(str, one.path)))}, which is"
          f" not among its '{_UNITS}': declare it, or leave the rows out"
      )
  held = {(one.path, one.part) for one in classes}
  empty = [
      listing_lib.Class(path=unit, records=np.zeros(0, np.int64), part=part)
      for unit, part in dict.fromkeys(units)
      if (unit, part) not in held
  ]
  return tuple(sorted([*classes, *empty], key=lambda one: one.path))
