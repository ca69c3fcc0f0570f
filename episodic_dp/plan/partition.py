"""Trees of units from label arrays, and the units that have no record.

Which units there are must not follow from the records: a unit whose last record
leaves would leave with it, and change how often all others are drawn. So the
units can be declared, and a declared unit without a record is an empty unit.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from episodic_dp import errors


class Partition(NamedTuple):
  """A tree in tree order.

  Attributes:
    offsets: as in `Hierarchy`.
    order: int32[rows], the row of each leaf.
    names: for each level but the last, the labels of its units.
  """

  offsets: tuple[np.ndarray, ...]
  order: np.ndarray
  names: tuple[np.ndarray, ...]

  def most_places(self, levels: Sequence[str], crossing: str) -> int:
    """Count the most primary units that hold one label of the second level.

    Raises:
      PlanError: `crossing` is not that level.
    """
    if len(levels) < 3 or crossing != levels[1]:
      raise errors.PlanError(
          f"crossing='{crossing}' must be the second of three levels or more,"
          f" and the levels are {tuple(levels)}: put what crosses it above it"
          " and nothing between"
      )
    return int(np.unique(self.names[1], return_counts=True)[1].max())


def partition(
    labels: Mapping[str, Any], units: Iterable[Any] | None = None
) -> Partition:
  """Sort rows into the units that they name.

  Args:
    labels: level name -> array [rows] of labels, primary level first.
    units: all units, each as the tuple of its labels from the primary level
      down to its own (one label stands for the tuple of it); a unit brings
      those above it along. None takes the units that occur in the labels.

  Raises:
    PlanError: arrays that are no vectors of one length, NaN, a unit that is
      none, or a row in a unit that is not declared.
  """
  arrays = _arrays(labels)
  rows = arrays[0][1].size
  # Without a list the units are those of the rows.
  declared = (
      [(np.arange(rows), array) for _, array in arrays]
      if units is None
      else _columns(units, arrays)
  )
  # The unit of each row at the level above; how many units that level has.
  above, held = np.zeros(rows, np.int64), 1
  paths = np.zeros(declared[0][0].size, np.int64)  # Of each declared unit.
  offsets, names = [], []
  for k, (_, array) in enumerate(arrays):
    at, column = declared[k]
    values, code = np.unique(
        np.concatenate([array, column]), return_inverse=True
    )
    number = above * values.size + code[:rows]
    # Of the declared units, those that reach down to this level.
    paths = paths[at] * values.size + code[rows:]
    known = np.unique(paths)
    _check_known(arrays[: k + 1], ~np.isin(number, known))
    paths = np.searchsorted(known, paths)
    offsets.append(
        np.searchsorted(known, np.arange(held + 1) * values.size)
    )
    names.append(values[known % values.size])
    above, held = np.searchsorted(known, number), known.size
  counts = np.bincount(above, minlength=held)
  offsets.append(np.append(0, np.cumsum(counts)))
  return Partition(
      tuple(np.asarray(o, np.int64) for o in offsets),
      np.argsort(above, kind="stable").astype(np.int32),
      tuple(names),
  )


def _arrays(labels: Mapping[str, Any]) -> list[tuple[str, np.ndarray]]:
  """Check that the labels are vectors of one length, and name their levels."""
  arrays = [(name, np.asarray(a)) for name, a in labels.items()]
  if not arrays:
    raise errors.PlanError("from_labels needs at least one label array")
  first = arrays[0][1]
  rows = first.shape[0] if first.ndim == 1 else -1
  for name, array in arrays:
    if array.ndim != 1 or array.shape[0] != rows:
      raise errors.PlanError(
          f"labels of '{name}' have shape {array.shape}: every label array"
          " must be a vector with one label per row of the data"
      )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
      raise errors.PlanError(f"labels of '{name}' hold NaN or infinity")
  if not rows:
    raise errors.PlanError("the label arrays are empty")
  return arrays


def _columns(
    units: Iterable[Any], arrays: Sequence[tuple[str, np.ndarray]]
) -> list[tuple[np.ndarray, np.ndarray]]:
  """List the declared labels of each level.

  Returns:
    for each level, which of those of the level above reach down to it (int64,
    positions) and their labels.
  """
  if isinstance(units, (str, bytes, Mapping)) or not isinstance(
      units, Iterable
  ):
    raise errors.PlanError(
        f"units are {errors.shown(units)}: give a list of them, each as the"
        " tuple of its labels"
    )
  paths = [_path(unit, len(arrays)) for unit in units]
  result = []
  for k, (name, array) in enumerate(arrays):
    at = [i for i, path in enumerate(paths) if len(path) > k]
    paths = [paths[i] for i in at]
    kind = None if at else array.dtype
    column = np.asarray([path[k] for path in paths], kind)
    text = column.dtype.kind in "US"
    if column.ndim != 1 or text != (array.dtype.kind in "US"):
      raise errors.PlanError(
          f"units name '{name}' {errors.shown(column[0].item())} and the"
          f" labels have {errors.shown(array[0].item())}: use text for both"
          " or numbers for both"
      )
    result.append((np.asarray(at, np.int64), column))
  return result


def _path(unit: Any, depth: int) -> tuple[Any, ...]:
  """List the labels that lead to a declared unit."""
  single = isinstance(unit, (str, bytes, int, float, np.generic))
  try:
    path = (unit,) if single else tuple(unit)
  except TypeError:
    path = ()
  if not 1 <= len(path) <= depth:
    raise errors.PlanError(
        f"units hold {errors.shown(unit)}: give each unit as the tuple of its"
        f" labels, of up to {depth} levels, primary unit first"
    )
  return path


def _check_known(
    arrays: Sequence[tuple[str, np.ndarray]], unknown: np.ndarray
) -> None:
  """Reject a row whose unit is not declared."""
  if unknown.any():
    row = int(np.argmax(unknown))
    path = ", ".join(f"{name} {a[row].item()!r}" for name, a in arrays)
    raise errors.PlanError(
        f"row {row} of the labels lies in {path}, which is not among the"
        " declared units: declare it, by a public rule, or leave the row out"
    )
