"""The hierarchy of a data set: a tree of units whose sizes are public.

A hierarchy has named levels. Units of the first level are the primary sampling
units. Units of the last level are the examples ("leaves"). Only the *sizes* are
stored here, and they are public. The examples themselves are in a `Dataset`.

Units of a level are numbered in tree order: the children of unit u are
consecutive, and come before the children of unit u + 1.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from episodic_dp.errors import shown
from episodic_dp.plan import labels as labels_lib

MAX_LEAVES = 2**31 - 1  # Leaf rows are int32 on the device.
_LONGEST_LEVEL = 80  # Characters.

Sizes = int | Sequence["Sizes"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Hierarchy:
  """A tree of partitions; build it with one of the `from_` constructors.

  Attributes:
    levels: names of the levels, primary units first, examples last.
    sizes: for a regular hierarchy, the number of children at each level
      (computed, never stored); None when ragged.
    offsets: for a ragged hierarchy, one int64 array per level: the children of
      unit u of the level above are `offsets[k][u]` to `offsets[k][u + 1] - 1`;
      None when regular.
    leaf_rows: int32[leaves], the row of the data arrays of each leaf, or None
      when leaf i is row i.
    copies: whether several primary units may hold the same record (or class,
      patient, ...). A lower level then has a guarantee only if `most_copies`
      gives its count.
    most_copies: for each level, the largest number of primary units that hold
      the same record (or class, ...): 1 for the primary level, 0 if unknown;
      None without counts. Neighbours then differ in every primary unit that
      holds the record. Which units hold it is public, and no primary unit
      holds it twice. Levels cross if, for example, one patient has images of
      several diagnoses. The patient is then one unit below each diagnosis, and
      `most_copies` is (1, number of diagnoses, 1).
    names: names of the units of each level, for messages, or None.
    units_from_records: whether the units above the leaves are listed only by
      their records. Guarantees then assume that a unit stays when its last
      leaf is removed. In a tree of leaves alone these units are the classes of
      the leaves.
  """

  levels: tuple[str, ...]
  sizes: tuple[int, ...] | None = None
  offsets: tuple[np.ndarray, ...] | None = None
  leaf_rows: np.ndarray | None = None
  copies: bool = False
  most_copies: tuple[int, ...] | None = None
  names: tuple[np.ndarray | None, ...] | None = None
  units_from_records: bool = False

  def __post_init__(self) -> None:
    _check_levels(self.levels)
    if (self.sizes is None) == (self.offsets is None):
      raise PlanError(
          "a hierarchy needs either sizes (regular) or offsets (ragged);"
          " use Hierarchy.from_sizes, from_labels or regular"
      )
    depth = len(self.sizes or self.offsets or ())
    if depth != len(self.levels):
      raise PlanError(
          f"{len(self.levels)} level names {self.levels} for a hierarchy of"
          f" depth {depth}: give one name per level"
      )
    if self.sizes is not None:
      object.__setattr__(self, "sizes", tuple(
          _validate.count(f"size of level '{name}'", size, 1)
          for name, size in zip(self.levels, self.sizes)
      ))
    if self.num_leaves > MAX_LEAVES:
      raise PlanError(
          f"the hierarchy has {shown(self.num_leaves)} leaves, more than"
          f" 2^31 - 1 = {MAX_LEAVES}: leaf rows are int32, so split the data"
          " set"
      )
    if self.num_leaves < 1:
      raise PlanError("the hierarchy has no leaf: give it examples")
    if self.most_copies is not None:
      self._check_copies(self.most_copies)
    if self.offsets is not None:
      # Guarantees are cached by hierarchy: its sizes may not change.
      offsets = tuple(np.array(part, np.int64) for part in self.offsets)
      for array in offsets:
        array.flags.writeable = False
      object.__setattr__(self, "offsets", offsets)

  def _check_copies(self, counts: tuple[int, ...]) -> None:
    """Raise PlanError unless the counts are possible."""
    if not self.copies:
      raise PlanError(
          f"most_copies={counts}: expected None with copies=False, where no"
          " record recurs; set copies=True"
      )
    if len(counts) != self.depth or counts[0] != 1:
      raise PlanError(
          f"most_copies={counts}: expected one number for each of the levels"
          f" {self.levels}, the first of them 1"
      )
    for count in counts:
      if _validate.count("most_copies", count) > self.num_units(0):
        raise _validate.refusal(
            "most_copies", count, f"at most {self.num_units(0)}, the number of"
            f" {self.levels[0]} units"
        )

  # Constructors ---------------------------------------------------------------

  @classmethod
  def from_sizes(
      cls,
      sizes: Sizes,
      *,
      levels: Sequence[str],
      copies: bool = False,
      most_copies: Mapping[str, int] | None = None,
  ) -> "Hierarchy":
    """Build from nested sizes: `[[4, 2, 3], [4, 5]]` has 2, 5 and 18 units.

    Args:
      sizes: nested lists with the number of leaves of each unit right above the
        leaves, nested one level less than `levels` has names (a plain int for
        one level). 0 or an empty list is an empty unit.
      levels: names, primary units first.
      copies: as in `regular`.
      most_copies: as in `regular`.

    Raises:
      PlanError: depths differ between branches, or a size is not a whole
        number of at least 0.

    Examples:
      >>> from episodic_dp import plan
      >>> h = plan.Hierarchy.from_sizes(
      ...     [[4, 2, 3], [4, 5]], levels=("alphabet", "character", "drawing")
      ... )
      >>> [h.num_units(k) for k in range(h.depth)]
      [2, 5, 18]
    """
    levels = tuple(levels)
    layer: list[Any] = [sizes]
    offsets = []
    for name in levels[:-1]:
      if not all(plain.is_list(unit) for unit in layer):
        raise PlanError(
            f"sizes at level '{name}' are not lists: nest lists"
            f" {len(levels) - 1} deep for the levels {levels}, with whole"
            " numbers innermost"
        )
      offsets.append(offsets_of([len(unit) for unit in layer]))
      layer = [child for unit in layer for child in unit]
    # Limited, so that the sum does not overflow: larger trees are refused.
    offsets.append(offsets_of([
        min(_validate.count("size", unit), MAX_LEAVES + 1) for unit in layer
    ]))
    return cls(
        levels=levels,
        offsets=tuple(offsets),
        copies=copies,
        most_copies=_counts_of(levels, most_copies),
    )

  @classmethod
  def from_labels(
      cls,
      labels: Mapping[str, Any],
      *,
      leaf: str = "example",
      units: Iterable[Any] | None = None,
      crossing: str | None = None,
  ) -> "Hierarchy":
    """Build from label arrays: the labels of row i name the units that hold it.

    Args:
      labels: level name -> labels [rows], primary level first: a list, an array
        or a column of a table, of numbers or of text. A label is unique only
        within its parent: character 3 of two alphabets is two units.
      leaf: the name of the last level, one leaf per row.
      units: the public list of all units, each as the tuple of its labels,
        primary level first: `[("Greek", 1), ("Greek", 2), ("Thai",)]`, or an
        array [units, levels]. A unit implies the units above it. A primary unit
        may be given as its label alone. A unit without a row is an empty unit:
        it is sampled like any
        other and contributes nothing. None takes the units that occur in the
        labels, and every guarantee then assumes that there are no others.
      crossing: the second level, if equal labels in several primary units name
        one unit, such as a patient with images of several diagnoses. The
        guarantee for that level then covers the patient in all of them. Without
        a label that recurs this changes nothing.

    Raises:
      DataError: arrays that are not vectors of one length; a label that is
        missing, of another type than the first, or not exact; two names that
        look alike; or a row in a unit that
        is not declared.
      PlanError: no arrays, or a crossing level that cannot cross.

    Examples:
      >>> from episodic_dp import plan
      >>> labels = {"person": ["ann", "bob", "bob"], "digit": [1, 1, 7]}
      >>> units = [("ann", 1), ("bob", 1), ("bob", 7), ("cy",)]
      >>> h = plan.Hierarchy.from_labels(labels, leaf="image", units=units)
      >>> h.num_units(0), h.num_units(1), h.num_leaves
      (3, 3, 3)
    """
    levels = (*labels, leaf)
    offsets, names, order = _sort_rows(_label_arrays(labels), units)
    most = 1
    if crossing is not None:
      if len(levels) < 3 or crossing != levels[1]:
        raise PlanError(
            f"crossing='{crossing}': expected the second of three levels or"
            f" more, and the levels are {levels}; put the level that it crosses"
            " directly above it"
        )
      most = int(np.unique(names[1], return_counts=True)[1].max())
    rows: np.ndarray | None = order
    if (order == np.arange(order.size)).all():
      rows = None
    return cls(
        levels=levels,
        offsets=tuple(offsets),
        leaf_rows=rows,
        names=(*names, None),
        units_from_records=units is None,
        copies=most > 1,
        most_copies=(1, most, *[1] * (len(levels) - 2)) if most > 1 else None,
    )

  @classmethod
  def regular(
      cls,
      sizes: Sequence[int],
      *,
      levels: Sequence[str],
      copies: bool = False,
      most_copies: Mapping[str, int] | None = None,
  ) -> "Hierarchy":
    """Build a tree whose units of a level all have as many children.

    Args:
      sizes: children per unit, level by level: `(400_000, 5, 2)` is 400 000
        primary units of 5 classes of 2 examples.
      levels: names, primary units first.
      copies: whether leaves of different primary units may be the same record,
        as in synthetic participants built from shared classes.
      most_copies: with copies, level -> the largest number of primary units
        that hold the same record of that level, a public count. Levels that are
        not named have no guarantee.

    Raises:
      PlanError: a size below 1, more than 2^31 - 1 leaves, or an impossible
        count.

    Examples:
      >>> from episodic_dp import plan
      >>> h = plan.Hierarchy.regular((1000, 20), levels=("user", "example"))
      >>> h.num_leaves
      20000
    """
    levels = tuple(levels)
    return cls(
        levels=levels,
        sizes=tuple(sizes),
        copies=copies,
        most_copies=_counts_of(levels, most_copies),
    )

  # Reading --------------------------------------------------------------------

  @property
  def depth(self) -> int:
    """Return the number of levels."""
    return len(self.levels)

  @property
  def num_leaves(self) -> int:
    """Return the number of examples."""
    return self.num_units(self.depth - 1)

  @property
  def rows(self) -> np.ndarray:
    """Return the row of the data arrays of each leaf: integers [leaves]."""
    if self.leaf_rows is None:
      return np.arange(self.num_leaves, dtype=np.int32)
    return self.leaf_rows

  @property
  def leaves_recur(self) -> bool:
    """Return whether several leaves may be one record."""
    return self.holders(-1) != 1

  def holders(self, level: int) -> int:
    """Return the most primary units that hold a unit of a level; 0 if unknown.

    Args:
      level: position from 0.
    """
    if not self.copies or level == 0:
      return 1
    if self.most_copies is None:
      return 0
    return self.most_copies[level]

  def level_index(self, level: str) -> int:
    """Return the position (from 0) of a level; PlanError lists all levels."""
    if level not in self.levels:
      raise PlanError(
          f"unknown level '{level}': the hierarchy has {self.levels}"
      )
    return self.levels.index(level)

  def num_units(self, level: int) -> int:
    """Count the units of a level (position from 0; -1 for the whole: 1)."""
    if self.sizes is not None:
      return math.prod(self.sizes[: level + 1])
    assert self.offsets is not None
    if level < 0:
      return 1
    return int(self.offsets[level][-1])

  def distinct(self, level: int) -> int:
    """Count the units of a level, one in several primary units once.

    Without names nothing says which recur, and every place counts.
    """
    names = self.names_of(level)
    if names is None or self.holders(level) == 1:
      return self.num_units(level)
    return np.unique(names).size

  def names_of(self, level: int) -> np.ndarray | None:
    """Return the names of the units of a level; None if they have none."""
    if self.names is None:
      return None
    return self.names[level]

  def child_counts(self, level: int) -> np.ndarray:
    """Count the level's units inside each unit of the level above.

    For a regular hierarchy return the one count that holds for all: int64[1].
    """
    if self.sizes is not None:
      return np.asarray([self.sizes[level]], np.int64)
    assert self.offsets is not None
    return np.diff(self.offsets[level])

  def parents(self, level: int) -> np.ndarray:
    """Return the unit above each unit of a level: int64[units]."""
    above = np.arange(self.num_units(level - 1))
    return np.repeat(above, self.child_counts(level))

  def families(
      self, level: int, parents: Any, xp: Any = np
  ) -> tuple[Any, Any]:
    """Find the first child and the number of children of units.

    Args:
      level: position of the children's level.
      parents: integers, units of the level above (0 for the first level).
      xp: `numpy` or `jax.numpy`, the library that computes.

    Returns:
      The numbers of the first children and the counts, shaped like `parents`.
    """
    if self.sizes is not None:
      size = self.sizes[level]
      return parents * size, xp.full_like(parents, size)
    assert self.offsets is not None
    offsets = xp.asarray(self.offsets[level], parents.dtype)
    return offsets[parents], offsets[parents + 1] - offsets[parents]

  def fitting(self, least: Sequence[int]) -> "Hierarchy":
    """Return the tree of the units that can fill a task: for public data only.

    Private data keep their small units. Without them a neighbour's units would
    be sampled at other rates than the accounted ones.

    Args:
      least: level -> its fewest units in a unit of the level above, from the
        first level on.

    Returns:
      The tree, whose `leaf_rows` are rows of the same data; the whole tree if
      no unit would remain.
    """
    if self.offsets is None:
      return self
    kept = [np.ones(self.num_leaves, bool)]  # Of the level that is counted.
    for k in reversed(range(self.depth)):
      held = np.bincount(
          self.parents(k), kept[0], self.child_counts(k).size
      )
      kept.insert(0, held >= least[k])
    if not kept[0].all():
      return self
    offsets, names = [], list(self.names or [None] * self.depth)
    for k, found in enumerate(names):
      parents = self.parents(k)
      kept[k + 1] &= kept[k][parents]
      children = np.bincount(parents[kept[k + 1]], minlength=kept[k].size)
      offsets.append(offsets_of(children[kept[k]]))
      if found is not None:
        names[k] = found[kept[k + 1]]
    rows = self.leaf_rows
    if not kept[-1].all():
      rows = self.rows[kept[-1]].astype(np.int32)
    return dataclasses.replace(
        self,
        offsets=tuple(offsets),
        leaf_rows=rows,
        most_copies=None,  # A count of units that may be gone.
        names=tuple(names),
    )

  def same_tree(self, other: "Hierarchy") -> bool:
    """Return whether both have the same levels, sizes and copies.

    `leaf_rows` and `names` are not compared: no guarantee depends on them.
    """
    # Compare level by level: one count may describe all units of a level.
    return self is other or (
        self.levels == other.levels
        and self.copies == other.copies
        and self.most_copies == other.most_copies
        and all(
            (self.child_counts(k) == other.child_counts(k)).all()
            for k in range(self.depth)
        )
    )

  def __str__(self) -> str:
    """Format as "participant (8000) > glyph (64000) > drawing (320000)"."""
    return " > ".join(map(self.counted, range(self.depth)))

  def counted(self, level: int) -> str:
    """Write a level with its count, as "patient (180 places, up to 5 each)"."""
    count = str(self.num_units(level))
    if self.holders(level) > 1:
      count += f" places, up to {self.holders(level)} each"
    return f"{self.levels[level]} ({count})"

  def size_paths(self, level: int) -> np.ndarray:
    """List the distinct family sizes on the paths to the level's units.

    Returns:
      int64[distinct, level + 1]: column j is the number of children of the
      j-th unit of the path (column 0: the number of primary units), which are
      the denominators of the inclusion probability.
    """
    if self.sizes is not None:
      return np.asarray([self.sizes[: level + 1]], np.int64)
    table = np.zeros((1, 0), np.int64)
    path = np.zeros(1, np.int64)  # The row of each unit of the level above.
    for k in range(level + 1):
      counts = self.child_counts(k)
      most = int(counts.max(initial=0)) + 1
      found, path = distinct(path * most + counts)
      table = np.column_stack([table[found // most], found % most])
      if k < level:
        path = np.repeat(path, counts)
    return table[table[:, -1] > 0]

  def describe(self, level: int, unit: int) -> str:
    """Name a unit for messages: "class 9 ('b') of alphabet 3 ('Korean')"."""
    text = f"{self.levels[level]} {unit}"
    names = self.names_of(level)
    if names is not None:
      text += f" ({shown(str(names[unit]))})"
    if level and self.offsets is not None:
      parent = int(self.parents(level)[unit])
      text += f" of {self.describe(level - 1, parent)}"
    return text


def distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return the distinct numbers in order, and the place of each number.

  Args:
    numbers: int64[n], at least 0. They are not sorted if they are small.
  """
  most = int(numbers.max(initial=0)) + 1
  if most > 2 * numbers.size + 1000:
    return np.unique(numbers, return_inverse=True)
  seen = np.zeros(most, bool)
  seen[numbers] = True
  return np.flatnonzero(seen), (np.cumsum(seen) - 1)[numbers]


