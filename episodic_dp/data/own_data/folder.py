"""A folder tree of examples: `class/image`, `group/class/image` or deeper.

The folders at the top may also be `train`, `validation` and `test`, each a tree
of its own. Which files are examples, `readers.formats` says: pictures, DICOM
and .npy; and text tables (.csv, .tsv) in a tree that has none of these, for
beside them a table describes the data. Other files are left out, with one
warning. Every page of a file of several is an example.

The folders are the public list of the units: one that holds no example is an
empty unit, which is drawn like any other. Symbolic links are refused: a record
that is reached twice would be in two units, which no guarantee allows for.
"""

from collections.abc import Collection, Sequence
import os
import pathlib

from absl import logging
import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data.readers import collection
from episodic_dp.data.own_data.readers import formats

_DEFAULT_LEVELS = {1: ("class", "image"), 2: ("group", "class", "image")}
_JUNK = ("thumbs.db", "desktop.ini", "__macosx")


class Walk:
  """Collects the files and classes of a tree.

  Args:
    root: the folder.
    tables: whether text tables are the examples, and nothing else is.
  """

  def __init__(self, root: pathlib.Path, *, tables: bool):
    self.root = root
    self.files = collection.Collection(root)
    self.strays: set[str] = set()
    self.has_tables = False
    self.classes: list[listing_lib.Class] = []
    self._tables = tables

  def entries(self, relative: str) -> tuple[list[str], list[os.DirEntry[str]]]:
    """The folders and the examples of a folder, each in rising order."""
    folders, examples = [], []
    try:
      with os.scandir(self.root / relative) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    except OSError as e:
      raise ValueError(
          f"{self.root / relative} cannot be read ({e.strerror}): give the"
          " right to read it, or remove it"
      ) from e
    for entry in entries:
      if entry.name.startswith(".") or entry.name.lower() in _JUNK:
        continue
      if entry.is_symlink():
        raise ValueError(
            f"{entry.path} is a symbolic link: put what it points to in"
            " its place, for a record must be in one unit only"
        )
      if entry.is_dir():
        folders.append(entry.name)
      elif entry.is_file() and self._is_example(entry):
        examples.append(entry)
      else:
        self.strays.add(os.path.join(relative, entry.name))
    return folders, examples

  def _is_example(self, entry: os.DirEntry[str]) -> bool:
    found = formats.format_of(entry.path)
    if found is not None and found.table:
      self.has_tables = True
    return found is not None and found.table == self._tables

  def add(self, relative: str, path: tuple[str, ...], part: str | None) -> None:
    """Adds the classes below a folder."""
    folders, examples = self.entries(relative)
    if folders and examples:
      raise ValueError(
          f"{examples[0].path} lies beside folders: put it into the folder of"
          " its class, or remove it"
      )
    if examples and not path:
      raise ValueError(
          f"{examples[0].path} is in no class: make one folder per class and"
          " put the files there"
      )
    for name in folders:
      self.add(os.path.join(relative, name), (*path, name), part)
    if path and not folders:
      records = [
          self.files.add(os.path.join(relative, entry.name), entry.stat())
          for entry in examples
      ]
      self.classes.append(
          listing_lib.Class(
              path=path,
              records=np.concatenate([np.zeros(0, np.int64), *records]),
              part=part,
          )
      )


def listing(
    root: pathlib.Path, levels: Sequence[str] | None = None
) -> listing_lib.Listing:
  """Lists a tree without opening an image.

  Args:
    root: the folder.
    levels: names, one for each folder on the way to an image and one for the
      images; None means class, image or group, class, image.

  Raises:
    ValueError: the tree is not of one depth, or holds what no class holds; one
      sentence that names the file.
  """
  walk = _walked(root, tables=False)
  if not walk.files.examples and walk.has_tables:
    walk = _walked(root, tables=True)
  levels = _levels_of(walk, levels)
  if walk.strays:
    logging.warning(
        "left out %d %s of %s without an example, such as %s",
        len(walk.strays), _plural("file", walk.strays), root, min(walk.strays),
    )
  empty = ["/".join(c.path) for c in walk.classes if not len(c.records)]
  if empty:
    logging.warning(
        "counted as empty units: %d %s of %s without an example, such as %s",
        len(empty), _plural("folder", empty), root, min(empty),
    )
  return listing_lib.Listing(
      source=root,
      levels=levels,
      classes=tuple(sorted(walk.classes, key=lambda c: c.path)),
      declared=True,
      fingerprint=walk.files.fingerprint,
      shape=None,
      reader=walk.files.reader,
      name_of=walk.files.name_of,
  )


def _plural(noun: str, things: Collection[object]) -> str:
  return noun if len(things) == 1 else f"{noun}s"


def _deep(depth: int) -> str:
  return f"{depth} {_plural('folder', range(depth))} deep"


def _walked(root: pathlib.Path, *, tables: bool) -> Walk:
  """The whole tree, with its parts where the folders at the top name them."""
  walk = Walk(root, tables=tables)
  top, _ = walk.entries("")
  named = [part for part in dataset.PARTS if part in top]
  if named and sorted(top) != sorted(dataset.PARTS):
    raise ValueError(
        f"{root} has the folders {', '.join(top[:9])}: give it train,"
        " validation and test and nothing beside them, or only folders with"
        " other names"
    )
  for part in dataset.PARTS if named else ():
    walk.add(part, (), part)
  if not named:
    walk.add("", (), None)
  return walk


def _levels_of(walk: Walk, levels: Sequence[str] | None) -> tuple[str, ...]:
  """The names of the levels; ValueError unless all images fit them."""
  if not walk.files.examples:
    raise ValueError(
        f"{walk.root} holds no file that is read (such as .png, .jpg, .dcm,"
        " .npy or .csv): add some"
    )
  depths = {len(c.path): c for c in reversed(walk.classes) if len(c.records)}
  if len(depths) > 1:
    (one, a), (other, b) = sorted(depths.items())[:2]
    raise ValueError(
        f"{walk.files.name_of(a.records[0])} is {_deep(one)} and"
        f" {walk.files.name_of(b.records[0])} {other} in {walk.root}: bring all"
        " files to one depth"
    )
  (depth,) = depths
  for unit in walk.classes:
    if len(unit.path) > depth:
      raise ValueError(
          f"the empty folder {'/'.join(unit.path)} is {_deep(len(unit.path))}"
          f" in {walk.root} and the files are {depth}: remove it"
      )
  names = _DEFAULT_LEVELS.get(depth, ()) if levels is None else tuple(levels)
  if len(names) != depth + 1:
    remedy = f"name {depth + 1} levels, the files last"
    if depth in _DEFAULT_LEVELS:
      remedy += f", as in levels={'/'.join(_DEFAULT_LEVELS[depth])}"
    if levels is not None:  # Those of a trained run cannot be named anew.
      remedy = f"give the --data_dir that has these levels, or {remedy}"
    raise ValueError(
        f"{walk.root} has files {_deep(depth)} and the levels are {names}:"
        f" {remedy}"
    )
  return names
