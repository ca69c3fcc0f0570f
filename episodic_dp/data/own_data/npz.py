"""An NPZ of arrays: examples, one label array per level and, perhaps, `split`.

  numpy.savez("own.npz", images=uint8[n, H, W, C], **{"class": labels})
  numpy.savez("own.npz", features=float32[n, ...], **{"class": labels})

`images` are uint8, or uint16 of which 65535 is 1; `features` are numbers of one
to three axes each. Labels are listed without reading either. All arrays but the
examples together may unpack to no more than the examples, or 64 MiB.

`units` is the public list of all units, so that one whose examples were all
removed is still there, empty. It has a row for each unit, the labels of the
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
from typing import Any
import zipfile

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import readers
from episodic_dp.errors import shown

_IMAGES, _FEATURES, _SPLIT, _UNITS, _UNITS_SPLIT = _READ = (
    "images", "features", "split", "units", "units_split"
)
_MAX_SIDE = 2**15
_LABEL_BYTES = 2**26  # At least; more where the examples are larger.
_LABELS = "biuUS"  # Kinds of dtype: whole numbers and strings.
_NOTHING = ("", b"")

Unit = tuple[tuple[Any, ...], str | None]  # Its path and part.


class _Refused(ValueError):
  """An error whose text is for the user already: it is not wrapped again."""


def listing(
    path: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """List the records of a file.

  Args:
    path: the file.
    levels: the label arrays, primary level first, and a name for the examples;
      None means class, image, or group, class, image where there is an array
      `group`.

  Raises:
    ValueError: an array is missing, unknown, too large, or of another length or
      type; names it.
  """
  try:
    return _listed(path, levels)
  except _Refused:
    raise
  except cache.DAMAGED as e:
    raise ValueError(
        f"{path} cannot be read as an .npz of arrays"
        f" ({readers.reason(e, path)}): write it with numpy.savez(file,"
        " images=..., **{'class': ...})"
    ) from e


def _listed(
    path: pathlib.Path, levels: Sequence[str] | None
) -> listing_lib.Listing:
  heads = _heads(path)
  if levels is None:
    levels = (*(("group",) if "group" in heads else ()), "class", "image")
  examples = _check_names(path, heads, levels)
  shape = _check_examples(path, examples, *heads[examples])
  _check_size(path, examples, heads)
  rows = shape[0]
  with np.load(path, allow_pickle=False) as arrays:
    held = {name: arrays[name] for name in heads if name != examples}
  labels = [_vector(path, name, held, rows) for name in levels[:-1]]
  split = _split(path, _SPLIT, held, rows) if _SPLIT in held else None
  units = None
  if _UNITS in held and _UNITS not in levels:
    units = _units(path, held, labels)
  status = path.stat()
  about = f"{levels}/{status.st_size}/{status.st_mtime_ns}"

  def name_of(record: int) -> str:
    return f"row {record} of {path}"

  def reader() -> listing_lib.Reader:
    try:
      with np.load(path, allow_pickle=False) as arrays:
        values = arrays[examples]
    except cache.DAMAGED as e:
      raise ValueError(
          f"array '{examples}' of {path} cannot be read"
          f" ({readers.reason(e, path)}): write the file again"
      ) from e
    make = _image if examples == _IMAGES else readers.features_of
    return lambda record: make(values[record], name_of(record))

  return listing_lib.Listing(
      source=path,
      levels=tuple(levels),
      classes=_with_empty(path, _classes(labels, split), units),
      declared=units is not None,
      fingerprint=hashlib.sha256(about.encode()).hexdigest(),
      shape=_shape_of_images(shape) if examples == _IMAGES else None,
      reader=reader,
      name_of=name_of,
  )


def _image(values: np.ndarray, name: str) -> readers.Example:
  if values.dtype == np.uint8:
    return readers.image_of(values, name)
  values = values.astype(np.float32) / 65535
  return readers.Example(
      values[..., None] if values.ndim == 2 else values, image=True
  )


def _shape_of_images(shape: tuple[int, ...]) -> tuple[int, int, int]:
  height, width, *channels = shape[1:]
  return height, width, channels[0] if channels else 1


Heads = dict[str, tuple[tuple[int, ...], np.dtype]]


def _heads(path: pathlib.Path) -> Heads:
  """Return the shape and dtype of every array, none of which is read."""
  found = {}
  with zipfile.ZipFile(path) as z:
    for info in z.infolist():
      with z.open(info) as f:
        version = np.lib.format.read_magic(f)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(f)
      # Before memory is taken for it.
      if not dtype.hasobject and _bytes(shape, dtype) > info.file_size:
        raise ValueError(
            f"the header of '{info.filename}' claims shape {shape}, more than"
            f" its {info.file_size} bytes"
        )
      found[info.filename.removesuffix(".npy")] = shape, dtype
  return found


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
  return math.prod(shape) * dtype.itemsize


def _check_names(
    path: pathlib.Path, heads: Heads, levels: Sequence[str]
) -> str:
  """Return the name of the array that holds the examples."""
  if len(levels) < 2:
    raise _Refused(
        f"own_data option levels={tuple(levels)} needs two names or more: the"
        " label arrays and, last, the name of one example"
    )
  if {_FEATURES, _IMAGES} <= set(heads):
    raise _Refused(
        f"{path} has both '{_IMAGES}' and '{_FEATURES}': leave one of them out"
    )
  examples = _FEATURES if _FEATURES in heads else _IMAGES
  for name in (examples, *levels[:-1]):
    if name not in heads:
      raise _Refused(
          f"{path} has the arrays {shown(list(heads))} and no '{name}': add it,"
          " or name the label arrays in levels, the outermost first, and then"
          " the examples, as in --config=own_data:levels=writer/letter/image"
      )
  for name in heads:
    if name not in (*_READ, *levels[:-1]):
      raise _Refused(
          f"{path} has an array {shown(name)} that nothing reads: leave it out,"
          f" name it in levels, or call it '{_SPLIT}' if it says what is for"
          " training"
      )
  return examples


def _check_examples(
    path: pathlib.Path, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[int, ...]:
  """Return the shape of the examples, if it is that of images or features."""
  if name == _IMAGES:
    fits = dtype in (np.uint8, np.uint16) and len(shape) in (3, 4)
    fits = fits and max(shape[1:3]) <= _MAX_SIDE
    fits = fits and (len(shape) == 3 or shape[3] in (1, 3))
    wanted = "uint8 or uint16 [n, height, width] or [n, height, width, 1 or 3]"
  else:
    fits = dtype.kind in "biuf" and 2 <= len(shape) <= 4
    wanted = "numbers [n, features], [n, time, channels] or [n, H, W, channels]"
  if not fits or 0 in shape:
    raise _Refused(
        f"array '{name}' of {path} is {dtype} of shape {shape}: save {wanted},"
        " none of them 0"
    )
  return shape


def _check_size(path: pathlib.Path, examples: str, heads: Heads) -> None:
  """Refuse labels that would unpack to more than the examples need."""
  most = max(_LABEL_BYTES, _bytes(*heads[examples]))
  sizes = {n: _bytes(*head) for n, head in heads.items() if n != examples}
  if sum(sizes.values()) > most:
    name = max(sizes, key=lambda n: sizes[n])
    raise _Refused(
        f"array '{name}' of {path} unpacks to {sizes[name]} bytes, and labels"
        f" may take {most} in all: save shorter labels, or whole numbers"
    )


def _vector(
    path: pathlib.Path,
    name: str,
    held: dict[str, np.ndarray],
    rows: int,
    kinds: str = _LABELS,
) -> np.ndarray:
  """Return an array with one entry a row, of a dtype kind in `kinds`."""
  array = held[name]
  if array.dtype.kind not in kinds or array.shape != (rows,):
    raise _Refused(
        f"array '{name}' of {path} is {array.dtype} of shape {array.shape}:"
        f" give one whole number or one string for each of {rows} rows"
    )
  return array


def _split(
    path: pathlib.Path, name: str, held: dict[str, np.ndarray], rows: int
) -> np.ndarray:
  split = _vector(path, name, held, rows, kinds="U")
  wrong = ~np.isin(split, dataset.PARTS)
  if wrong.any():
    raise _Refused(
        f"array '{name}' of {path} holds {shown(str(split[np.argmax(wrong)]))}:"
        f" use {', '.join(dataset.PARTS)}"
    )
  return split


def _classes(
    labels: list[np.ndarray], split: np.ndarray | None
) -> tuple[listing_lib.Class, ...]:
  """Group rows by label; a class that is in two parts occurs once for each."""
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
    path: pathlib.Path, held: dict[str, np.ndarray], labels: list[np.ndarray]
) -> list[Unit]:
  """Return the declared units and their parts."""
  array, depth = held[_UNITS], len(labels)
  fits = array.shape[1:] == (depth,) or (array.ndim == 1 and depth == 1)
  if array.dtype.kind not in _LABELS or not fits:
    raise _Refused(
        f"array '{_UNITS}' of {path} is {array.dtype} of shape {array.shape}:"
        f" give one row for each unit, with {depth} whole numbers or strings"
    )
  table = array.reshape(-1, depth)
  columns = [_as_labels(path, c, label) for c, label in zip(table.T, labels)]
  parts: list[str | None] = [None] * len(table)
  if _SPLIT in held:
    if _UNITS_SPLIT not in held:
      raise _Refused(
          f"{path} has '{_UNITS}' and '{_SPLIT}', and nothing says the part of"
          f" an empty unit: add an array '{_UNITS_SPLIT}'"
      )
    parts = _split(path, _UNITS_SPLIT, held, len(table)).tolist()
  found = []
  for row, part in zip(zip(*columns), parts):
    unit = tuple(itertools.takewhile(lambda label: label not in _NOTHING, row))
    if not unit or any(label not in _NOTHING for label in row[len(unit) :]):
      raise _Refused(
          f"array '{_UNITS}' of {path} has the row {shown(row)}: only labels at"
          " its end may be empty"
      )
    found.append((unit, part))
  return found


def _as_labels(
    path: pathlib.Path, column: np.ndarray, labels: np.ndarray
) -> list[Any]:
  """Return declared labels of one level as values of the label array."""
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
    units: list[Unit] | None,
) -> tuple[listing_lib.Class, ...]:
  """Return the classes and the declared units without one, sorted by path."""
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
