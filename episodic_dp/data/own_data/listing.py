"""The records of someone's own data, listed before any image is decoded.

A listing is cheap: names, labels and file sizes. It is all that a hierarchy
needs, so a plan can be checked and accounted before the images are read.

What a listing holds is public by assumption: the names of the units, how many
records each has, and which part a unit belongs to. A source can declare units
that have no record: they stay in the tree, and in the division into parts.
"""

from collections.abc import Callable, Sequence
import dataclasses
import hashlib
import itertools
import pathlib
from typing import Any

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset
from episodic_dp.data import options
from episodic_dp.data.own_data.readers.example import Example
from episodic_dp.errors import shown

SHARES = (0.6, 0.2, 0.2)
_SEEDS = 100  # Tried for one that leaves no part empty.

Reader = Callable[[int], Example]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Class:
  """A class, the lowest unit above the examples, and its records.

  Attributes:
    path: its labels, primary unit first; a shorter one is of a declared unit
      that has no class.
    records: int64[n], numbers for `Listing.reader`; none of a declared unit
      that is empty.
    part: one of `dataset.PARTS`, or None where no part is given.
  """

  path: tuple[Any, ...]
  records: np.ndarray
  part: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
  """Classes in tree order, and how to read their records.

  Attributes:
    source: the folder or file.
    levels: names of the levels, the examples last.
    classes: sorted by path.
    declared: the source says which units there are, also those without a
      record.
    fingerprint: changes when a record is changed, added or removed.
    shape: (height, width, channels) of images in an array, or None for files,
      which are brought to one size, and for features, which have their own.
    reader: opens the source; what it returns maps a record's number to its
      example.
    name_of: where the record of a number lies, for messages.
  """

  source: pathlib.Path
  levels: tuple[str, ...]
  classes: tuple[Class, ...]
  declared: bool
  fingerprint: str
  shape: tuple[int, int, int] | None
  reader: Callable[[], Reader]
  name_of: Callable[[int], str]


def divide(
    listing: Listing,
    *,
    shares: Sequence[float] | None,
    seed: int,
    by: str | None = None,
    crossing: str | None = None,
) -> dict[str, tuple[Class, ...]]:
  """The classes of each part; no class is in two of them.

  The parts are those of the source where it names them. Otherwise whole units
  of one level are divided: in the order of sha256("seed/name"), the first go to
  training. Where a unit is added or removed, only units at the borders between
  parts can change theirs.

  Args:
    listing: what to divide.
    shares: of the units, for training, validation and test; None means
      `SHARES`.
    seed: public.
    by: the level whose units are divided, those of one name together; None
      means the first.
    crossing: the second level, where equal names are one unit: then no unit of
      it may be in two parts.

  Raises:
    ValueError: shares out of range or not needed, a seed out of range, too few
      units, or a class or a crossing unit in two parts; one sentence.
  """
  options.check_seed("own_data", seed)
  for option, level in (("by", by), ("crossing", crossing)):
    if level is not None and level not in listing.levels[:-1]:
      raise ValueError(
          f"own_data option {option}={level!r} must be one of the levels"
          f" {listing.levels[:-1]}, such as"
          f" --config.data.options.{option}={listing.levels[-2]}"
      )
  parts = _parts(listing, shares, seed, by)
  if crossing is not None:
    _check_apart(listing, parts, crossing)
  return parts


def _check_apart(
    listing: Listing, parts: dict[str, tuple[Class, ...]], crossing: str
) -> None:
  """ValueError where one unit of the crossing level is in two parts.

  Its records in validation and test are public, and the guarantee is for those
  in training.
  """
  k = listing.levels.index(crossing)
  names = {
      part: {c.path[k] for c in classes if len(c.path) > k}
      for part, classes in parts.items()
  }
  for one, other in itertools.combinations(dataset.PARTS, 2):
    shared = names[one] & names[other]
    if shared:
      raise ValueError(
          f"{crossing} {shown(min(shared))} of {listing.source} has records in"
          f" {one} and in {other} ({len(shared)} such units): divide by"
          f" {crossing},"
          f" --config.data.options.by={crossing}, or where the source says what"
          f" is for what, give all of one {crossing} to one part"
      )


