"""Releases as plain data: written in full, read strictly.

`to_dict` gives what a private run is as data for JSON, and `from_dict` reads it
back to equal objects, floats to the last bit (JSON writes them so that they are
read back the same; infinity is the string "inf"). Every field is written and
every field must be there, so that a description that was edited, cut short or
written by another version is refused and not guessed at.

Of a hierarchy only what its guarantee depends on is kept: `leaf_rows` (which
row of the data a leaf is) and `names` are not part of it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import types
import typing
from typing import Any

import numpy as np

from episodic_dp import errors
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import mechanism as mechanism_lib
from episodic_dp.plan import release as release_lib
from episodic_dp.plan import stages as stages_lib
from episodic_dp.plan import text

_STAGES = typing.get_args(stages_lib.Stage)
# Fields of a hierarchy that are not written, and those written as counts.
_NOT_DESCRIBED = ("leaf_rows", "names")
_COUNTS = "child_counts"
# Counts of a ragged hierarchy are held in memory, unit by unit, when read.
_MOST_UNITS = 2**26
_PARTS = ("hierarchy", "plan", "mechanism")
_REMEDY = "restore the description, or write it again"


def to_dict(release: release_lib.Release) -> dict[str, Any]:
  """Give the release as plain data for JSON; `from_dict` reads it.

  Returns:
    {"hierarchy": ..., "plan": ..., "mechanism": ...}, each with the fields of
    its dataclass: stages as text ('Poisson(0.004)'), infinity as "inf", and a
    ragged hierarchy's `offsets` as "child_counts", for each level the number of
    children of every unit above, where a run of equal numbers is one pair
    [number, how many units].
  """
  return {
      "hierarchy": _hierarchy_to_dict(release.hierarchy),
      "plan": plain(release.plan),
      "mechanism": plain(release.mechanism),
  }


def from_dict(data: Mapping[str, Any]) -> release_lib.Release:
  """Read a release from what `to_dict` gave.

  Raises:
    PlanError: a field is missing, unknown or wrong; one sentence that names it.
    UnsoundPlanError: no proof covers what is described.
  """
  values = _checked(data, _PARTS, "the description")
  return release_lib.Release(
      _hierarchy_from_dict(values["hierarchy"]),
      read_object(stages_lib.SamplingPlan, values["plan"], "plan"),
      read_object(mechanism_lib.Mechanism, values["mechanism"], "mechanism"),
  )


def _hierarchy_to_dict(hierarchy: hierarchy_lib.Hierarchy) -> dict[str, Any]:
  result: dict[str, Any] = {}
  for field in dataclasses.fields(hierarchy):
    if field.name == "offsets":
      if hierarchy.offsets is not None:
        result[_COUNTS] = [
            _runs(hierarchy.child_counts(k)) for k in range(hierarchy.depth)
        ]
    elif field.name == "sizes":
      if hierarchy.sizes is not None:
        result["sizes"] = list(hierarchy.sizes)
    elif field.name not in _NOT_DESCRIBED:
      result[field.name] = plain(getattr(hierarchy, field.name))
  return result


def _hierarchy_from_dict(data: Any) -> hierarchy_lib.Hierarchy:
  ragged = isinstance(data, Mapping) and _COUNTS in data
  hints = typing.get_type_hints(hierarchy_lib.Hierarchy)
  names = [
      field.name
      for field in dataclasses.fields(hierarchy_lib.Hierarchy)
      if field.name not in (*_NOT_DESCRIBED, "sizes", "offsets")
  ]
  values = _checked(
      data, (*names, _COUNTS if ragged else "sizes"), "hierarchy"
  )
  read = {
      name: _read(hints[name], values[name], f"hierarchy.{name}")
      for name in names
  }
  if ragged:
    read["offsets"] = _offsets(values[_COUNTS], f"hierarchy.{_COUNTS}")
  else:
    name = "hierarchy.sizes"
    read["sizes"] = _read(tuple[int, ...], values["sizes"], name)
    for size in read["sizes"]:
      if size < 1:
        raise _wrong(name, values["sizes"], "whole numbers of at least 1")
  return hierarchy_lib.Hierarchy(**read)


def _runs(counts: np.ndarray) -> list[int | list[int]]:
  """Numbers, where equal neighbours are one pair [number, how many]."""
  starts = np.flatnonzero(np.append(True, counts[1:] != counts[:-1]))
  lengths = np.diff(np.append(starts, counts.size))
  return [
      [int(count), int(length)] if length > 1 else int(count)
      for count, length in zip(counts[starts], lengths)
  ]


def _offsets(data: Any, name: str) -> tuple[np.ndarray, ...]:
  """The offsets of a ragged hierarchy from the `_runs` of its levels."""
  if not _is_list(data):
    raise _wrong(name, data, "one list of numbers per level")
  units, offsets = 1, []
  for k, runs in enumerate(data):
    where = f"{name}[{k}]"
    if not _is_list(runs):
      raise _wrong(where, runs, "a list of numbers and pairs of numbers")
    pairs = []
    for run in runs:
      pair = list(run) if _is_list(run) else [run, 1]
      if len(pair) != 2 or not all(_is_whole(n) and n >= 0 for n in pair):
        raise _wrong(
            where, run, "a number or a pair [number, how many units]"
        )
      pairs.append(pair)
    # Added up as Python's integers, before anything of that size is made.
    total = sum(times for _, times in pairs)
    if total != units or units > _MOST_UNITS:
      raise errors.PlanError(
          f"{where} counts the children of {total} units and the level above"
          f" has {units}: make them equal, and at most {_MOST_UNITS}"
      )
    units = sum(count * times for count, times in pairs)
    if units > hierarchy_lib.MAX_LEAVES:
      raise errors.PlanError(
          f"{where} adds up to {units} units, more than 2^31 - 1:"
          f" {_REMEDY}"
      )
    table = np.asarray(pairs, np.int64).reshape(-1, 2)
    counts = np.repeat(table[:, 0], table[:, 1])
    offsets.append(np.append(np.int64(0), np.cumsum(counts)))
  return tuple(offsets)


def plain(value: Any) -> Any:
  """A dataclass, or a value of its field, as plain data."""
  if isinstance(value, _STAGES):
    return text.stage_text(value)
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {
        field.name: plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
    }
  if value is None or isinstance(value, (bool, str)):
    return value
  if isinstance(value, (int, np.integer)):
    return int(value)
  if isinstance(value, (float, np.floating)):
    return float(value) if math.isfinite(value) else repr(float(value))
  if isinstance(value, Sequence):
    return [plain(v) for v in value]
  raise TypeError(f"{value!r} of a plan cannot be written as plain data")


def read_object(kind: type, data: Any, name: str) -> Any:
  """A dataclass from the plain data of its fields, every one of them.

  Args:
    kind: the dataclass; its fields are numbers, text, `Literal`, tuples and
      dataclasses, or None where the type says so.
    data: what `plain` gave, perhaps through JSON.
    name: of it, for messages.

  Raises:
    PlanError: a field is missing, unknown or wrong; one sentence that names it.
  """
  hints = typing.get_type_hints(kind)
  names = [field.name for field in dataclasses.fields(kind)]
  values = _checked(data, names, name)
  return kind(
      **{n: _read(hints[n], values[n], f"{name}.{n}") for n in names}
  )


def _read(hint: Any, data: Any, name: str) -> Any:
  """A field's value from plain data, by its type; PlanError names the field."""
  if hint == stages_lib.Stage:
    return text.parse_stage(data)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    if data is None and type(None) in arguments:
      return None
    (hint,) = (a for a in arguments if a is not type(None))
    return _read(hint, data, name)
  if origin is typing.Literal:
    if data not in arguments:
      raise _wrong(name, data, f"one of {', '.join(map(repr, arguments))}")
    return data
  if origin is tuple:
    if not _is_list(data):
      raise _wrong(name, data, "a list")
    return tuple(
        _read(arguments[0], v, f"{name}[{i}]") for i, v in enumerate(data)
    )
  if dataclasses.is_dataclass(hint):
    return read_object(typing.cast(type, hint), data, name)
  if hint is float:
    return _read_float(data, name)
  if hint is int and _is_whole(data):
    return data
  if hint in (bool, str) and isinstance(data, hint):
    return data
  wanted = {int: "a whole number", bool: "true or false", str: "text"}
  raise _wrong(name, data, wanted[hint])


