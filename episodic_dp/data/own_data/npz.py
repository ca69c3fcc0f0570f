"""Own data in an NPZ: examples, a label array per level and, perhaps, `split`.

  numpy.savez("own.npz", images=uint8[n, H, W, C], **{"class": labels})
  numpy.savez("own.npz", features=float32[n, ...], **{"class": labels})

`images` are uint8, or uint16, 65535 being 1; `features` are numbers of one
to three axes each. Labels are listed without reading either. All arrays but the
examples together may unpack to no more than the examples, or 64 MiB. Labels are
whole numbers or text, and compared as text.

`units` is the public list of all units, so that one whose examples were all
removed is still there, empty. It has a row for each unit, the labels of the
units that it lies in and its own, in the order of the levels (or one label,
where there is one level above the examples): `units=[["ann", "cat"], ["bob",
""]]`, where "" says that the unit has nothing below. With `split` there is also
`units_split`, one part for each row. Without `units`, those that occur in the
labels are taken to be all, and guarantees say so.
"""

from collections.abc import Iterator, Sequence
import contextlib
import hashlib
import itertools
import math
import pathlib
import zipfile

import numpy as np

from episodic_dp.data import cache
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import readers
from episodic_dp.errors import shown

_IMAGES, _FEATURES, _SPLIT, _UNITS, _UNITS_SPLIT = _READ = (
    "images", "features", "split", "units", "units_split"
)
_MAX_SIDE = 2**15
_LABEL_BYTES = 2**26  # At least; more where the examples are larger.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

Heads = dict[str, tuple[tuple[int, ...], np.dtype]]
Arrays = dict[str, np.ndarray]


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
  with _reading(path):
    heads = _heads(path)
  if levels is None:
    levels = (*(("group",) if "group" in heads else ()), "class", "image")
  names = levels[:-1]
  examples = _FEATURES if _FEATURES in heads else _IMAGES
  _check_names(path, heads, (examples, *names))
  (rows, *shape), _ = heads[examples]
  _check_examples(path, examples, *heads[examples])
  _check_size(path, examples, heads)
  with _reading(path), np.load(path, allow_pickle=False) as arrays:
    held = {name: arrays[name] for name in heads if name != examples}
  labels = [_labels(path, name, held, (rows,)) for name in names]
  split = _labels(path, _SPLIT, held, (rows,)) if _SPLIT in held else None
  classes = listing_lib.group(labels, split)
  declared = _UNITS in held and _UNITS not in names
  if declared:
    classes = _with_empty(path, classes, _units(path, held, len(names)))
  status = path.stat()
  about = f"{levels}/{status.st_size}/{status.st_mtime_ns}"

  def name_of(record: int) -> str:
    return f"row {record} of {path}"

  def reader() -> listing_lib.Reader:
    with _reading(path), np.load(path, allow_pickle=False) as arrays:
      values = arrays[examples]
    make = _image if examples == _IMAGES else readers.features_of
    return lambda record: make(values[record], name_of(record))

  return listing_lib.Listing(
      source=path,
      levels=tuple(levels),
      classes=classes,
      declared=declared,
      fingerprint=hashlib.sha256(about.encode()).hexdigest(),
      shape=(*shape, 1)[:3] if examples == _IMAGES else None,
      reader=reader,
      name_of=name_of,
  )


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
  """Raise ValueError if the file is damaged."""
  try:
    yield
  except Exception as e:  # Parsers of damaged files may raise anything.
    raise ValueError(
        f"{path} cannot be read as an .npz of arrays"
        f" ({cache.reason(e, path)}): write it with numpy.savez(file,"
        " images=..., **{'class': ...})"
    ) from e


def _image(values: np.ndarray, name: str) -> readers.Example:
  if values.dtype == np.uint8:
    return readers.image_of(values, name)
  values = values.astype(np.float32) / 65535
  return readers.Example(
      values[..., None] if values.ndim == 2 else values, image=True
  )


def _heads(path: pathlib.Path) -> Heads:
  """Return the shape and dtype of every array without reading one."""
  found = {}
  with zipfile.ZipFile(path) as z:
    for info in z.infolist():
      with z.open(info) as f:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(f)](f)
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
    path: pathlib.Path, heads: Heads, wanted: Sequence[str]
) -> None:
  """Raise ValueError if an array is missing or unknown."""
  unread = sorted(set(heads) - {*_READ, *wanted})
  if unread or not set(wanted) <= set(heads) or {_FEATURES, _IMAGES} <= set(
      heads
  ):
    raise ValueError(
        f"{path} has the arrays {shown(sorted(heads))} and needs"
        f" {shown(list(wanted))}, either '{_IMAGES}' or '{_FEATURES}', and no"
        f" other but '{_SPLIT}', '{_UNITS}' and '{_UNITS_SPLIT}': name the"
        " label arrays in levels, the outermost first, and then the examples,"
        " as in --config=own_data:levels=writer/letter/image"
    )


