"""Own data in an NPZ: examples, a label array per level and optionally `split`.

  numpy.savez("own.npz", images=uint8[n, H, W, C], **{"class": labels})
  numpy.savez("own.npz", features=float32[n, ...], **{"class": labels})

`images` are uint8, or uint16 with 65535 as 1; `features` are numbers with one
to three axes each. Labels are listed without reading either. Decompressed, all
other arrays together may take no more bytes than the examples, or 64 MiB, and
all arrays no more than 1 GiB, or 200 times the size of the file. Labels are
whole numbers or text, none of them empty, and are compared as text.

`units` is the public list of all units, so that a unit without examples is
still listed, as an empty unit. It has a row for each unit: the labels of the
units above it and its own label, in the order of the levels (or one label, if
there is one level above the examples): `units=[["ann", "cat"], ["bob", ""]]`,
where "" means that the unit has nothing below it. With `split` there is also
`units_split`, one part for each row. Without `units`, the units are assumed to
be those that occur in the labels, and guarantees say so.
"""

from collections.abc import Collection, Iterator, Sequence
import contextlib
import pathlib
from typing import Any

import numpy as np

from episodic_dp import foreign
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import readers
from episodic_dp.errors import DataError
from episodic_dp.errors import shown
from episodic_dp.plan import labels as labels_lib

_IMAGES, _FEATURES = "images", "features"
_SPLIT, _UNITS, _UNITS_SPLIT = "split", "units", "units_split"
_READ = (_IMAGES, _FEATURES, _SPLIT, _UNITS, _UNITS_SPLIT)
_LABEL_BYTES = 2**26  # A minimum; more if the examples are larger.
_ROWS = 2**20  # A minimum; more if the file is larger.

Arrays = dict[str, np.ndarray]


