"""Records of own data, listed before any image is decoded.

A listing holds names, labels and file sizes. A hierarchy needs no more, so a
plan is checked and accounted before the images are read.

The names of the units, their numbers of records and their parts are public by
assumption. A source can declare units without a record: they stay in the tree,
and in the division into parts.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import hashlib
import pathlib
from typing import NamedTuple

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset
from episodic_dp.data.own_data import rows
from episodic_dp.data.own_data.readers import Example
from episodic_dp.errors import DataError
from episodic_dp.errors import shown
from episodic_dp.plan import labels as labels_lib

SHARES = (0.6, 0.2, 0.2)

Reader = Callable[[int], Example]
# Labels of a class, primary unit first, and its part: one of `dataset.PARTS`,
# or None if the source names no parts.
Key = tuple[tuple[str, ...], str | None]


class Class(NamedTuple):
  """A class, the lowest unit above the examples, and its records.

  Attributes:
    path: labels of the class, primary unit first; shorter for a declared unit
      without a class.
    part: one of `dataset.PARTS`, or None if the source names no parts.
    records: numbers for `Listing.reader`; none for an empty unit.
  """

  path: tuple[str, ...]
  part: str | None
  records: list[int]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
  """Classes in tree order, and how to read their records.

  Attributes:
    source: folder or file.
    levels: names of the levels, the examples last.
    classes: classes, sorted by path.
    declared: whether the source lists all units, also those without a record.
    files: the files that hold the examples, in order.
    shape: (height, width, channels) of images in an array; None for files and
      for features.
    reader: opens the source and returns a function from a record's number to
      its example.
  """

  source: pathlib.Path
  levels: tuple[str, ...]
  classes: tuple[Class, ...]
  declared: bool
  files: tuple[pathlib.Path, ...]
  shape: tuple[int, ...] | None
  reader: Callable[[], Reader]


def group(keys: Iterable[Key], units: Iterable[Key] = ()) -> tuple[Class, ...]:
  """Group records into classes; a class with two parts is listed in both.

  Args:
    keys: the class of each record.
    units: declared classes, including those without a record.

  Returns:
    The classes, sorted by path.

  Raises:
    DataError: a part is none of `dataset.PARTS`.
  """
  found: dict[Key, list[int]] = {unit: [] for unit in units}
  for record, key in enumerate(keys):
    found.setdefault(key, []).append(record)
  for _, part in found:
    if part not in (None, *dataset.PARTS):
      raise DataError(
          f"split={shown(part)}: expected one of {', '.join(dataset.PARTS)}"
      )
  return tuple(Class(*key, found[key]) for key in sorted(found))


def divide(
    listing: Listing, options: rows.OwnData
) -> dict[str, tuple[Class, ...]]:
  """Return the classes of each part; no class is in two of them.

  The source may name the parts. Otherwise whole units of one level are divided
  in the order of sha256("seed/name"), the first of them to training. Adding or
  removing a unit changes the part of units at the borders only.

  Args:
    listing: the classes.
    options: options whose shares, by, crossing and seed are read.

  Raises:
    DataError: an unknown level, shares for a source that names the parts, too
      few units, a class or a crossing unit in two parts, or two names of a
      level that look alike.
  """
  for k in range(len(listing.levels) - 1):
    _check_names(listing, k)
  for name in ("by", "crossing"):
    level = getattr(options, name)
    if level not in (None, *listing.levels[:-1]):
      raise DataError(
          f"own_data option {name}={level!r} must be one of the levels"
          f" {listing.levels[:-1]}, such as"
          f" {rows.written(**{name: listing.levels[-2]})}"
      )
  classes: Sequence[Class] = listing.classes
  if any(c.part is None for c in classes):
    classes = _divided(listing, options)
  elif (options.shares, options.by) != (None, None):
    raise DataError(
        f"{listing.source} names the units for training, validation and test:"
        " leave out shares and by"
    )
  parts = {
      part: tuple(c for c in classes if c.part == part)
      for part in dataset.PARTS
  }
  _check_apart(listing, parts, options.crossing)
  for part, held in parts.items():
    if not any(c.records for c in held):
      raise DataError(
          f"{listing.source} has no example for {part}: give more units"
          " examples, or divide by another seed, such as"
          f" {rows.written(seed=options.seed + 1)}"
      )
  return parts


def _check_names(listing: Listing, k: int) -> None:
  """Raise PlanError if two names of level k look alike, in any part."""
  place = f"a '{listing.levels[k]}' of {listing.source}"
  names = [c.path[k] for c in listing.classes if len(c.path) > k]
  labels_lib.check_names(lambda _: place, names)


def _check_apart(
    listing: Listing, parts: dict[str, tuple[Class, ...]], crossing: str | None
) -> None:
  """Raise DataError if a class or a crossing unit is in two parts.

  Test classes must be unseen. A crossing unit's records in validation and test
  would be public, but its guarantee covers only those in training.
  """
  level, labels, remedy = "class", slice(None), "give a class to one part"
  if crossing is not None:
    k, level = listing.levels.index(crossing), crossing
    labels = slice(k, k + 1)
    remedy = (
        f"divide by {level}, {rows.written(by=level)}, or give all of one"
        f" {level} to one part"
    )
  part_of: dict[tuple[str, ...], str] = {}
  for part, classes in parts.items():
    for unit in sorted({c.path[labels] for c in classes} - {()}):
      if unit in part_of:
        raise DataError(
            f"{level} {shown('/'.join(unit))} of {listing.source} has examples"
            f" in {part_of[unit]} and in {part}: {remedy}"
        )
      part_of[unit] = part


def _divided(listing: Listing, options: rows.OwnData) -> list[Class]:
  """Return the classes with a part, in the order of their units' digests.

  A declared unit without a unit of the divided level goes to training, where it
  can be sampled.
  """
  by = options.by or listing.levels[0]
  k = listing.levels.index(by)
  names = {c.path[k] for c in listing.classes if len(c.path) > k}

  def digest(name: str) -> bytes:
    text = f"{options.seed}/{name}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()

  units = sorted(names, key=digest)
  shares = options.shares or SHARES
  others = [max(1, round(len(units) * s / sum(shares))) for s in shares[1:]]
  trained = len(units) - sum(others)
  if trained < 1:
    raise DataError(
        f"{listing.source} has {len(units)} units of level '{by}', too few for"
        f" training, validation and test: give three or more, or divide units"
        f" of another level, {rows.written(by='LEVEL')}"
    )
  parts = np.repeat(dataset.PARTS, [trained, *others]).tolist()
  part_of = dict(zip(units, parts))
  return [
      c._replace(part=part_of[c.path[k]] if len(c.path) > k else "train")
      for c in listing.classes
  ]


def hierarchy(
    listing: Listing, classes: Sequence[Class], crossing: str | None
) -> plan.Hierarchy:
  """Return the tree of some classes; leaf i is the i-th record.

  Args:
    listing: the data.
    classes: some of its classes, sorted by path.
    crossing: as for `Hierarchy.from_labels`.
  """
  paths = [c.path for c in classes for _ in c.records]
  return plan.Hierarchy.from_labels(
      dict(zip(listing.levels[:-1], zip(*paths))),
      leaf=listing.levels[-1],
      units=[c.path for c in classes] if listing.declared else None,
      crossing=crossing,
  )