def _parts(
    listing: Listing,
    shares: Sequence[float] | None,
    seed: int,
    by: str | None,
) -> dict[str, tuple[Class, ...]]:
  """The parts that the source names, or a division of whole units."""
  given = [c.part for c in listing.classes]
  if None not in given:
    if shares is not None:
      raise ValueError(
          f"{listing.source} says itself what is for training, validation and"
          f" test: leave out shares={tuple(shares)}"
      )
    if by is not None:
      raise ValueError(
          f"{listing.source} says itself what is for training, validation and"
          f" test: leave out by={by!r}"
      )
    return _given(listing)
  parts = _divided(listing, shares, seed, by or listing.levels[0])
  for part, classes in parts.items():
    if not _records(classes):
      raise ValueError(
          f"{listing.source} has units without an image only for {part}:"
          f" {_filling(listing, shares, by or listing.levels[0])}"
      )
  return parts


def _filling(
    listing: Listing, shares: Sequence[float] | None, by: str
) -> str:
  """What to do where a division leaves a part without a record."""
  for seed in range(_SEEDS):
    parts = _divided(listing, shares, seed, by)
    if all(_records(classes) for classes in parts.values()):
      return f"divide by another seed, --config.data.options.seed={seed}"
  return "give more units images, three or more"


def _divided(
    listing: Listing, shares: Sequence[float] | None, seed: int, by: str
) -> dict[str, tuple[Class, ...]]:
  """Whole units for each part, in an order that their names decide.

  A declared unit that has none of the level below it goes to training, where
  it stays a unit that can be drawn.
  """
  k = listing.levels.index(by)
  units = sorted(
      {c.path[k] for c in listing.classes if len(c.path) > k},
      key=lambda unit: hashlib.sha256(f"{seed}/{unit}".encode(
          errors="surrogateescape"
      )).digest(),
  )
  sizes = _sizes(len(units), shares)
  if min(sizes) < 1:
    lower = ""
    if k + 2 < len(listing.levels):
      below = listing.levels[k + 1]
      lower = f", or divide by another: --config.data.options.by={below}"
    raise ValueError(
        f"{listing.source} has {len(units)} units of level '{by}', too few for"
        f" training, validation and test: give three or more{lower}"
    )
  ends = np.cumsum(sizes)
  part_of = {
      unit: dataset.PARTS[int(np.searchsorted(ends, place, side="right"))]
      for place, unit in enumerate(units)
  }
  return {
      part: tuple(
          c
          for c in listing.classes
          if (part_of[c.path[k]] if len(c.path) > k else "train") == part
      )
      for part in dataset.PARTS
  }


def _sizes(units: int, shares: Sequence[float] | None) -> list[int]:
  shares = SHARES if shares is None else tuple(shares)
  if len(shares) != 3 or not all(
      isinstance(s, (int, float)) and 0 < s < np.inf for s in shares
  ):
    raise ValueError(
        f"own_data option shares={shares} must be three positive numbers, for"
        " training, validation and test, such as"
        f" --config.data.options.shares={','.join(map(str, SHARES))}"
    )
  total = sum(shares)
  others = [max(1, round(units * s / total)) for s in shares[1:]]
  return [units - sum(others), *others]


def _given(listing: Listing) -> dict[str, tuple[Class, ...]]:
  """The parts that the source names."""
  parts: dict[str, tuple[Class, ...]] = {
      part: tuple(c for c in listing.classes if c.part == part)
      for part in dataset.PARTS
  }
  for part, classes in parts.items():
    if not _records(classes):
      raise ValueError(
          f"{listing.source} has nothing for {part}: give classes to each of"
          f" {', '.join(dataset.PARTS)}"
      )
  for one, other in itertools.combinations(dataset.PARTS, 2):
    shared = {c.path for c in parts[one]} & {c.path for c in parts[other]}
    if shared:
      name = shown("/".join(map(str, min(shared))))
      raise ValueError(
          f"class {name} of {listing.source} is in {one} and in {other}: a"
          " class belongs to one part only, so that tests are of unseen classes"
      )
  return parts


def _records(classes: Sequence[Class]) -> int:
  return sum(len(c.records) for c in classes)


def hierarchy(
    levels: Sequence[str],
    classes: Sequence[Class],
    *,
    declared: bool,
    crossing: str | None = None,
) -> plan.Hierarchy:
  """The tree of some classes in tree order; leaf i is the i-th record.

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