def listing(
    path: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """List the records of a file.

  Args:
    path: the file.
    levels: the label arrays, primary level first, and a name for the examples;
      None means class, image, or group, class, image if there is an array
      `group`.

  Raises:
    DataError: an array is missing, unknown, too large, or of another length or
      type; the message names it.
  """
  with _reading(path) as file:
    sizes = {
        info.filename.removesuffix(".npy"): info.file_size
        for info in file.zip.infolist()
    }
  if levels is None:
    levels = ("class", "image")
    if "group" in sizes:
      levels = ("group", *levels)
  names = levels[:-1]
  examples = _FEATURES if _FEATURES in sizes else _IMAGES
  _check_names(path, sizes, (examples, *names))
  with _reading(path) as file:
    heads = {name: _head(file, name) for name in sizes}
  objects = [name for name, (_, dtype) in heads.items() if dtype.hasobject]
  if objects:
    kind = {_IMAGES: "'uint8'", _FEATURES: "'float32'"}.get(objects[0], "str")
    raise _fault(
        path, objects[0],
        "holds Python objects, which are not read: save"
        f" {objects[0]}.astype({kind})",
    )
  shape, dtype = heads[examples]
  _check_examples(path, examples, shape, dtype)
  _check_sizes(path, sizes, examples)
  with _reading(path) as file:
    held = {name: file[name] for name in sizes if name != examples}
  _check_held(path, held)
  rows = shape[:1]
  labels = [_labels(path, name, held[name], rows) for name in names]
  parts: list[str | None] = [None] * shape[0]
  if _SPLIT in held:
    parts = _labels(path, _SPLIT, held[_SPLIT], rows)
  keys = list(zip(zip(*labels), parts))
  declared = _UNITS in held and _UNITS not in names
  units = _units(path, held, len(names)) if declared else []
  undeclared = {unit for unit, _ in keys} - {unit for unit, _ in units}
  if declared and undeclared:
    raise DataError(
        f"{path} has rows of {shown('/'.join(min(undeclared)))}, which is not"
        f" among its '{_UNITS}': declare it, or leave the rows out"
    )

  make, image_shape = readers.features_of, None
  if examples == _IMAGES:  # Grey images have no axis of channels.
    make, image_shape = readers.image_of, (*shape[1:], 1)[:3]

  def reader() -> listing_lib.Reader:
    with _reading(path) as file:
      values = file[examples]
    return lambda record: make(values[record], f"row {record} of {path}")

  return listing_lib.Listing(
      source=path,
      levels=tuple(levels),
      classes=listing_lib.group(keys, units),
      declared=declared,
      files=(path,),
      shape=image_shape,
      reader=reader,
  )


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[Any]:
  """Yield the open NpzFile; raise DataError if it is damaged."""
  with (
      foreign.reading(
          path, "cannot be read as an .npz of arrays",
          "write it with numpy.savez(file, images=..., **{'class': ...})",
      ),
      # NumPy leaves a damaged file open that it opened itself.
      path.open("rb") as opened,
      np.load(opened, allow_pickle=False) as file,
  ):
    foreign.check_arrays(file)
    yield file


def _fault(path: pathlib.Path, name: str, text: str) -> DataError:
  """Return the error of an array."""
  return DataError(f"array '{name}' of {path} {text}")


def _check_names(
    path: pathlib.Path, held: Collection[str], wanted: Sequence[str]
) -> None:
  """Raise DataError if an array is missing or unknown."""
  unread = set(held) - {*_READ, *wanted}
  both = {_FEATURES, _IMAGES} <= set(held)
  if unread or both or not set(wanted) <= set(held):
    raise DataError(
        f"{path} has the arrays {shown(sorted(held))}: expected"
        f" {shown(list(wanted))}, either '{_IMAGES}' or '{_FEATURES}', and"
        f" optionally '{_SPLIT}', '{_UNITS}' and '{_UNITS_SPLIT}'; name the"
        " label arrays in levels, the outermost first, and then the examples,"
        " as in levels=('writer', 'letter', 'image') (in a command"
        " --config=own_data:levels=writer/letter/image)"
    )


def _check_examples(
    path: pathlib.Path, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
  """Raise DataError unless the examples are images or features."""
  if name == _IMAGES:
    fits = (
        dtype.newbyteorder("=") in (np.uint8, np.uint16)
        and len(shape) in (3, 4)
        and (*shape[3:], 1)[0] in (1, 3)  # Channels.
    )
    wanted = (
        "uint8, such as (255 * values).round().astype('uint8') of values from 0"
        " to 1, or uint16, [n, height, width] or [n, height, width, 1 or 3]"
    )
    if len(shape) == 4 and shape[1] in (1, 3):
      wanted += " (channels last, by numpy.moveaxis(images, 1, -1))"
  else:
    fits = dtype.kind in "biuf" and 2 <= len(shape) <= 4
    wanted = "numbers [n, features], [n, time, channels] or [n, H, W, channels]"
  if not fits or 0 in shape:
    raise _fault(
        path, name,
        f"is {dtype} of shape {shape}: save {wanted}, none of them 0",
    )


def _check_sizes(
    path: pathlib.Path, sizes: dict[str, int], examples: str
) -> None:
  """Refuse labels that decompress to more bytes than the examples need."""
  most = max(_LABEL_BYTES, sizes[examples])
  labels = {name: size for name, size in sizes.items() if name != examples}
  if sum(labels.values()) > most:
    name = max(labels, key=lambda n: labels[n])
    raise _fault(
        path, name,
        f"decompresses to {labels[name]} bytes, and labels may take {most} in"
        " all: save shorter labels, or whole numbers",
    )


def _head(file: Any, name: str) -> tuple[tuple[int, ...], np.dtype]:
  """Return shape and dtype of an array without reading it."""
  with file.zip.open(f"{name}.npy") as array:
    np.lib.format.read_magic(array)
    shape, _, dtype = np.lib.format.read_array_header_1_0(array)
  return shape, dtype


def _check_held(path: pathlib.Path, held: Arrays) -> None:
  """Refuse text that is damaged, and labels that no such file can hold.

  A label takes no byte of a file that repeats one label, and a hundred bytes of
  memory.
  """
  most = max(_ROWS, path.stat().st_size)
  for name, array in held.items():
    if array.size > most:
      raise _fault(
          path, name,
          f"has {array.size} labels, more than {most}, which a file of this"
          " size can hold: save fewer rows",
      )
    if array.dtype.kind == "U":
      try:
        "".join(array.ravel().tolist()).encode()
      except (UnicodeError, ValueError, SystemError) as e:
        raise _fault(
            path, name,
            "holds characters that do not exist"
            f" ({foreign.reason(e, path)}): save its text again",
        ) from e


def _labels(
    path: pathlib.Path, name: str, array: np.ndarray, shape: tuple[int, ...]
) -> list[Any]:
  """Return an array of labels as lists of text; DataError if it is invalid."""
  if array.dtype.kind not in "biuUS" or array.shape != shape:
    raise _fault(
        path, name,
        f"is {array.dtype} of shape {array.shape}: give whole numbers or"
        f" strings of shape {shape}",
    )
  if array.dtype.kind == "S":
    try:
      array = np.char.decode(array, "utf-8")
    except UnicodeDecodeError as e:
      raise _fault(
          path, name,
          f"holds {shown(e.object)}, which is no text in UTF-8: decode the"
          " bytes and save strings",
      ) from e
  if array.ndim == 1:
    array = labels_lib.read(f"array '{name}' of {path}", array)
  found: list[Any] = array.astype(str).tolist()
  return found


def _units(
    path: pathlib.Path, held: Arrays, depth: int
) -> list[listing_lib.Key]:
  """Return every declared unit and its part."""
  units = held[_UNITS]
  if depth == 1 and units.ndim == 1:
    units = units[:, None]
  rows = units.shape[:1]
  table = _labels(path, _UNITS, units, (*rows, depth))
  parts: list[str | None] = [None] * len(table)
  if _SPLIT in held:
    if _UNITS_SPLIT not in held:
      raise DataError(
          f"{path} has '{_UNITS}' and '{_SPLIT}', but the part of an empty unit"
          f" is not given: add an array '{_UNITS_SPLIT}'"
      )
    parts = _labels(path, _UNITS_SPLIT, held[_UNITS_SPLIT], rows)
  for row in table:
    named = depth
    if "" in row:
      named = row.index("")
    if not named or any(row[named:]):
      raise _fault(
          path, _UNITS,
          f"has the row {shown(row)}: only labels at its end may be empty",
      )
  return [(tuple(filter(None, row)), p) for row, p in zip(table, parts)]
