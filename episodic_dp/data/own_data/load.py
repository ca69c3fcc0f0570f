"""Own data from a folder tree, an NPZ or a table, as a data set.

A folder `class/image` or `group/class/image` (`trees`), an .npz with label
arrays (`npz`) or a .csv of files and labels (`trees`) becomes the tree of
units of the guarantees. Examples are images, or features of one to three axes,
which `rows` brings to one form.

Public by assumption
--------------------
The names of the units, their numbers of records and their parts are public:
they shape the plan, occur in messages and in config.json, and no guarantee
covers them. The shape and the type of the examples are public too. The
guarantee is about the examples of the training part. All validation and test
data are public.

The list of units must not follow from the records. Otherwise removing the last
record of a unit would change the sampling rates of all others. Every folder is
a unit, even an empty one; an .npz declares its units in an array `units`.
Without that array the units are those of the records, and every guarantee below
the first level states the assumption of a public list.

Names of one level that look alike (`plan.labels.check_names`) are refused, in
whichever parts they are: they may be one unit or two.

A record is one file or one row. A copy under another name is another record: a
guarantee for one record does not cover adding or removing all copies.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import dataclasses
import hashlib
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from episodic_dp import plan
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import npz
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.data.own_data import trees
from episodic_dp.data.own_data.rows import OwnData
from episodic_dp.errors import shown
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.plan import stages
from episodic_dp.plan import validation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
  """The records and their units, known before an example is read.

  Attributes:
    listing: records of all parts.
    parts: part -> its classes in tree order.
    hierarchies: part -> the tree of its units.
    channels: the channels that images have; 1 for features.
  """

  listing: listing_lib.Listing
  parts: dict[str, tuple[listing_lib.Class, ...]]
  hierarchies: dict[str, plan.Hierarchy]
  channels: int


def survey(data_dir: originals.Path | None, options: OwnData) -> Survey:
  """List and divide the data without reading an example or importing JAX.

  Args:
    data_dir: a folder tree or a .csv (see `trees`), or an .npz (see `npz`).
    options: options of the units; those of the rows are not read.

  Raises:
    FileNotFoundError: there is no such folder or file.
    DataError: something in it cannot be used; the message names it.
  """
  if data_dir is None:
    raise FileNotFoundError(
        "own_data needs data_dir: give --data_dir=PATH (in Python"
        " data_dir=PATH), a folder class/image or group/class/image, an .npz of"
        " arrays, or a .csv of files and labels"
    )
  path = files.path_of(data_dir)
  suffix = path.suffix.lower()
  if not path.exists():
    raise FileNotFoundError(f"{path} does not exist: give another path")
  if path.is_dir():
    listing = trees.folder_listing(path, options.levels)
  elif path.is_file() and suffix == ".npz":
    listing = npz.listing(path, options.levels)
  elif path.is_file() and suffix == ".csv":
    listing = trees.table_listing(path, options.levels)
  else:
    raise FileNotFoundError(
        f"{path} is neither a folder nor an .npz nor a .csv: give a folder"
        " tree, a file written by numpy.savez, or a table of files and labels"
    )
  parts = listing_lib.divide(listing, options)
  return Survey(
      listing=listing,
      parts=parts,
      hierarchies={
          part: listing_lib.hierarchy(listing, classes, options.crossing)
          for part, classes in parts.items()
      },
      channels=rows_lib.image_shape(options, listing.shape)[-1],
  )


def training_tree(
    found: Survey,
    sampling: plan.SamplingPlan,
    task: Mapping[str, Any],
    privacy_unit: str | None = None,
) -> plan.Hierarchy:
  """Return the tree of the training part, for a plan that suits the data.

  Args:
    found: the listed data.
    sampling: the plan; without an episode single images are learned, by their
      classes.
    task: arguments of `plan.validation.task_plan` for a public task.
    privacy_unit: the level that is protected; None for the first one.

  Raises:
    PlanError: a part is too small, a name in several classes may be one unit,
      or a protected unit is in a public part, too.
  """
  tree = found.hierarchies["train"]
  if sampling.episode is None:
    tree = dataset.flattened(tree)
  else:
    _check_names(found, sampling)
  _check_protected(found, privacy_unit or tree.levels[0])
  _check_test_tasks(found, task)
  if sampling.episode is not None:  # While its units have names.
    plan.validate(tree, sampling)
  return tree


def _check_test_tasks(found: Survey, task: Mapping[str, Any]) -> None:
  """Refuse public parts of own data without test tasks; count their units."""
  for part in ("validation", "test"):
    tree = found.hierarchies[part]
    try:
      _, fitting = validation.task_plan(tree, **task)
    except plan.PlanError as e:
      raise plan.PlanError(
          f"the {part} part of {found.listing.source} does not suit the"
          f" test tasks: it holds {tree}, and a task takes {task['way']}"
          f" classes with {task['shot'] + task['query']} examples each; give it"
          " larger units, or ask for less by config.evaluation.shot, query and,"
          " for protonet and ridge, way; or by way, as in own_data(way=2) (in a"
          " command add way=2 after --config=own_data:)"
      ) from e
    units, held, level = fitting.num_units(0), tree.num_units(0), tree.levels[0]
    if units < held or units == 1:
      logging.warning(
          "%d of %d units of level '%s' in the %s part can fill a task:"
          " accuracy is measured on these alone, and a single one says little"
          " about others", units, held, level, part,
      )


def _units(found: Survey, part: str, level: int) -> set[tuple[str, ...]]:
  """Return the units of a level, from 0, in a part, as labels from the top."""
  return {c.path[: level + 1] for c in found.parts[part] if len(c.path) > level}


def _check_protected(found: Survey, protected: str) -> None:
  """Refuse a unit of the protected level in training and in a public part.

  Its examples in validation or test would be published without noise. Of other
  levels this is a warning, and so are equal names of protected units, of which
  one may be public.
  """
  levels = found.listing.levels
  copies = found.hierarchies["train"].copies
  for k, level in enumerate(levels[:-1]):
    train, *public = (_units(found, part, k) for part in dataset.PARTS)
    shared = sorted(train & set().union(*public))
    if shared and level == protected:
      raise plan.PlanError(
          f"{level} {shown('/'.join(shared[0]))} has examples in"
          " training and in the validation or test part, which are public, so"
          f" no guarantee would cover one {level}: give all of one {level} to"
          f" one part, or protect another level, such as privacy_unit="
          f"{levels[-2]!r} (in a command --config.privacy_unit={levels[-2]})"
      )
    if shared:
      logging.warning(
          "%d of the units of level '%s' of %s: in training and in a public"
          " part; a guarantee for one covers its examples in training alone",
          len(shared), level, found.listing.source,
      )
    names = {path[-1] for path in train}
    named = {path for path in train.union(*public) if path[-1] in names}
    if level == protected and len(names) < len(named) and not copies:
      logging.warning(
          "%d names for %d units of level '%s' of %s: a guarantee for one %s"
          " covers it in one '%s'; add %s if equal names are one",
          len(names), len(named), level, found.listing.source, level,
          levels[k - 1], rows_lib.written(crossing=level),
      )


def _check_names(found: Survey, sampling: plan.SamplingPlan) -> None:
  """Raise PlanError if a name in several classes may be one unit.

  Classes of the public parts count, too: what is theirs has no guarantee.
  """
  training = found.hierarchies["train"]
  if stages.class_level(training, sampling) or training.depth < 3:
    return
  trained = {path[1] for path in _units(found, "train", 1)}
  held = set().union(*(_units(found, part, 1) for part in found.parts))
  counts = collections.Counter(
      path[1] for path in sorted(held) if path[1] in trained
  )
  name, most = (*counts.most_common(1), ("", 0))[0]
  if most > 1 and not training.copies:
    of, level = training.levels[:2]
    divided = found.listing.classes[0].part is not None
    raise plan.PlanError(
        f"{level} {shown(name)} is in"
        f" {most} units of level '{of}': give every {level} a name of its own,"
        f" or, if it is one {level}, add"
        f" {rows_lib.crossing_options(level, divided=divided)}"
    )


def load(options: OwnData, where: originals.Where) -> dataset.Splits:
  """Load the three splits of own data; their classes are disjoint.

  Examples are read once, with a progress bar, into a file that later runs map.
  Another content of a source file or another option makes a new file. It holds
  all examples, so its folder is readable by its owner only.

  Args:
    options: options of the units and of the rows.
    where: places of the data and of the file, and perhaps the result of
      `survey` with these options.

  Returns:
    Splits with images uint8 (or, with more than 8 bits, float32 from 0 to 1)
    [rows, height, width, 1 or 3], or features float32[rows, ...] with one to
    three more axes; mapped from disk.

  Raises:
    FileNotFoundError: there is no such folder or file.
    DataError: an option, a file or an array cannot be used.
  """
  found = where.surveyed or survey(where.data_dir, options)
  values = _rows(found, options, where.cache / "own_data")
  parts, first = {}, 0
  for part, hierarchy in found.hierarchies.items():
    end = first + hierarchy.num_leaves
    parts[part] = dataset.ArrayDataset(
        name=f"{found.listing.source.name}/{part}",
        images=values[first:end],
        hierarchy=hierarchy,
    )
    first = end
  return dataset.Splits(**parts)


def fingerprint(paths: Sequence[pathlib.Path]) -> str:
  """Return a digest of the names and the content of files, in order."""

  def content(path: pathlib.Path) -> bytes:
    with path.open("rb") as file:
      return hashlib.file_digest(file, "sha256").digest()

  digest = hashlib.sha256()
  with (
      phases.phase("comparing the files with the prepared data"),
      futures.ThreadPoolExecutor(cache.THREADS) as pool,
  ):
    for path, found in zip(paths, pool.map(content, paths)):
      digest.update(os.fsencode(path.name) + b"\0" + found)
  return digest.hexdigest()


def _rows(survey: Survey, options: OwnData, root: pathlib.Path) -> np.ndarray:
  """Return the rows of all records, mapped from a file that is made once.

  Args:
    survey: the records, in the order of the rows.
    options: options of the rows.
    root: the folder of the file, readable by its owner only.

  Raises:
    DataError: an example cannot be read, or differs from the first one.
    OSError: the folder cannot be written.
  """
  listing = survey.listing
  numbers: list[int] = []
  for classes in survey.parts.values():
    for one in classes:
      numbers += one.records
  content = fingerprint(listing.files)
  network = None
  if options.backbone is not None:
    network = options.backbone.opened()
    options = dataclasses.replace(
        options, color=True, depth=8, size=network.backbone.size,
        backbone=dataclasses.replace(network.backbone, file=""),
    )
  about = f"6/{listing.source.resolve()}/{content}/{options}/"
  digest = hashlib.sha256(about.encode(errors="surrogateescape"))
  digest.update(np.asarray(numbers, "<i8").tobytes())
  path = root / f"{digest.hexdigest()[:32]}.npy"
  root.mkdir(mode=0o700, parents=True, exist_ok=True)
  seen: set[bytes] = set()
  rows = cache.mapped_rows(
      path,
      len(numbers),
      lambda: _row_of(listing, numbers, options, network, seen),
      listing.levels[-1],
  )
  copies = len(numbers) - len(seen)
  if seen and copies:
    logging.warning(
        "copies of other rows, %d in %s: each is a"
        " separate record, and a guarantee for one '%s' covers one of them",
        copies, listing.source, listing.levels[-1],
    )
  return rows


def _row_of(
    listing: listing_lib.Listing,
    numbers: list[int],
    options: OwnData,
    network: backbone_lib.Network | None,
    seen: set[bytes],
) -> Callable[[int], np.ndarray]:
  """Return a function from a place to the row of its record, in one form.

  Args:
    listing: the records.
    numbers: the record of each place.
    options: options of the rows.
    network: makes features of the rows; None keeps them.
    seen: receives the digest of each row.
  """
  read = listing.reader()
  first = read(numbers[0])
  form = rows_lib.form_of(first, options, listing.shape)
  greys = options.color is None and form.image and form.shape[-1] == 1
  if greys and np.ptp(first.values, axis=-1).any():
    logging.warning(
        "%s has colours, and images are turned grey: to keep colours give"
        " color=True (in a command --config.data.options.color=True)",
        first.name,
    )
  bright: list[float] = []

  def row(place: int) -> np.ndarray:
    example = read(numbers[place])
    values = form.row(example)
    bright.append(readers.brightest(example))
    if len(bright) == len(numbers):
      readers.check_bits(bright, f"the images of {listing.source}")
    if network is not None:
      values = network.features(values)
    seen.add(hashlib.blake2b(values.tobytes(), digest_size=16).digest())
    return values

  return row
