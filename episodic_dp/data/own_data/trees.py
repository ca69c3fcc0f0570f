"""Own data in files: a folder tree, or a table of files and labels.

A folder tree is `class/image`, `group/class/image` or deeper. The top folders
may also be `train`, `validation` and `test`, each with a separate tree.
`readers` decides which files are examples; others are left out, with one
warning. The folders are the public list of the units. A folder without an
example is an empty unit, which is sampled like any other. Symbolic links are
refused: a record that is reached twice would be in two units, which no
guarantee covers.

A table (.csv) does not need nested folders:

  file,patient,diagnosis
  scans/001.png,p17,benign
  scans/002.png,p17,malign

`file` is a path, relative to the table's folder; every other column is a label.
`levels` names the columns that make the tree, from the top down, and then the
examples: diagnosis/patient/image, or patient/diagnosis/image. So a patient may
have images of several diagnoses (the levels cross). A column `split` of train,
validation and test divides the rows. Columns that no level names are left out.
The units are those of the rows: see `Hierarchy.units_from_records`. A path is
found in either Unicode form. Blanks at the end of a label belong to it.
"""

from collections.abc import Iterable, Sequence
import csv
import os
import pathlib
import stat
from typing import NamedTuple
import unicodedata

from absl import logging

from episodic_dp import foreign
from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows
from episodic_dp.errors import DataError
from episodic_dp.errors import shown

_DEFAULT_LEVELS = {1: ("class", "image"), 2: ("group", "class", "image")}
_JUNK = ("thumbs.db", "desktop.ini", "__macosx")
_FILE, _SPLIT = "file", "split"


def _listing(
    source: pathlib.Path,
    root: pathlib.Path,
    files: Sequence[str],
    levels: tuple[str, ...],
    classes: tuple[listing_lib.Class, ...],
    *,
    declared: bool,
) -> listing_lib.Listing:
  """Return the listing of files, whose records are their numbers."""
  paths = tuple(root / name for name in files)
  return listing_lib.Listing(
      source=source,
      levels=levels,
      classes=classes,
      declared=declared,
      files=paths,
      shape=None,
      reader=lambda: lambda number: readers.read(paths[number]),
  )


class Scan(NamedTuple):
  """The content of a folder and its subfolders, in ascending order.

  Attributes:
    files: names of files that are examples, relative to the root.
    owners: the folder of each file, as the names on the way to it.
    leaves: folders without a folder in them.
    others: names of other files.
  """

  files: list[str]
  owners: list[tuple[str, ...]]
  leaves: list[tuple[str, ...]]
  others: list[str]


def scan(
    root: pathlib.Path,
    path: tuple[str, ...] = (),
    found: Scan | None = None,
) -> Scan:
  """List a folder and its subfolders without opening a file.

  Hidden files and those of file managers are left out.

  Args:
    root: the folder.
    path: names of the folders from the root to the listed one.
    found: result to extend; None starts an empty one.

  Raises:
    DataError: a symbolic link.
    OSError: a folder cannot be read.
  """
  found = found or Scan([], [], [], [])
  with os.scandir(root.joinpath(*path)) as entries:
    ordered = sorted(entries, key=lambda entry: entry.name)
  leaf = True
  for entry in ordered:
    if entry.name.startswith(".") or entry.name.lower() in _JUNK:
      continue
    if entry.is_symlink():
      raise DataError(
          f"{entry.path} is a symbolic link: replace it by its target, for a"
          " record must be in one unit only"
      )
    name = os.path.join(*path, entry.name)
    if entry.is_dir():
      leaf = False
      scan(root, (*path, entry.name), found)
    elif entry.is_file() and readers.reader_of(entry.path) is not None:
      found.files.append(name)
      found.owners.append(path)
    else:
      found.others.append(name)
  if leaf:
    found.leaves.append(path)
  return found


