"""Records of own data, listed before any image is decoded.

A listing holds names, labels and file sizes. A hierarchy needs no more, so that
a plan is checked and accounted before the images are read.

The names of the units, their numbers of records and their parts are public by
assumption. A source can declare units without a record: they stay in the tree,
and in the division into parts.
"""

from collections.abc import Callable, Sequence
import dataclasses
import hashlib
import itertools
import pathlib
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan
from episodic_dp.data import dataset
from episodic_dp.data.own_data import rows
from episodic_dp.data.own_data.readers import Example
from episodic_dp.errors import shown

SHARES = (0.6, 0.2, 0.2)

Reader = Callable[[int], Example]


@dataclasses.dataclass(frozen=True, eq=False)
class Class:
  """A class, the lowest unit above the examples, and its records.

  Attributes:
    path: labels of the class, primary unit first; shorter for a declared unit
      without a class.
    records: int64[n], numbers for `Listing.reader`; empty for an empty unit.
    part: one of `dataset.PARTS`, or None if the source names no parts.
  """

  path: tuple[Any, ...]
  records: np.ndarray
  part: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
  """Classes in tree order, and how to read their records.

  Attributes:
    source: folder or file.
    levels: names of the levels, the examples last.
    classes: classes, sorted by path.
    declared: whether the source lists all units, also those without a record.
    fingerprint: digest that changes when a record is changed, added or removed.
    shape: (height, width, channels) of images in an array; None for files and
      for features.
    reader: opens the source and returns a function from a record's number to
      its example.
    name_of: returns the place of a record, for messages.
  """

  source: pathlib.Path
  levels: tuple[str, ...]
  classes: tuple[Class, ...]
  declared: bool
  fingerprint: str
  shape: tuple[int, ...] | None
  reader: Callable[[], Reader]
  name_of: Callable[[int], str]


def group(
    labels: Sequence[np.ndarray], split: np.ndarray | None = None
) -> tuple[Class, ...]:
  """Group records by their labels; a class in two parts occurs in both.

  Args:
    labels: text[n] for each level above the examples, primary level first.
    split: text[n], the part of each record; None if the source names no parts.

  Returns:
    The classes, sorted by path.

  Raises:
    ValueError: a part is none of `dataset.PARTS`.
  """
  keys = [*labels, *([] if split is None else [split])]
  found: dict[tuple[str, ...], list[int]] = {}
  for record, key in enumerate(zip(*(column.tolist() for column in keys))):
    found.setdefault(key, []).append(record)
  result = []
  for key in sorted(found):
    path, part = key[: len(labels)], None
    if split is not None:
      part = _validate.one_of("split", key[-1], dataset.PARTS)
    records = np.asarray(found[key], np.int64)
    result.append(Class(path=path, records=records, part=part))
  return tuple(result)


def divide(
    listing: Listing, options: rows.Options
) -> dict[str, tuple[Class, ...]]:
  """Return the classes of each part; no class is in two of them.

  The source may name the parts. Otherwise whole units of one level are divided
  in the order of sha256("seed/name"), the first of them to training. Adding or
  removing a unit changes the part of units at the borders alone.

  Args:
    listing: the classes.
    options: options whose shares, by, crossing and seed are read.

  Raises:
    ValueError: an unknown level, shares for a source that names the parts, too
      few units, or a class or a crossing unit in two parts.
  """
  for name in ("by", "crossing"):
    level = getattr(options, name)
    if level is not None and level not in listing.levels[:-1]:
      raise ValueError(
          f"own_data option {name}={level!r} must be one of the levels"
          f" {listing.levels[:-1]}, such as"
          f" {rows.FLAG}{name}={listing.levels[-2]}"
      )
  owners: Sequence[str | None] = [c.part for c in listing.classes]
  if None in owners:
    owners = _divided(listing, options)
  elif (options.shares, options.by) != (None, None):
    raise ValueError(
        f"{listing.source} names the units for training, validation and test:"
        " leave out shares and by"
    )
  parts = {
      part: tuple(c for c, o in zip(listing.classes, owners) if o == part)
      for part in dataset.PARTS
  }
  _check_apart(
      listing, parts, "class", slice(None), "give a class to one part"
  )
  for part, classes in parts.items():
    if not sum(len(c.records) for c in classes):
      raise ValueError(
          f"{listing.source} has no example for {part}: give more units"
          f" examples, or divide by another seed ({rows.FLAG}seed)"
      )
  if options.crossing is not None:
    k, level = listing.levels.index(options.crossing), options.crossing
    _check_apart(
        listing,
        parts,
        level,
        slice(k, k + 1),
        f"divide by {level}, {rows.FLAG}by={level}, or give all of one"
        f" {level} to one part",
    )
  return parts


def _check_apart(
    listing: Listing,
    parts: dict[str, tuple[Class, ...]],
    level: str,
    labels: slice,
    remedy: str,
) -> None:
  """Raise ValueError if one unit of a level, by some labels, is in two parts.

  Test classes must be unseen. And the records of a crossing unit in validation
  and test are public, but its guarantee covers only those in training.
  """
  names = {
      part: {c.path[labels] for c in classes} - {()}
      for part, classes in parts.items()
  }
  for one, other in itertools.combinations(dataset.PARTS, 2):
    shared = names[one] & names[other]
    if shared:
      name = "/".join(map(str, min(shared)))
      raise ValueError(
          f"{level} {shown(name)} of {listing.source} has examples in {one} and"
          f" in {other} ({len(shared)} such units): {remedy}"
      )


def _divided(listing: Listing, options: rows.Options) -> list[str]:
  """Return the part of each class, by the order of its unit's digest.

  A declared unit without a unit of the divided level goes to training, where it
  can be sampled.
  """
  by = options.by or listing.levels[0]
  k = listing.levels.index(by)
  units = sorted(
      {c.path[k] for c in listing.classes if len(c.path) > k},
      key=lambda unit: hashlib.sha256(
          f"{options.seed}/{unit}".encode(errors="surrogateescape")
      ).digest(),
  )
  shares = SHARES if options.shares is None else options.shares
  total = sum(shares)
  others = [max(1, round(len(units) * s / total)) for s in shares[1:]]
  sizes = [len(units) - sum(others), *others]
  if sizes[0] < 1:
    raise ValueError(
        f"{listing.source} has {len(units)} units of level '{by}', too few for"
        f" training, validation and test: give three or more, or divide units"
        f" of another level, {rows.FLAG}by"
    )
  part_of = dict(zip(units, np.repeat(dataset.PARTS, sizes).tolist()))
  return [
      part_of[c.path[k]] if len(c.path) > k else "train"
      for c in listing.classes
  ]


def hierarchy(
    levels: Sequence[str],
    classes: Sequence[Class],
    *,
    declared: bool,
    crossing: str | None = None,
) -> plan.Hierarchy:
  """Return the tree of some classes; leaf i is the i-th record.

  Args:
    levels: names, the examples last.
    classes: sorted by path.
    declared: as in `Listing`.
    crossing: as for `Hierarchy.from_labels`.
  """
  held = [len(c.records) for c in classes if len(c.records)]
  labels = {
      name: np.repeat([c.path[k] for c in classes if len(c.records)], held)
      for k, name in enumerate(levels[:-1])
  }
  tree = plan.Hierarchy.from_labels(
      labels,
      leaf=levels[-1],
      units=[c.path for c in classes] if declared else None,
      crossing=crossing,
  )
  assert tree.leaf_rows is None, "classes are in tree order"
  assert tree.names is not None
  names = [None if n is None else n.astype(str) for n in tree.names]
  return dataclasses.replace(tree, names=tuple(names))