def _counts_of(
    levels: tuple[str, ...], most_copies: Mapping[str, int] | None
) -> tuple[int, ...] | None:
  """Return one count per level, 0 for levels that are not named."""
  if most_copies is None:
    return None
  for name, count in most_copies.items():
    _validate.one_of("most_copies", name, levels[1:])
    _validate.count(f"most_copies of '{name}'", count, 1)
  return (1, *(int(most_copies.get(name, 0)) for name in levels[1:]))


def offsets_of(counts: Sequence[int] | np.ndarray) -> np.ndarray:
  """Return where the children of each unit begin, and where the last end."""
  return np.append(np.int64(0), np.cumsum(counts, dtype=np.int64))


def _check_levels(levels: tuple[str, ...]) -> None:
  if not levels or len(set(levels)) != len(levels):
    raise PlanError(
        f"levels={levels}: expected one name or more, all distinct"
    )
  for name in levels:
    # Level names appear in tables, pictures and file names.
    if (
        not isinstance(name, str)
        or name in ("", "episode")
        or not name.isprintable()
        or len(name) > _LONGEST_LEVEL
    ):
      raise PlanError(
          f"{shown(name)} is not allowed as a level's name: use 1 to"
          f" {_LONGEST_LEVEL} printable characters, other than 'episode'"
      )


