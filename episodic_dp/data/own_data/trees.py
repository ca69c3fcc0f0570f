"""Own examples in files: a folder tree, or a table of files and labels.

A folder tree is `class/image`, `group/class/image` or deeper. The folders at
the top may also be `train`, `validation` and `test`, each a tree of its own.
`readers` says which files are examples; others are left out, with one warning.
The folders are the public list of the units: one that holds no example is an
empty unit, which is sampled like any other. Symbolic links are refused: a
record that is reached twice would be in two units, which no guarantee allows.

A table (.csv) need not follow nested folders:

  file,patient,diagnosis
  scans/001.png,p17,benign
  scans/002.png,p17,malign

`file` is a path, from the folder of the table; every other column is a label.
`levels` says which columns make the tree, from the top down, and what the
examples are called: diagnosis/patient/image, or patient/diagnosis/image. So a
patient may have images of several diagnoses (the levels cross). A column
`split` of train, validation and test divides the rows; columns that no level
names are left out, with one warning. The units are those of the rows: see
`Hierarchy.units_from_records`.
"""

from collections.abc import Sequence
import csv
import hashlib
import os
import pathlib
from typing import NamedTuple

from absl import logging
import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import readers
from episodic_dp.errors import shown

_DEFAULT_LEVELS = {1: ("class", "image"), 2: ("group", "class", "image")}
_JUNK = ("thumbs.db", "desktop.ini", "__macosx")
_FILE, _SPLIT = "file", "split"

Row = dict[str, str]


