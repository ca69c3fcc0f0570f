"""Errors that a description of a private run can raise."""

import reprlib
from typing import Any

_LONGEST = 120
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 80, 80


class PlanError(ValueError):
  """The plan does not fit its hierarchy, or contradicts itself."""


class UnsoundPlanError(ValueError):
  """No privacy guarantee is proved for this combination.

  The text names the rule that is broken and the nearest sound setting.
  """


def shown(value: Any) -> str:
  """Shorten a value of any size for one sentence."""
  text = _SHORT.repr(value)
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
