"""A folder tree of images: `class/image`, `group/class/image` or deeper.

The folders at the top may also be `train`, `validation` and `test`, each a tree
of its own. A file whose suffix Pillow knows is an image; other files are left
out, with one warning. The folders are the public list of the units: one that
holds no image is an empty unit, which is drawn like any other. Symbolic links
are refused: a record that is reached twice would be in two units, which no
guarantee allows for.
"""

from collections.abc import Sequence
import functools
import hashlib
import os
import pathlib

from absl import logging
import numpy as np
from PIL import Image

from episodic_dp.data import dataset
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import pictures

_DEFAULT_LEVELS = {1: ("class", "image"), 2: ("group", "class", "image")}
_JUNK = ("thumbs.db", "desktop.ini", "__macosx")


class _Walk:
  """Collects the files and classes of a tree."""

  def __init__(self, root: pathlib.Path):
    self.root = root
    self.files: list[str] = []  # Relative to the root.
    self.strays: set[str] = set()
    self.classes: list[listing_lib.Class] = []
    self._digest = hashlib.sha256()

  @property
  def fingerprint(self) -> str:
    return self._digest.hexdigest()

  def entries(self, relative: str) -> tuple[list[str], list[os.DirEntry[str]]]:
    """The folders and the images of a folder, each in rising order."""
    folders, images = [], []
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
            f"{entry.path} is a symbolic link: put the file itself in its"
            " place, for a record must be in one unit only"
        )
      if entry.is_dir():
        folders.append(entry.name)
      elif entry.is_file() and _is_image(entry.name):
        images.append(entry)
      else:
        self.strays.add(os.path.join(relative, entry.name))
    return folders, images

  def add(self, relative: str, path: tuple[str, ...], part: str | None) -> None:
    """Adds the classes below a folder."""
    folders, images = self.entries(relative)
    if folders and images:
      raise ValueError(
          f"{images[0].path} lies beside folders: put it into the folder of"
          " its class, or remove it"
      )
    if images and not path:
      raise ValueError(
          f"{images[0].path} is in no class: make one folder per class and put"
          " the images there"
      )
    for name in folders:
      self.add(os.path.join(relative, name), (*path, name), part)
    if path and not folders:
      first = len(self.files)
      for entry in images:
        self._file(os.path.join(relative, entry.name), entry.stat())
      records = np.arange(first, len(self.files))
      self.classes.append(
          listing_lib.Class(path=path, records=records, part=part)
      )

  def _file(self, name: str, status: os.stat_result) -> None:
    self.files.append(name)
    self._digest.update(os.fsencode(name))
    # No file name holds a zero byte: names and numbers cannot run together.
    self._digest.update(
        f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode()
    )


@functools.cache
def _suffixes() -> frozenset[str]:
  known = Image.registered_extensions()
  return frozenset(s for s, kind in known.items() if kind in Image.OPEN)


def _is_image(name: str) -> bool:
  return os.path.splitext(name)[1].lower() in _suffixes()


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
  walk = _Walk(root)
  top, _ = walk.entries("")
  named = [part for part in dataset.PARTS if part in top]
  if named:
    if sorted(top) != sorted(dataset.PARTS):
      raise ValueError(
          f"{root} has the folders {', '.join(top[:9])}: give it train,"
          " validation and test and nothing beside them, or only folders with"
          " other names"
      )
    for part in dataset.PARTS:
      walk.add(part, (), part)
  else:
    walk.add("", (), None)
  levels = _levels_of(walk, levels)
  if walk.strays:
    logging.warning(
        "left out %d files of %s that are no images, such as %s",
        len(walk.strays), root, min(walk.strays),
    )
  empty = ["/".join(c.path) for c in walk.classes if not len(c.records)]
  if empty:
    logging.warning(
        "%d folders of %s hold no image, such as %s: they are empty units",
        len(empty), root, min(empty),
    )
  files = walk.files

  def reader() -> listing_lib.Reader:
    return lambda record: pictures.read(root / files[record])

  return listing_lib.Listing(
      source=root,
      levels=levels,
      classes=tuple(sorted(walk.classes, key=lambda c: c.path)),
      declared=True,
      fingerprint=walk.fingerprint,
      shape=None,
      reader=reader,
  )


def _levels_of(walk: _Walk, levels: Sequence[str] | None) -> tuple[str, ...]:
  """The names of the levels; ValueError unless all images fit them."""
  if not walk.files:
    raise ValueError(
        f"{walk.root} holds no image that Pillow knows by its suffix (such as"
        " .png or .jpg): add some"
    )
  depths = {len(c.path): c for c in reversed(walk.classes) if len(c.records)}
  if len(depths) > 1:
    (one, a), (other, b) = sorted(depths.items())[:2]
    raise ValueError(
        f"{walk.files[a.records[0]]} is {one} folders deep and"
        f" {walk.files[b.records[0]]} {other} in {walk.root}: bring all images"
        " to one depth"
    )
  (depth,) = depths
  for unit in walk.classes:
    if len(unit.path) > depth:
      raise ValueError(
          f"the empty folder {'/'.join(unit.path)} is {len(unit.path)} folders"
          f" deep in {walk.root} and the images are {depth}: remove it"
      )
  names = _DEFAULT_LEVELS.get(depth, ()) if levels is None else tuple(levels)
  if len(names) != depth + 1:
    raise ValueError(
        f"{walk.root} has images {depth} folders deep and the levels are"
        f" {names}: name {depth + 1} levels, the images last"
    )
  return names