def folder_listing(
    root: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """List a tree without opening an image.

  Args:
    root: the folder.
    levels: names, one for each folder on the path of an image and one for the
      images; None means class, image or group, class, image.

  Raises:
    DataError: the files have different depths, or a file is in no class; the
      message names the file.
  """
  found = scan(root)
  top = sorted({path[0] for path in found.leaves if path})
  parts = set(dataset.PARTS)
  names_parts = not parts.isdisjoint(map(str.lower, top))
  if names_parts and parts != set(top):
    raise DataError(
        f"{root} has the folders {', '.join(top[:9])}: give it train,"
        " validation and test and nothing else, or only folders with"
        " other names"
    )

  def key_of(path: tuple[str, ...]) -> listing_lib.Key:
    if names_parts:
      return path[1:], path[0]
    return path, None

  units = {key_of(path) for path in found.leaves if key_of(path)[0]}
  keys = [key_of(path) for path in found.owners]
  for key, name in zip(keys, found.files):
    if key not in units:
      raise DataError(
          f"{root / name} is beside folders, so it is in no folder of a class:"
          " put it into one, or bring all files to one depth"
      )
  tables = [n for n in found.others if n.endswith((".csv", ".npz"))]
  instead = ""
  if tables:
    instead = f"; or give the table, {root / min(tables)}"
  names = _folder_levels(root, keys, units, levels, instead)
  empty = ["/".join(path) for path, _ in units - set(keys)]
  for what, some in (
      ("left out %d of the files of %s as no examples: %s", found.others),
      ("counted %d of the folders of %s as empty units: %s", empty),
  ):
    if some:
      logging.warning(what, len(some), root, shown(sorted(some)))
  classes = listing_lib.group(keys, units)
  return _listing(root, root, found.files, names, classes, declared=True)


def _folder_levels(
    root: pathlib.Path,
    keys: Sequence[listing_lib.Key],
    units: Iterable[listing_lib.Key],
    levels: Sequence[str] | None,
    instead: str,
) -> tuple[str, ...]:
  """Return the names of the levels; DataError unless all files fit them.

  The error ends with `instead`.
  """
  if not keys:
    raise DataError(
        f"{root} holds no file that can be read (such as .png, .jpg, .dcm or"
        " .npy):"
        f" add some{instead}"
    )
  depth = max(len(path) for path, _ in keys)
  wrong = [path for path, _ in units if len(path) > depth]
  wrong += [path for path, _ in keys if len(path) < depth]
  if wrong:
    raise DataError(
        f"{root / '/'.join(wrong[0])} is at folder depth {len(wrong[0])} and"
        f" other files at {depth}: bring all files to one depth, and remove"
        " deeper empty folders"
    )
  default = _DEFAULT_LEVELS.get(depth, ())
  names = tuple(levels or default)
  if len(names) != depth + 1:
    example = default or ("...", "image")
    raise DataError(
        f"{root} has files at folder depth {depth} and the levels are"
        f" {names}: name {depth + 1} levels, the files last, as in"
        f" {_named(example)}{instead}"
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
    DataError: a column, a label or a file is missing, or a file is named
      twice; the message names the line.
  """
  lines = _lines(path)
  names = _table_levels(path, list(lines[0]), levels)
  files: list[str] = []
  seen: dict[pathlib.Path, int] = {}
  for number, line in enumerate(lines, 2):  # The header is line 1.
    name = line[_FILE]
    where = f"line {number} of {path} names {shown(name)}"
    # Some systems change the Unicode form of the names that they store.
    forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    target = path.parent / name
    try:
      for form in forms:
        if not os.path.lexists(path.parent / name):
          name = form
      target = (path.parent / name).resolve()
      status = target.stat()
    except (OSError, ValueError) as e:
      remedy = "paths are from the folder of the table"
      if "\\" in name:
        remedy += ", with / in place of \\"
      raise DataError(
          f"{where}, which cannot be read ({foreign.reason(e, target)}):"
          f" {remedy}"
      ) from e
    if not stat.S_ISREG(status.st_mode) or readers.reader_of(target) is None:
      raise DataError(
          f"{where}, which has no supported format (such as .png, .jpg,"
          " .dcm or .npy): convert it, or leave the line out"
      )
    # Two names of one file, as by a link, are one record.
    first = seen.setdefault(target, number)
    if first != number:
      raise DataError(
          f"{path} names the file {shown(name)} in lines {first} and {number}:"
          " a record must be in one unit only, so leave one of them out"
      )
    files.append(name)
  classes = listing_lib.group(
      (tuple(line[n] for n in names[:-1]), line.get(_SPLIT))
      for line in lines
  )
  return _listing(path, path.parent, files, names, classes, declared=False)


def _lines(path: pathlib.Path) -> list[dict[str, str]]:
  """Return the lines of a table as column -> value, none of them empty."""
  try:
    with path.open(newline="", encoding="utf-8-sig") as file:
      table = csv.DictReader(file, strict=True, skipinitialspace=True)
      lines, header = list(table), table.fieldnames or []
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise DataError(
        f"{path} cannot be read as a table ({e}): save it as CSV in UTF-8, with"
        " a header line"
    ) from e
  foreign.check_commas(path, header)
  if _FILE not in header or len(set(header)) < len(header) or not lines:
    raise DataError(
        f"{path} has the columns {shown(header)} and {len(lines)} rows: give it"
        f" one header line with the column '{_FILE}' and one column for each"
        " label, such as file,patient,diagnosis, and rows below"
    )
  for number, line in enumerate(lines, 2):
    # A surplus value has the key None, and a missing one is None.
    # No file name holds a zero byte, and no reader sees one in a label.
    if None in line or not all(
        v and v.strip() and "\0" not in v for v in line.values()
    ):
      raise DataError(
          f"line {number} of {path} has {shown([*line.values()])} for"
          f" {shown(header)}: give it a value in each column, none with a zero"
          " byte, and with quotes around one that holds a comma"
      )
  return lines


def _named(levels: tuple[str, ...]) -> str:
  """Write levels for Python and, in brackets, for a command."""
  command = "/".join(levels)
  return f"levels={levels} (in a command --config=own_data:levels={command})"


def _table_levels(
    path: pathlib.Path, columns: Sequence[str], levels: Sequence[str] | None
) -> tuple[str, ...]:
  """Return the names of the levels, the examples last."""
  labels = [c for c in columns if c not in (_FILE, _SPLIT)]
  if levels is None and len(labels) == 1:
    return labels[0], "image"
  chosen = tuple(levels or ())
  if len(chosen) < 2 or not set(chosen[:-1]) <= set(labels):
    labels = labels or ["class"]
    example, last = (*labels, "image"), labels[-1]
    raise DataError(
        f"{path} has the label columns {labels} and the levels are {chosen}:"
        " name columns, from the top down, and then the examples, such as"
        f" {_named(example)}; if one {last} is in several units above it, add"
        f" {rows.crossing_options(last, divided=_SPLIT in columns)}"
    )
  others = sorted(set(labels).difference(chosen))
  if others:
    logging.warning("left out the columns %s of %s", shown(others), path)
  return chosen
