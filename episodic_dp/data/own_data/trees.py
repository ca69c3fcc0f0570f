"""Own data in files: a folder tree, or a table of files and labels.

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

from collections.abc import Iterator, Sequence
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

File = tuple[str, os.stat_result]  # The name below the root, and its status.


def _listing(
    source: pathlib.Path,
    files: Sequence[File],
    levels: tuple[str, ...],
    classes: Sequence[listing_lib.Class],
    *,
    declared: bool,
) -> listing_lib.Listing:
  """Return the listing of files, whose records are their numbers."""
  root = source if source.is_dir() else source.parent
  digest = hashlib.sha256()
  for name, status in files:
    # No file name holds a zero byte: names and numbers cannot run together.
    digest.update(os.fsencode(name))
    digest.update(f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
  names = [name for name, _ in files]
  return listing_lib.Listing(
      source=source,
      levels=levels,
      classes=tuple(sorted(classes, key=lambda c: (c.path, str(c.part)))),
      declared=declared,
      fingerprint=digest.hexdigest(),
      shape=None,
      reader=lambda: lambda number: readers.read(root / names[number]),
      name_of=lambda number: str(root / names[number]),
  )


class Entries(NamedTuple):
  """The entries of a folder, each in rising order.

  Attributes:
    folders: names of the folders.
    examples: files that are examples.
    strays: names of other files.
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


def _walk(
    root: pathlib.Path, below: str = "", path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[File], list[str]]]:
  """Yield path, files and strays of each folder; files only of classes."""
  folders, examples, strays = entries(root / below)
  if examples and (folders or not path):
    raise ValueError(
        f"{examples[0].path} is in no folder of a class: make one folder per"
        " class and put the files there"
    )
  for name in folders:
    yield from _walk(root, os.path.join(below, name), (*path, name))
  files = [(os.path.join(below, e.name), e.stat()) for e in examples]
  yield (
      () if folders else path, files, [os.path.join(below, s) for s in strays]
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
  top = entries(root).folders
  parts: list[str | None] = [part for part in dataset.PARTS if part in top]
  if parts and sorted(top) != sorted(dataset.PARTS):
    raise ValueError(
        f"{root} has the folders {', '.join(top[:9])}: give it train,"
        " validation and test and nothing else, or only folders with"
        " other names"
    )
  files: list[File] = []
  left_out: list[str] = []
  classes = []
  for part in parts or [None]:
    for path, found, strays in _walk(root, part or ""):
      left_out += strays
      if path:
        records = np.arange(len(files), len(files) + len(found))
        classes.append(listing_lib.Class(path, records, part))
        files += found
  names = _folder_levels(root, classes, levels)
  empty = ["/".join(c.path) for c in classes if not len(c.records)]
  for what, some in (
      ("left out %d files of %s that are no examples, such as %s", left_out),
      ("counted %d folders of %s as empty units, such as %s", empty),
  ):
    if some:
      logging.warning(what, len(some), root, min(some))
  return _listing(root, files, names, classes, declared=True)


def _folder_levels(
    root: pathlib.Path,
    classes: Sequence[listing_lib.Class],
    levels: Sequence[str] | None,
) -> tuple[str, ...]:
  """Return the names of the levels; ValueError unless all files fit them."""
  depths = [len(c.path) for c in classes if len(c.records)]
  if not depths:
    raise ValueError(
        f"{root} holds no file that is read (such as .png, .jpg, .dcm or .npy):"
        " add some"
    )
  depth = max(depths)
  for unit in classes:
    deep = len(unit.path)
    if deep > depth or (len(unit.records) and deep < depth):
      raise ValueError(
          f"{root / '/'.join(unit.path)} is {deep} folders deep and other files"
          f" are {depth}: bring all files to one depth, and remove deeper empty"
          " folders"
      )
  names = _DEFAULT_LEVELS.get(depth, ()) if levels is None else tuple(levels)
  if len(names) != depth + 1:
    example = "/".join(_DEFAULT_LEVELS.get(depth, ("...", "image")))
    raise ValueError(
        f"{root} has files {depth} folders deep and the levels are {names}:"
        f" name {depth + 1} levels, the files last, as in levels={example}"
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
  columns = _columns(path)
  names = _table_levels(path, list(columns), levels)
  files: list[File] = []
  seen: dict[pathlib.Path, int] = {}
  for line, name in enumerate(columns[_FILE], 2):  # The header is line 1.
    target, status = _found(path.parent / name, f"line {line} of {path}", name)
    # Two names of one file, by a link, are one record.
    first = seen.setdefault(target, line)
    if first != line:
      raise ValueError(
          f"{path} names the file {shown(name)} in lines {first} and {line}: a"
          " record must be in one unit only, so leave one of them out"
      )
    files.append((name, status))
  labels = [np.asarray(columns[level]) for level in names[:-1]]
  split = np.asarray(columns[_SPLIT]) if _SPLIT in columns else None
  return _listing(
      path, files, names, listing_lib.group(labels, split), declared=False
  )


def _columns(path: pathlib.Path) -> dict[str, list[str]]:
  """Return the values of each column of a table, none of them empty."""
  try:
    with path.open(newline="", encoding="utf-8-sig") as file:
      reader = csv.reader(file, strict=True, skipinitialspace=True)
      header, *rows = [row for row in reader if row] or [[]]
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise ValueError(
        f"{path} cannot be read as a table ({e}): save it as CSV in UTF-8, with"
        " a header line"
    ) from e
  if _FILE not in header or len(set(header)) < len(header) or not rows:
    raise ValueError(
        f"{path} has the columns {shown(header)} and {len(rows)} rows: give it"
        f" one header line with the column '{_FILE}' and one column for each"
        " label, such as file,patient,diagnosis, and rows below"
    )
  for line, row in enumerate(rows, 2):
    if len(row) != len(header) or not all(map(str.strip, row)):
      raise ValueError(
          f"line {line} of {path} has {shown(row)} for {shown(header)}: give it"
          " a value in each column, with quotes around one that holds a comma"
      )
  return {
      name: [value if name == _FILE else value.strip() for value in column]
      for name, column in zip(header, zip(*rows))
  }


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