# Trees from label arrays ------------------------------------------------------

# If the list of units followed from the records, a unit would disappear with
# its last record and change the sampling rates of all others. So units can be
# declared, and a declared unit without a record is an empty unit.


def _label_arrays(labels: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Return the labels of each level as vectors of one length, checked."""
  if not hasattr(labels, "items"):  # As frames of polars.
    raise DataError(
        f"the labels are a {type(labels).__name__}: give a mapping of level"
        " names to columns, such as frame.to_dict()"
    )
  arrays = {
      name: labels_lib.read(f"'{name}'", array)
      for name, array in labels.items()
  }
  if not arrays:
    raise PlanError("from_labels needs at least one label array")
  rows = next(iter(arrays.values())).size
  for name, array in arrays.items():
    if array.size != rows:
      raise DataError(
          f"labels of '{name}' have shape {array.shape}: every label array"
          " must be a vector with one label per row of the data"
      )
  return arrays


def _sort_rows(
    arrays: Mapping[str, np.ndarray], units: Iterable[Any] | None
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
  """Sort rows into the units that their labels name.

  Args:
    arrays: level name -> labels [rows], primary level first.
    units: as for `Hierarchy.from_labels`; None takes those of the rows.

  Returns:
    Offsets as in `Hierarchy`; for each level but the last the labels of its
    units; and int32[rows], the row of each leaf.

  Raises:
    DataError: an invalid unit, or a row in a unit that is not declared.
  """
  rows = next(iter(arrays.values())).size
  if hasattr(units, "__array__"):
    units = list(np.asarray(units))
  paths = [_path(unit, len(arrays)) for unit in units or ()]
  # Deep units first: those that have a level are then the first ones.
  given = sorted(range(len(paths)), key=lambda i: -len(paths[i]))
  paths = [paths[i] for i in given]
  # For each row, then for each declared path: its unit at the level above.
  above, held = np.zeros(rows + len(paths), np.int64), 1
  offsets, names = [], []
  for k, (name, array) in enumerate(arrays.items()):
    paths = [path for path in paths if len(path) > k]
    declared = _declared(name, array, [path[k] for path in paths], given)
    if declared.dtype != array.dtype:  # NumPy would round whole numbers.
      array, declared = array.astype(object), declared.astype(object)
    values, code = np.unique(
        np.concatenate([array, declared]), return_inverse=True
    )
    number = above[: code.size] * values.size + code
    known = np.unique(number if units is None else number[rows:])
    unknown = np.flatnonzero(~np.isin(number[:rows], known))
    if unknown.size:
      row = int(unknown[0])
      path = [f"{n} {a.item(row)!r}" for n, a in arrays.items()][: k + 1]
      raise DataError(
          f"row {row} of the labels lies in {', '.join(path)}, which is not"
          " among the declared units: declare the unit, by a public rule, or"
          " leave the row out"
      )
    offsets.append(np.searchsorted(known, np.arange(held + 1) * values.size))
    names.append(values[known % values.size])
    above, held = np.searchsorted(known, number), known.size
  offsets.append(offsets_of(np.bincount(above[:rows], minlength=held)))
  order = np.argsort(above[:rows], kind="stable").astype(np.int32)
  return offsets, names, order


def _path(unit: Any, depth: int) -> tuple[Any, ...]:
  """Return the labels on the path to a declared unit."""
  several = isinstance(unit, (tuple, list, np.ndarray))
  path = tuple(unit) if several else (unit,)
  if not 1 <= len(path) <= depth:
    raise DataError(
        f"units hold {shown(unit)}: give each unit as the tuple of its"
        f" labels, of up to {depth} levels, primary unit first"
    )
  return path


def _declared(
    name: str, array: np.ndarray, labels: list[Any], given: Sequence[int]
) -> np.ndarray:
  """Return the declared labels of a level, of the kind of the data's.

  Args:
    name: name of the level.
    array: labels of the rows.
    labels: labels of the declared units.
    given: position of each among the units as the caller gave them.

  Raises:
    DataError: a label is invalid, or of another kind than the data's.
  """
  column = labels_lib.read(
      f"units of '{name}'", labels, lambda i: f"'{name}' of unit {given[i]}"
  )
  if column.size and array.size:
    declared, held = column.item(0), array.item(0)
    if labels_lib.kind_of(declared) != labels_lib.kind_of(held):
      raise DataError(
          f"units name '{name}' {shown(declared)}, but the labels have"
          f" {shown(held)}: use text in both or numbers in both"
      )
  return column
