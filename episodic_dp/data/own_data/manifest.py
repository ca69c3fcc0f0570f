"""A table (.csv) of files with their labels, which need not be nested folders.

  file,patient,diagnosis
  scans/001.png,p17,benign
  scans/002.png,p17,malign

`file` is a path, from the folder of the table; every other column is a label.
`levels` says which columns make the tree, from the top down, and what the
examples are called: diagnosis/patient/image, or patient/diagnosis/image. So a
patient may have images of several diagnoses (the levels cross). A column
`split` of train, validation and test divides the rows; columns that no level
names are left out, with one warning.

Which units there are is read off the rows: see `Hierarchy.units_from_records`.
"""

from collections.abc import Sequence
import csv
import pathlib

from absl import logging
import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data.readers import collection
from episodic_dp.data.own_data.readers import formats
from episodic_dp.errors import shown

_FILE, _SPLIT = "file", "split"

Row = dict[str, str]


def listing(
    path: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """Lists the files of a table without opening one of them.

  Args:
    path: the table.
    levels: names of columns, primary level first, and a name for the examples;
      None takes the one label column as the class.

  Raises:
    ValueError: a column, a label or a file is missing, or a file is named
      twice; one sentence that names the row.
  """
  rows, columns = _rows(path)
  names = _levels_of(path, columns, levels)
  files = collection.Collection(path.parent)
  held: dict[tuple[tuple[str, ...], str | None], list[np.ndarray]] = {}
  seen: dict[pathlib.Path, int] = {}
  for number, row in enumerate(rows, 2):  # The header is line 1.
    name = row[_FILE]
    # Two names of one file, by a link, are one record.
    first = seen.setdefault((path.parent / name).resolve(), number)
    if first != number:
      raise ValueError(
          f"{path} names the file {shown(name)} in lines {first} and"
          f" {number}: a record must be in one unit only, so leave one of them"
          " out"
      )
    unit = tuple(_label(path, number, row, level) for level in names[:-1])
    part = _part(path, number, row) if _SPLIT in columns else None
    held.setdefault((unit, part), []).append(_add(path, number, name, files))
  return listing_lib.Listing(
      source=path,
      levels=names,
      classes=tuple(
          listing_lib.Class(path=unit, records=np.concatenate(parts), part=part)
          for (unit, part), parts in sorted(
              held.items(), key=lambda item: (item[0][0], str(item[0][1]))
          )
      ),
      declared=False,
      fingerprint=files.fingerprint,
      shape=None,
      reader=files.reader,
      name_of=files.name_of,
  )


def _rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
  """The rows of a table, and its columns."""
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
  if _FILE not in columns or len(set(columns)) < len(columns):
    raise ValueError(
        f"{path} has the columns {columns}: give it one header line with the"
        f" column '{_FILE}' and one column for each label, such as"
        " file,patient,diagnosis"
    )
  if not rows:
    raise ValueError(f"{path} has no row below its header: name some files")
  for number, row in enumerate(rows, 2):
    if None in row or None in row.values():
      raise ValueError(
          f"line {number} of {path} has another number of fields than the"
          f" header ({len(columns)}): correct it, with quotes around a field"
          " that holds a comma"
      )
  return rows, columns


def _levels_of(
    path: pathlib.Path, columns: Sequence[str], levels: Sequence[str] | None
) -> tuple[str, ...]:
  """The names of the levels, the examples last."""
  labels = [c for c in columns if c not in (_FILE, _SPLIT)]
  example = f"levels={'/'.join([*(labels or ['class']), 'image'])}"
  if levels is None:
    if len(labels) != 1:
      raise ValueError(
          f"{path} has the label columns {labels}: name the levels from the top"
          f" down and then the examples, such as {example}"
      )
    return labels[0], "image"
  missing = [level for level in levels[:-1] if level not in labels]
  if missing or len(levels) < 2:
    raise ValueError(
        f"{path} has the label columns {labels} and the levels are"
        f" {tuple(levels)}: name columns, from the top down, and then the"
        f" examples, such as {example}"
    )
  unread = sorted(set(labels) - set(levels))
  if unread:
    logging.warning("left out the columns %s of %s", unread, path)
  return tuple(levels)


def _label(path: pathlib.Path, number: int, row: Row, level: str) -> str:
  """A row's label; ValueError where it is empty."""
  value = row[level].strip()
  if not value:
    raise ValueError(
        f"line {number} of {path} has no {level}: give it one, or leave the"
        " line out"
    )
  return value


def _part(path: pathlib.Path, number: int, row: Row) -> str:
  """The part that a row is for."""
  value = row[_SPLIT].strip()
  if value not in dataset.PARTS:
    raise ValueError(
        f"line {number} of {path} has the split {shown(value)}: write"
        f" {', '.join(dataset.PARTS)}"
    )
  return value


def _add(
    path: pathlib.Path, number: int, name: str, files: collection.Collection
) -> np.ndarray:
  """The records of a row's file."""
  try:
    found = path.parent / name
    status = found.stat()
  except (OSError, ValueError) as e:
    raise ValueError(
        f"line {number} of {path} names the file {shown(name)}, which cannot be"
        f" read ({getattr(e, 'strerror', None) or e}): paths are from the"
        " folder of the table"
    ) from e
  if formats.format_of(found) is None:
    raise ValueError(
        f"line {number} of {path} names {shown(name)}, which is of no format"
        " that is read (such as .png, .jpg, .dcm, .npy or .csv): convert it, or"
        " leave the line out"
    )
  return files.add(name, status)