class Files:
  """Files of examples, numbered in the order in which they are added."""

  def __init__(self, root: pathlib.Path):
    self.root = root
    self.names: list[str] = []
    self._digest = hashlib.sha256()

  @property
  def fingerprint(self) -> str:
    """Return a digest that changes with a file that is added or changed."""
    return self._digest.hexdigest()

  def add(self, name: str, status: os.stat_result) -> int:
    """Add a file below the root and return its number."""
    # No file name holds a zero byte: names and numbers cannot run together.
    self._digest.update(os.fsencode(name))
    self._digest.update(f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    self.names.append(name)
    return len(self.names) - 1

  def read(self, number: int) -> readers.Example:
    """Read the example of a number; ValueError where it cannot be read."""
    return readers.read(self.root / self.names[number])

  def name_of(self, number: int) -> str:
    """Return the path of the example of a number."""
    return str(self.root / self.names[number])

  def listing(
      self,
      source: pathlib.Path,
      levels: tuple[str, ...],
      classes: list[listing_lib.Class],
      *,
      declared: bool,
  ) -> listing_lib.Listing:
    """Return the listing of these files."""
    return listing_lib.Listing(
        source=source,
        levels=levels,
        classes=tuple(
            sorted(classes, key=lambda one: (one.path, str(one.part)))
        ),
        declared=declared,
        fingerprint=self.fingerprint,
        shape=None,
        reader=lambda: self.read,
        name_of=self.name_of,
    )


class Entries(NamedTuple):
  """The entries of a folder, each in rising order.

  Attributes:
    folders: their names.
    examples: the files that are examples.
    strays: the names of other files.
  """

  folders: list[str]
  examples: list[os.DirEntry[str]]
  strays: list[str]


def entries(folder: pathlib.Path) -> Entries:
  """List one folder.

  Raises:
    ValueError: it cannot be read, or holds a symbolic link.
  """
  found = Entries([], [], [])
  try:
    with os.scandir(folder) as scanned:
      ordered = sorted(scanned, key=lambda entry: entry.name)
  except OSError as e:
    raise ValueError(f"{folder} cannot be read ({e.strerror})") from e
  for entry in ordered:
    if entry.name.startswith(".") or entry.name.lower() in _JUNK:
      continue
    if entry.is_symlink():
      raise ValueError(
          f"{entry.path} is a symbolic link: replace it by its target, for a"
          " record must be in one unit only"
      )
    if entry.is_dir():
      found.folders.append(entry.name)
    elif entry.is_file() and readers.reader_of(entry.path) is not None:
      found.examples.append(entry)
    else:
      found.strays.append(entry.name)
  return found


class _Walk:
  """The files and classes of a tree."""

  def __init__(self, root: pathlib.Path):
    self.root = root
    self.files = Files(root)
    self.strays: list[str] = []
    self.classes: list[listing_lib.Class] = []

  def add(self, relative: str, path: tuple[str, ...], part: str | None) -> None:
    """Add the classes below a folder."""
    folders, examples, strays = entries(self.root / relative)
    self.strays += [os.path.join(relative, name) for name in strays]
    if examples and (folders or not path):
      raise ValueError(
          f"{examples[0].path} is in no folder of a class: make one folder per"
          " class and put the files there"
      )
    for name in folders:
      self.add(os.path.join(relative, name), (*path, name), part)
    if path and not folders:
      numbers = [
          self.files.add(os.path.join(relative, entry.name), entry.stat())
          for entry in examples
      ]
      records = np.asarray(numbers, np.int64)
      self.classes.append(
          listing_lib.Class(path=path, records=records, part=part)
      )


def folder_listing(
    root: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """List a tree without opening an image.

  Args:
    root: the folder.
    levels: names, one for each folder on the way to an image and one for the
      images; None means class, image or group, class, image.

  Raises:
    ValueError: the tree is not of one depth, or a file is in no class; names
      the file.
  """
  walk = _Walk(root)
  top = entries(root).folders
  named = [part for part in dataset.PARTS if part in top]
  if named and sorted(top) != sorted(dataset.PARTS):
    raise ValueError(
        f"{root} has the folders {', '.join(top[:9])}: give it train,"
        " validation and test and nothing beside them, or only folders with"
        " other names"
    )
  for part in named:
    walk.add(part, (), part)
  if not named:
    walk.add("", (), None)
  names = _folder_levels(walk, levels)
  if walk.strays:
    logging.warning(
        "left out %d files of %s that are no examples, such as %s",
        len(walk.strays), root, min(walk.strays),
    )
  empty = ["/".join(c.path) for c in walk.classes if not len(c.records)]
  if empty:
    logging.warning(
        "counted %d folders of %s as empty units, such as %s",
        len(empty), root, min(empty),
    )
  return walk.files.listing(root, names, walk.classes, declared=True)


def _folder_levels(
    walk: _Walk, levels: Sequence[str] | None
) -> tuple[str, ...]:
  """Return the names of the levels; ValueError unless all files fit them."""
  if not walk.files.names:
    raise ValueError(
        f"{walk.root} holds no file that is read (such as .png, .jpg, .dcm or"
        " .npy): add some"
    )
  depth = max(len(c.path) for c in walk.classes if len(c.records))
  for unit in walk.classes:
    held, deep = len(unit.records), len(unit.path)
    if deep > depth or (held and deep < depth):
      raise ValueError(
          f"{walk.root / '/'.join(unit.path)} is {deep} folders deep and other"
          f" files are {depth}: bring all files to one depth, and remove deeper"
          " empty folders"
      )
  names = _DEFAULT_LEVELS.get(depth, ()) if levels is None else tuple(levels)
  if len(names) != depth + 1:
    example = "/".join(_DEFAULT_LEVELS.get(depth, ("...", "image")))
    raise ValueError(
        f"{walk.root} has files {depth} folders deep and the levels are"
        f" {names}: name {depth + 1} levels, the files last, as in"
        f" levels={example}"
    )
  return names


def table_listing(
    path: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """List the files of a table without opening one of them.

  Args:
    path: the table.
    levels: names of columns, primary level first, and a name for the examples;
      None takes the one label column as the class.

  Raises:
    ValueError: a column, a label or a file is missing, or a file is named
      twice; names the line.
  """
  rows, columns = _rows(path)
  names = _table_levels(path, columns, levels)
  files = Files(path.parent)
  held: dict[tuple[tuple[str, ...], str | None], list[int]] = {}
  seen: dict[pathlib.Path, int] = {}
  for line, row in enumerate(rows, 2):  # The header is line 1.
    where = f"line {line} of {path}"
    name = row[_FILE]
    target, status = _found(path.parent / name, where, name)
    # Two names of one file, by a link, are one record.
    first = seen.setdefault(target, line)
    if first != line:
      raise ValueError(
          f"{path} names the file {shown(name)} in lines {first} and {line}: a"
          " record must be in one unit only, so leave one of them out"
      )
    part = None
    if _SPLIT in columns:
      part = row[_SPLIT].strip()
      if part not in dataset.PARTS:
        raise ValueError(
            f"{where} has the split {shown(part)}: write"
            f" {', '.join(dataset.PARTS)}"
        )
    unit = tuple(_label(row, level, where) for level in names[:-1])
    held.setdefault((unit, part), []).append(files.add(name, status))
  classes = [
      listing_lib.Class(path=unit, records=np.asarray(found), part=part)
      for (unit, part), found in held.items()
  ]
  return files.listing(path, names, classes, declared=False)


def _rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
  """Return the rows of a table, and its columns."""
  try:
    with path.open(newline="", encoding="utf-8-sig") as file:
      reader = csv.DictReader(file, strict=True, skipinitialspace=True)
      columns = list(reader.fieldnames or ())
      rows = list(reader)
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise ValueError(
        f"{path} cannot be read as a table ({e}): save it as CSV in UTF-8, with"
        " a header line"
    ) from e
  if _FILE not in columns or len(set(columns)) < len(columns) or not rows:
    raise ValueError(
        f"{path} has the columns {shown(columns)} and {len(rows)} rows: give it"
        f" one header line with the column '{_FILE}' and one column for each"
        " label, such as file,patient,diagnosis, and rows below"
    )
  for line, row in enumerate(rows, 2):
    if None in row or None in row.values():
      raise ValueError(
          f"line {line} of {path} has another number of fields than the header"
          f" ({len(columns)}): correct it, with quotes around a field that"
          " holds a comma"
      )
  return rows, columns


def _table_levels(
    path: pathlib.Path, columns: Sequence[str], levels: Sequence[str] | None
) -> tuple[str, ...]:
  """Return the names of the levels, the examples last."""
  labels = [c for c in columns if c not in (_FILE, _SPLIT)]
  if levels is None and len(labels) == 1:
    return labels[0], "image"
  chosen = tuple(levels or ())
  if len(chosen) < 2 or not set(chosen[:-1]) <= set(labels):
    example = "/".join([*(labels or ["class"]), "image"])
    raise ValueError(
        f"{path} has the label columns {labels} and the levels are {chosen}:"
        " name columns, from the top down, and then the examples, such as"
        f" levels={example}"
    )
  unread = sorted(set(labels) - set(chosen))
  if unread:
    logging.warning("left out the columns %s of %s", unread, path)
  return chosen


def _label(row: Row, level: str, where: str) -> str:
  value = row[level].strip()
  if not value:
    raise ValueError(f"{where} has no {level}: give it one, or leave it out")
  return value


def _found(
    path: pathlib.Path, where: str, name: str
) -> tuple[pathlib.Path, os.stat_result]:
  """Return a file of a table, links resolved; ValueError names the line."""
  try:
    target, status = path.resolve(), path.stat()
  except (OSError, ValueError) as e:  # ValueError for a NUL in the name.
    raise ValueError(
        f"{where} names the file {shown(name)}, which cannot be read"
        f" ({getattr(e, 'strerror', None) or e}): paths are from the folder of"
        " the table"
    ) from e
  if readers.reader_of(path) is None:
    raise ValueError(
        f"{where} names {shown(name)}, which is of no format that is read (such"
        " as .png, .jpg, .dcm or .npy): convert it, or leave the line out"
    )
  return target, status
