"""Data sets: images (or points) in arrays, with the tree of their units.

`load(name)` returns disjoint training, validation and test data. The modules of
the data sets are imported on first use, so that importing this package is fast.
Each has a dataclass of its options (`_KINDS`) and a function `load`.
"""

import importlib
import os
from typing import Any

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp.data.dataset import ArrayDataset
from episodic_dp.data.dataset import as_examples
from episodic_dp.data.dataset import Dataset
from episodic_dp.data.dataset import Splits
from episodic_dp.data.originals import Where
from episodic_dp.errors import PlanError

__all__ = ["NAMES", "ArrayDataset", "Dataset", "Splits", "as_examples", "load"]

_KINDS = {
    "cifar_fs": "CifarFS",
    "glyphs": "Glyphs",
    "mini_imagenet": "MiniImageNet",
    "mnist_writers": "MnistWriters",
    "omniglot": "Omniglot",
    "own_data": "OwnData",
    "sinusoid": "Sinusoids",
}
NAMES = tuple(_KINDS)
"""The data sets that `load` knows."""
GENERATED = ("glyphs", "sinusoid")  # Without files.


def read_options(
    name: str, chosen: Any, where: str = "config.data.options"
) -> Any:
  """Return the options of a data set, such as `omniglot.Omniglot`.

  Args:
    name: one of `NAMES`.
    chosen: option -> value; the others have their defaults.
    where: name of the options, for messages.

  Raises:
    PlanError: an unknown name or option, or a value of another type.
  """
  kind = getattr(_module(name), _KINDS[name])
  return plain.from_plain(kind, chosen, name=where, partial=True)


def check_data_dir(name: str, data_dir: str | os.PathLike[str] | None) -> None:
  """Refuse a folder for a data set that does not read files.

  Args:
    name: name of the data set, or "" if a config names none.
    data_dir: folder, or None.

  Raises:
    PlanError: the data set is generated, or the config names none.
  """
  if data_dir is not None and name in ("", *GENERATED):
    what = "the config names no data"
    if name:
      what = f"data set '{name}' is generated"
    raise PlanError(
        f"data_dir={os.fspath(data_dir)!r} is not read, since {what}: leave it"
        " out, or take your own data, 'own_data' (in a command leave --data_dir"
        " out, or take --config=own_data)"
    )


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    surveyed: Any = None,
    **chosen: Any,
) -> Splits:
  """Load or generate a data set by name.

  Args:
    name: one of `NAMES`. "glyphs" and "sinusoid" are generated, "own_data" is a
      folder or a file of yours, the others are read from their original files.
    data_dir: folder with the original files, or with a subfolder of the data
      set's name that has them; for "own_data" the data themselves. Not needed
      for published data that are already prepared.
    cache_dir: folder for prepared data; None for the environment variable
      TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: whether to fetch original files that data_dir does not have.
    surveyed: result of `own_data.load.survey` for own data, if there is one.
    **chosen: fields of the data set's options, such as `omniglot.Omniglot`.

  Returns:
    The three splits, with images uint8[rows, H, W, C] or float32 data.

  Raises:
    PlanError: an unknown name or option (the message lists the known ones), or
      a data_dir that is not read.
    DataError: the data cannot be used; one sentence.
    FileNotFoundError: the original files are missing; the message says how to
      get them.

  Examples:
    >>> from episodic_dp import data
    >>> train = data.load("sinusoid", participants=50).train
    >>> train.hierarchy.levels
    ('participant', 'point')
  """
  _validate.one_of("name", name, NAMES)
  check_data_dir(name, data_dir)
  where = Where(
      data_dir=data_dir, cache_dir=cache_dir, download=download,
      surveyed=surveyed,
  )
  splits: Splits = _module(name).load(read_options(name, chosen, name), where)
  return splits


def _module(name: str) -> Any:
  _validate.one_of("config.data.name", name, NAMES)
  if name == "own_data":
    name = "own_data.load"
  return importlib.import_module(f"episodic_dp.data.{name}")


__dir__ = __all__.copy
