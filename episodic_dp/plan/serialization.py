"""Releases as plain data: written in full, read strictly.

`to_dict` describes a private run as data for JSON, and `from_dict` reads it
back to equal objects, floats to the last bit. Every field is written and every
field must be there: a description that was edited, cut short or written by
another version is refused.

Of a hierarchy only the fields that its guarantee depends on are kept:
`leaf_rows` (which row of the data a leaf is) and `names` are not.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import mechanism as mechanism_lib
from episodic_dp.plan import release as release_lib
from episodic_dp.plan import stages as stages_lib

# Counts of a ragged hierarchy are held in memory, unit by unit, when read.
_MOST_UNITS = 2**26

# A number, or a number and the count of its repetitions.
_Run = plain.Whole | tuple[plain.Whole, plain.Whole]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
  """A hierarchy as plain data.

  Attributes:
    levels: names of the levels, primary units first.
    sizes: number of children of a unit at each level of a regular hierarchy.
    child_counts: number of children of every unit above, for each level of a
      ragged hierarchy; a run of equal numbers may be a pair (number, units).
    copies: whether several primary units may hold the same record, as synthetic
      participants do.
    most_copies: largest number of primary units that hold one same unit of each
      level, 0 where it is unknown; None for no counts.
    units_from_records: whether the list of units follows from the records.
      Guarantees then assume that a unit stays when its last record leaves.
  """

  levels: tuple[str, ...]
  sizes: tuple[plain.Count, ...] | None = None
  child_counts: tuple[tuple[_Run, ...], ...] | None = None
  copies: bool = False
  most_copies: tuple[int, ...] | None = None
  units_from_records: bool = False

  @classmethod
  def of(cls, tree: hierarchy_lib.Hierarchy) -> "Tree":
    """Describe a hierarchy."""
    counts = None
    if tree.offsets is not None:
      counts = tuple(_runs(tree.child_counts(k)) for k in range(tree.depth))
    return cls(
        levels=tree.levels,
        sizes=tree.sizes,
        child_counts=counts,
        copies=tree.copies,
        most_copies=tree.most_copies,
        units_from_records=tree.units_from_records,
    )

  def build(self) -> hierarchy_lib.Hierarchy:
    """Return the hierarchy; PlanError where it contradicts itself."""
    offsets = None
    if self.child_counts is not None:
      offsets = _offsets(self.child_counts, "hierarchy.child_counts")
    return hierarchy_lib.Hierarchy(
        levels=self.levels,
        sizes=self.sizes,
        offsets=offsets,
        copies=self.copies,
        most_copies=self.most_copies,
        units_from_records=self.units_from_records,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Description:
  hierarchy: Tree
  plan: stages_lib.SamplingPlan
  mechanism: mechanism_lib.Mechanism


def to_dict(release: release_lib.Release) -> dict[str, Any]:
  """Return the release as plain data for JSON; `from_dict` reads it.

  Returns:
    {"hierarchy": ..., "plan": ..., "mechanism": ...}, each with the fields of
    its dataclass (of `Tree` for the hierarchy): stages as text
    ('Poisson(0.004)'), infinity as "inf".
  """
  result: dict[str, Any] = plain.to_plain(
      _Description(
          hierarchy=Tree.of(release.hierarchy),
          plan=release.plan,
          mechanism=release.mechanism,
      )
  )
  return result


def from_dict(data: Mapping[str, Any]) -> release_lib.Release:
  """Return the release that `to_dict` described.

  Raises:
    PlanError: a field is missing, unknown or wrong.
    UnsoundPlanError: no proof covers the release.
  """
  found = plain.from_plain(_Description, data, name="release")
  return release_lib.Release(
      found.hierarchy.build(), found.plan, found.mechanism
  )


def _runs(counts: np.ndarray) -> tuple[_Run, ...]:
  """Join equal neighbours to one pair (number, how many)."""
  starts = np.flatnonzero(np.append(True, counts[1:] != counts[:-1]))
  lengths = np.diff(np.append(starts, counts.size))
  return tuple(
      (int(count), int(length)) if length > 1 else int(count)
      for count, length in zip(counts[starts], lengths)
  )


def _offsets(
    levels: Sequence[Sequence[_Run]], name: str
) -> tuple[np.ndarray, ...]:
  """Return the offsets of a ragged hierarchy from the `_runs` of its levels."""
  units, offsets = 1, []
  for k, runs in enumerate(levels):
    pairs = [(run, 1) if isinstance(run, int) else run for run in runs]
    # Added up as Python's integers, before anything of that size is made.
    total = sum(times for _, times in pairs)
    if total != units or units > _MOST_UNITS:
      raise errors.PlanError(
          f"{name}[{k}] counts the children of {total} units: expected"
          f" {units}, as in the level above, and at most {_MOST_UNITS}"
      )
    units = sum(count * times for count, times in pairs)
    if units > hierarchy_lib.MAX_LEAVES:
      raise errors.PlanError(
          f"{name}[{k}] adds up to {units} units: expected at most 2^31 - 1"
      )
    table = np.asarray(pairs, np.int64).reshape(-1, 2)
    counts = np.repeat(table[:, 0], table[:, 1])
    offsets.append(np.append(np.int64(0), np.cumsum(counts)))
  return tuple(offsets)
