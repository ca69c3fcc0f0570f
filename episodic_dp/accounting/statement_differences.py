"""What a statement says, field by field, against what its entries give."""

from collections.abc import Iterator, Mapping
import dataclasses
import math
from typing import Any

from episodic_dp.errors import shown

# A stated epsilon below the recomputed one by more than this is false; one that
# is above it by more than rounding was not computed from these entries.
_BELOW = 1e-9
_ROUNDING = 1e-6
# Where the epsilons of a level's guarantee are, and what they are at least.
_EPSILONS = (("epsilon",), ("epsilons",))
_LOWER = "epsilon_lower"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
  """What a statement says and what its entries give.

  Attributes:
    where: the path to the field, such as ("guarantees", "class", "epsilon").
    stated: its value in the statement; None where it is missing.
    recomputed: its value computed again; None where there is none.
    false: whether the statement promises more than its entries give.
  """

  where: tuple[str, ...]
  stated: Any
  recomputed: Any
  false: bool = False

  def __str__(self) -> str:
    stated, recomputed = (
        "nothing" if value is None else shown(value)
        for value in (self.stated, self.recomputed)
    )
    text = (
        f"{'.'.join(self.where)} is stated as {stated} and recomputed as"
        f" {recomputed}"
    )
    if self.false:
      text += ", so the statement promises more than its entries give"
    return text


def between(
    stated: Any, fresh: Any, where: tuple[str, ...]
) -> Iterator[Difference]:
  """Yield what differs between two values, down to single fields.

  Args:
    stated: plain data of a statement.
    fresh: the same, computed again.
    where: the path to both in the statement.
  """
  if isinstance(stated, Mapping) and isinstance(fresh, Mapping):
    for name in {**fresh, **stated}:
      inner = (*where, name)
      if name == "direction" and _tied(stated, fresh):
        continue
      if name in stated and name in fresh:
        yield from between(stated[name], fresh[name], inner)
      else:
        yield Difference(
            where=inner,
            stated=stated.get(name),
            recomputed=fresh.get(name),
            # A guarantee that is proved for no such level.
            false=name in stated and where == ("guarantees",),
        )
  elif isinstance(stated, list) and isinstance(fresh, list):
    if len(stated) != len(fresh):
      yield from _entries(stated, fresh, where)
    else:
      for i, (a, b) in enumerate(zip(stated, fresh)):
        yield from between(a, b, (*where, str(i)))
  elif where[:1] == ("guarantees",) and where[2:3] in _EPSILONS:
    yield from _epsilon_difference(stated, fresh, where)
  elif where[:1] == ("guarantees",) and where[2:3] == (_LOWER,):
    value, again = _number(stated), _number(fresh)
    if value is None or again is None or not math.isclose(
        value, again, rel_tol=_ROUNDING, abs_tol=_ROUNDING
    ):
      yield Difference(where=where, stated=stated, recomputed=fresh)
  elif not _equal(stated, fresh):
    yield Difference(where=where, stated=stated, recomputed=fresh)


def _entries(
    stated: list[Any], fresh: list[Any], where: tuple[str, ...]
) -> Iterator[Difference]:
  """What only one of two lists holds; both of them where that is nothing."""
  found = [
      Difference(where=(*where, str(i)), stated=x, recomputed=None)
      for i, x in enumerate(stated)
      if x not in fresh
  ] + [
      Difference(where=(*where, str(i)), stated=None, recomputed=x)
      for i, x in enumerate(fresh)
      if x not in stated
  ]
  yield from found or [
      Difference(where=where, stated=stated, recomputed=fresh)
  ]


def _epsilon_difference(
    stated: Any, fresh: Any, where: tuple[str, ...]
) -> Iterator[Difference]:
  """A smaller epsilon is false; a larger one is merely not the entries'."""
  value, true = _number(stated), _number(fresh)
  false = value is not None and true is not None and value < true * (1 - _BELOW)
  larger = value is None or true is None or value > true * (1 + _ROUNDING)
  if false or larger:
    yield Difference(where=where, stated=stated, recomputed=fresh, false=false)


def _tied(stated: Mapping[str, Any], fresh: Mapping[str, Any]) -> bool:
  """Whether the directions are equally far, so that rounding chose one."""
  epsilons = {k: _number(v) for k, v in (fresh.get("epsilons") or {}).items()}
  values = [v for v in epsilons.values() if v is not None]
  return (
      isinstance(stated.get("direction"), str)
      and stated["direction"] in epsilons
      and max(values) <= min(values) * (1 + _ROUNDING)
  )


def _equal(stated: Any, fresh: Any) -> bool:
  """Equal values of one type; numbers up to the rounding of arithmetic."""
  first, second = _number(stated), _number(fresh)
  if first is not None and second is not None:
    return math.isclose(first, second, rel_tol=_BELOW)
  return type(stated) is type(fresh) and stated == fresh


def _number(value: Any) -> float | None:
  """A number or "inf"; None for all else."""
  if value == "inf":
    return math.inf
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return None
  try:
    return float(value)
  except OverflowError:
    return None
