"""Checks of single values, whose messages read `name=value: expected ...`."""

from collections.abc import Collection
import math
import numbers
from typing import Any

from episodic_dp.errors import PlanError
from episodic_dp.errors import shown


def refusal(name: str, value: object, expected: str) -> PlanError:
  """Return the error for a value that is not as expected."""
  return PlanError(
      f"{name}={shown(value)}: expected {expected}"
  )


def _is_number(value: Any) -> bool:
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def count(name: str, value: Any, least: int = 0) -> int:
  """Return a whole number of at least `least`, or raise PlanError."""
  whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  if not whole or value < least:
    raise refusal(name, value, f"a whole number of at least {least}")
  return int(value)


def positive(name: str, value: Any, *, zero: bool = False) -> float:
  """Return a finite number above 0 (or 0, with zero), or raise PlanError."""
  in_range = _is_number(value) and math.isfinite(value)
  if not in_range or value < 0 or (value == 0 and not zero):
    raise refusal(name, value, "a finite number of at least 0" if zero else
                  "a finite number above 0")
  return float(value)


def probability(name: str, value: Any) -> float:
  """Return a probability from 0 to 1, or raise PlanError."""
  if not _is_number(value) or not 0 <= value <= 1:
    raise refusal(name, value, "a number from 0 to 1")
  return float(value)


def fraction(name: str, value: Any) -> float:
  """Return a number strictly between 0 and 1, or raise PlanError."""
  if not _is_number(value) or not 0 < value < 1:
    raise refusal(name, value, "a number above 0 and below 1")
  return float(value)


def one_of(name: str, value: Any, allowed: Collection[Any]) -> Any:
  """Return a value that is one of the allowed ones, or raise PlanError."""
  if value not in allowed:
    names = ", ".join(map(repr, allowed))
    raise refusal(name, value, f"one of {names}")
  return value
