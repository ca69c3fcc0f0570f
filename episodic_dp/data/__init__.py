"""Data sets: images (or points) in arrays, with the tree of their units.

`load(name)` returns disjoint training, validation and test data. The loaders
are imported on first use, so that importing this package stays quick.
"""

import importlib
import inspect
import os
from typing import Any

from episodic_dp.data.dataset import ArrayDataset
from episodic_dp.data.dataset import as_examples
from episodic_dp.data.dataset import Dataset
from episodic_dp.data.dataset import Splits

__all__ = [
    "NAMES",
    "ArrayDataset",
    "Dataset",
    "Splits",
    "as_examples",
    "load",
]

# Where each data set's function `load` stands.
_LOADERS = {
    "cifar_fs": "episodic_dp.data.cifar_fs.load",
    "glyphs": "episodic_dp.data.glyphs",
    "mini_imagenet": "episodic_dp.data.mini_imagenet.load",
    "omniglot": "episodic_dp.data.omniglot.load",
    "own_data": "episodic_dp.data.own_data.load",
    "sinusoid": "episodic_dp.data.sinusoid",
}
NAMES = tuple(_LOADERS)


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    **options: Any,
) -> Splits:
  """Loads or generates a data set by name.

  Args:
    name: one of `NAMES`: "glyphs" and "sinusoid" are generated, "own_data"
      is a folder of images or an .npz of yours, the others are read from their
      original files; the options of each are those of its `load`, such as
      `omniglot.load.load`.
    data_dir: folder with the original files, for data sets that have any; for
      "own_data" the folder or the .npz itself.
    download: fetch the original files where data_dir does not have them.
    **options: the keyword arguments of the data set's own `load`.

  Raises:
    ValueError: unknown name or option, with the known ones.
    FileNotFoundError: the original files are not there, with the remedy.
  """
  if name not in NAMES:
    raise ValueError(f"unknown data set {name!r}: the known ones are {NAMES}")
  loader = importlib.import_module(_LOADERS[name]).load
  known = inspect.signature(loader).parameters
  unknown = sorted(set(options) - set(known))
  if unknown:
    raise ValueError(
        f"data set '{name}' has no option {unknown[0]!r}: the known ones are"
        f" {sorted(set(known) - {'data_dir', 'download'})}"
    )
  # Where the files come from; generated data sets have none.
  source = {"data_dir": data_dir, "download": download}
  options |= {k: v for k, v in source.items() if k in known}
  return loader(**options)
