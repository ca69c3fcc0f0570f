"""Write a data set as a folder tree of pictures, which own data read again.

The folders are the units, from the top down, such as person/class. A unit
without an image is an empty folder, so that the tree keeps every unit.
"""

import os
import pathlib

import numpy as np
from PIL import Image

from episodic_dp import plan
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.errors import DataError
from episodic_dp.output import files
from episodic_dp.output import phases


def write(
    parts: dict[str, dataset_lib.ArrayDataset], out: str | os.PathLike[str]
) -> int:
  """Write the images of data sets as PNG files below a new folder.

  Args:
    parts: name of a folder below `out`, or "" for `out` itself -> images.
    out: path of the folder, which must not exist or be empty.

  Returns:
    The number of images.

  Raises:
    DataError: the examples are no images, or several units share them.
    RunError: the folder exists.
  """
  for data in parts.values():
    if data.images.dtype != np.uint8:
      raise DataError(f"{data.name} holds numbers: only images are written")
    if data.hierarchy.copies:
      raise DataError(
          f"units of {data.name} share images, and a file is in one folder"
          " only: leave out the synthetic participants"
      )
  total = sum(data.hierarchy.num_leaves for data in parts.values())
  with (
      files.new_folder(out) as root,
      phases.progress(total, "image") as progress,
  ):
    people = 0
    for part, data in parts.items():
      paths = _paths(data.hierarchy, root / part, people)
      people += data.hierarchy.num_units(0)
      for row, path in zip(data.hierarchy.rows, paths):
        image = data.images[row]
        if image.shape[-1] == 1:
          image = image[..., 0]
        Image.fromarray(image).save(f"{path}.png")
        progress.update()
  return total


def _paths(
    tree: plan.Hierarchy, root: pathlib.Path, people: int
) -> list[pathlib.Path]:
  """Make the folders of all units; return the paths of the examples.

  Args:
    tree: the units.
    root: the folder of the part.
    people: number of units of the first level in the parts before.
  """
  paths = [root]
  for k in range(tree.depth):
    for path in paths:
      path.mkdir(parents=True, exist_ok=path == root)
    names = _names(tree, k, 0 if k else people)
    paths = [paths[above] / name for above, name in zip(tree.parents(k), names)]
  return paths


def _names(tree: plan.Hierarchy, k: int, first: int) -> list[str]:
  """Name the units of a level: by their labels, or by numbers in a family."""
  names = tree.names_of(k)
  if names is not None:
    return [str(name).replace("/", "_") for name in names]
  parents = tree.parents(k)
  sizes = np.bincount(parents)
  places = np.arange(len(parents)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
  digits = len(str(first + sizes.max() - 1))
  return [f"{tree.levels[k]}{first + place:0{digits}d}" for place in places]