def _check_examples(
    path: pathlib.Path, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
  """Raise ValueError unless the examples are images or features."""
  if name == _IMAGES:
    fits = dtype in (np.uint8, np.uint16) and len(shape) in (3, 4)
    fits = fits and max(shape[1:3]) <= _MAX_SIDE
    fits = fits and (len(shape) == 3 or shape[3] in (1, 3))
    wanted = "uint8 or uint16 [n, height, width] or [n, height, width, 1 or 3]"
  else:
    fits = dtype.kind in "biuf" and 2 <= len(shape) <= 4
    wanted = "numbers [n, features], [n, time, channels] or [n, H, W, channels]"
  if not fits or 0 in shape:
    raise ValueError(
        f"array '{name}' of {path} is {dtype} of shape {shape}: save {wanted},"
        " none of them 0"
    )


def _check_size(path: pathlib.Path, examples: str, heads: Heads) -> None:
  """Refuse labels that would unpack to more than the examples need."""
  most = max(_LABEL_BYTES, _bytes(*heads[examples]))
  sizes = {n: _bytes(*head) for n, head in heads.items() if n != examples}
  if sum(sizes.values()) > most:
    name = max(sizes, key=lambda n: sizes[n])
    raise ValueError(
        f"array '{name}' of {path} unpacks to {sizes[name]} bytes, and labels"
        f" may take {most} in all: save shorter labels, or whole numbers"
    )


def _labels(
    path: pathlib.Path, name: str, held: Arrays, shape: tuple[int, ...]
) -> np.ndarray:
  """Return an array of labels as text; ValueError if it is none."""
  array = held[name]
  if array.dtype.kind not in "biuUS" or array.shape != shape:
    raise ValueError(
        f"array '{name}' of {path} is {array.dtype} of shape {array.shape}:"
        f" give whole numbers or strings of shape {shape}"
    )
  return array.astype(str)


def _units(
    path: pathlib.Path, held: Arrays, depth: int
) -> list[tuple[tuple[str, ...], str | None]]:
  """Return the path and the part of every declared unit."""
  units = held[_UNITS]
  rows = len(units) if units.ndim else 0
  wide = (rows,) if depth == 1 and units.ndim == 1 else (rows, depth)
  table = _labels(path, _UNITS, held, wide).reshape(rows, depth)
  parts: list[str | None] = [None] * rows
  if _SPLIT in held:
    if _UNITS_SPLIT not in held:
      raise ValueError(
          f"{path} has '{_UNITS}' and '{_SPLIT}', and nothing says the part of"
          f" an empty unit: add an array '{_UNITS_SPLIT}'"
      )
    parts = _labels(path, _UNITS_SPLIT, held, (rows,)).tolist()
  found = []
  for row, part in zip(table.tolist(), parts):
    unit = tuple(itertools.takewhile(bool, row))
    if not unit or any(row[len(unit) :]):
      raise ValueError(
          f"array '{_UNITS}' of {path} has the row {shown(row)}: only labels at"
          " its end may be empty"
      )
    found.append((unit, part))
  return found


def _with_empty(
    path: pathlib.Path,
    classes: tuple[listing_lib.Class, ...],
    units: list[tuple[tuple[str, ...], str | None]],
) -> tuple[listing_lib.Class, ...]:
  """Return the classes and the declared units without one, sorted by path."""
  held = {one.path for one in classes}
  undeclared = held - {unit for unit, _ in units}
  if undeclared:
    raise ValueError(
        f"{path} has rows of {shown('/'.join(min(undeclared)))}, which is not"
        f" among its '{_UNITS}': declare it, or leave the rows out"
    )
  known = {(one.path, one.part) for one in classes}
  none = np.zeros(0, np.int64)
  empty = [
      listing_lib.Class(path=unit, records=none, part=part)
      for unit, part in dict.fromkeys(units)
      if (unit, part) not in known
  ]
  return tuple(sorted([*classes, *empty], key=lambda one: one.path))