def _read_float(data: Any, name: str) -> float:
  if data == "inf":
    return math.inf
  if _is_whole(data) or isinstance(data, float):
    try:
      value = float(data)
    except OverflowError:
      value = math.inf
    if math.isfinite(value):
      return value
  raise _wrong(name, data, 'a finite number or "inf"')


def _checked(data: Any, names: Sequence[str], where: str) -> Mapping[str, Any]:
  """The data, if it is a mapping with exactly these keys."""
  if not isinstance(data, Mapping):
    raise _wrong(where, data, f"an object with {', '.join(names)}")
  for name in names:
    if name not in data:
      raise errors.PlanError(f"{where} has no field '{name}': {_REMEDY}")
  for name in data:
    if name not in names:
      raise errors.PlanError(
          f"{where} has a field {errors.shown(name)} that nothing reads:"
          f" {_REMEDY}"
      )
  return data


def _wrong(name: str, data: Any, wanted: str) -> errors.PlanError:
  return errors.PlanError(
      f"{name} is {errors.shown(data)}: it must be {wanted}"
  )


def _is_list(data: Any) -> bool:
  return isinstance(data, Sequence) and not isinstance(data, (str, bytes))


def _is_whole(data: Any) -> bool:
  return isinstance(data, int) and not isinstance(data, bool)
