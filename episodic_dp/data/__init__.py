"""Data sets: images (or points) in arrays, with the tree of their units.

`load(name)` returns disjoint training, validation and test data. The loaders
are imported on first use, so that importing this package stays quick.
"""

from collections.abc import Callable
import dataclasses
import importlib
import inspect
import os
from typing import Any

from episodic_dp.data.dataset import ArrayDataset
from episodic_dp.data.dataset import as_examples
from episodic_dp.data.dataset import Dataset
from episodic_dp.data.dataset import Splits
from episodic_dp.data.own_data import rows

__all__ = [
    "NAMES",
    "ArrayDataset",
    "Dataset",
    "Splits",
    "as_examples",
    "check_data_dir",
    "defaults_of",
    "load",
]

# Where each data set's function `load` stands.
_LOADERS = {
    "cifar_fs": "episodic_dp.data.cifar_fs.load",
    "glyphs": "episodic_dp.data.glyphs",
    "mini_imagenet": "episodic_dp.data.mini_imagenet.load",
    "mnist_writers": "episodic_dp.data.mnist_writers.load",
    "omniglot": "episodic_dp.data.omniglot.load",
    "own_data": "episodic_dp.data.own_data.load",
    "sinusoid": "episodic_dp.data.sinusoid",
}
NAMES = tuple(_LOADERS)
"""The data sets that `load` knows."""
_SOURCES = ("data_dir", "download", "surveyed")
# Those without files; said here, so that no loader is imported to ask it.
GENERATED = ("glyphs", "sinusoid")


def defaults_of(name: str) -> dict[str, Any]:
  """The options of a data set, each with its default.

  Raises:
    ValueError: an unknown name.
  """
  if name == "own_data":
    return dataclasses.asdict(rows.Options())
  parameters = inspect.signature(_loader(name)).parameters
  return {k: p.default for k, p in parameters.items() if k not in _SOURCES}


def check_data_dir(name: str, data_dir: str | os.PathLike[str] | None) -> None:
  """ValueError where a data set is given a folder and reads none.

  Args:
    name: of the data set, or "" where a config names none.
    data_dir: the folder, or None.
  """
  if data_dir is not None and name in ("", *GENERATED):
    what = f"data set '{name}' is generated" if name else "it names no data"
    raise ValueError(
        f"the config does not read --data_dir={os.fspath(data_dir)}, since"
        f" {what}: leave --data_dir out, or take your own data with"
        " --config=own_data"
    )


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    surveyed: Any = None,
    **chosen: Any,
) -> Splits:
  """Loads or generates a data set by name.

  Args:
    name: one of `NAMES`: "glyphs" and "sinusoid" are generated, "own_data"
      is a folder or a file of yours, the others are read from their
      original files; the options of each are those of its `load`, such as
      `omniglot.load.load`.
    data_dir: folder with the original files, for data sets that have any; for
      "own_data" the folder or the .npz itself.
    download: fetch the original files where data_dir does not have them.
    surveyed: of `own_data.load.survey`, where own data are listed already.
    **chosen: the keyword arguments of the data set's own `load`.

  Raises:
    ValueError: unknown name or option, with the known ones; or a data_dir
      that is not read.
    FileNotFoundError: the original files are not there, with the remedy.

  Examples:
    >>> from episodic_dp import data
    >>> train = data.load("sinusoid", participants=50).train
    >>> train.hierarchy.levels
    ('participant', 'point')
  """
  loader, known = _loader(name), defaults_of(name)
  check_data_dir(name, data_dir)
  unknown = sorted(set(chosen) - set(known))
  if unknown:
    raise ValueError(
        f"data set '{name}' has no option {unknown[0]!r}: the known ones are"
        f" {sorted(known)}"
    )
  # Where the files come from; generated data sets have none.
  sources = {"data_dir": data_dir, "download": download, "surveyed": surveyed}
  taken = inspect.signature(loader).parameters
  chosen |= {k: v for k, v in sources.items() if k in taken}
  return loader(**chosen)


def _loader(name: str) -> Callable[..., Splits]:
  if name not in NAMES:
    raise ValueError(f"unknown data set {name!r}: the known ones are {NAMES}")
  return importlib.import_module(_LOADERS[name]).load
