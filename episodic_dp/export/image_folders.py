"""Folders of one's own examples: support, a folder a class; query, or flat.

They are read by the readers of own data, and made rows as the run made its own.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

from absl import logging
import numpy as np

from episodic_dp import errors
from episodic_dp.data.own_data import folder as own_folder
from episodic_dp.export import description
from episodic_dp.export import preprocessing
from episodic_dp.output import phases
from episodic_dp.output import quoting


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
  """The examples of a folder, none of them read yet.

  Attributes:
    root: the folder.
    walk: what was found in it.
    numbers: of the examples, in rising order of their files.
    labels: the class of each, the name of its folder; None for a flat folder.
  """

  root: pathlib.Path
  walk: own_folder.Walk
  numbers: tuple[int, ...]
  labels: tuple[str, ...] | None

  @property
  def names(self) -> list[str]:
    """Where each lies below the root, and its page where a file has several."""
    found = (self.walk.files.name_of(number) for number in self.numbers)
    return [name.replace(f"{self.root}{os.sep}", "") for name in found]

  @property
  def classes(self) -> tuple[str, ...]:
    """The names of the classes, sorted; none of a flat folder."""
    return tuple(sorted(set(self.labels or ())))


def support(path: str | os.PathLike[str]) -> Listing:
  """Lists a folder that holds a folder of examples for each class.

  Raises:
    RunError, ValueError: it does not; one sentence that names the place.
  """
  found = _listed(pathlib.Path(path), "--support")
  if found.labels is None:
    raise errors.RunError(
        f"{found.root / found.names[0]} is in no class: give --support a folder"
        " for each class, with its images in it"
    )
  if len(found.classes) < 2:
    raise errors.RunError(
        f"{found.root} has the class {found.classes[0]!r} alone: give folders"
        " of at least two classes"
    )
  return found


def query(path: str | os.PathLike[str], classes: Sequence[str]) -> Listing:
  """Lists the examples to classify: flat, or a folder for each class.

  Args:
    path: of the folder.
    classes: of the support set.

  Raises:
    RunError, ValueError: there are none, or a folder is of no class of the
      support set; one sentence that names the place.
  """
  found = _listed(pathlib.Path(path), "--query")
  for name in found.classes:
    if name not in classes:
      known = ", ".join(map(quoting.printable, classes))
      raise errors.RunError(
          f"{found.root / quoting.printable(name)} is no class of the support"
          f" ({known}): add it there, or put its images right into"
          f" {found.root}, with all others, to have them classified unlabelled"
      )
  return found


def rows(listing: Listing, how: description.Preprocessing) -> np.ndarray:
  """Reads all examples as rows [n, ...].

  Raises:
    ValueError: one cannot be read, or is of another kind; names the file.
  """
  read, found = listing.walk.files.reader(), []
  with (
      phases.phase(f"reading {listing.root}"),
      phases.progress(len(listing.numbers), "image") as progress,
  ):
    for number in listing.numbers:
      name = listing.walk.files.name_of(number)
      found.append(preprocessing.row(how, read(number), name))
      progress.update()
  return np.stack(found)


def _listed(root: pathlib.Path, flag: str) -> Listing:
  if not root.is_dir():
    raise errors.RunError(
        f"{root} is no folder: give {flag} a folder of images"
    )
  found = _walked(root, tables=False)
  if not found.numbers and found.walk.has_tables:
    found = _walked(root, tables=True)
  if found.walk.strays:
    logging.warning(
        "left out %d files of %s that are no examples, such as %s",
        len(found.walk.strays), root, min(found.walk.strays),
    )
  if not found.numbers:
    raise errors.RunError(
        f"{root} holds no file that is read (such as .png, .jpg, .dcm or .npy):"
        f" give {flag} a folder of images"
    )
  return found


def _walked(root: pathlib.Path, *, tables: bool) -> Listing:
  """A listing, of which the examples may be none."""
  walk = own_folder.Walk(root, tables=tables)
  folders, flat = walk.entries("")
  if folders and flat:
    raise errors.RunError(
        f"{flat[0].path} lies beside folders: give a folder for each class, or"
        " images alone"
    )
  numbers: list[int] = []
  labels: list[str] = []
  for name in folders or [""]:
    deeper, files = walk.entries(name)
    if name and deeper:
      raise errors.RunError(
          f"{root / name / deeper[0]} is a folder in the folder of a class: put"
          f" the images of {name!r} right into {root / name}"
      )
    for entry in files:
      added = walk.files.add(os.path.join(name, entry.name), entry.stat())
      numbers += added.tolist()
      labels += [name] * len(added)
    # Of a table's tree the first walk finds nothing at all.
    if name and not files and (tables or not walk.has_tables):
      raise errors.RunError(
          f"{root / name} holds no image: add some, or remove the folder"
      )
  return Listing(
      root=root,
      walk=walk,
      numbers=tuple(numbers),
      labels=tuple(labels) if folders else None,
  )
