"""Errors that a user can mend: each text says what is wrong and the remedy."""

import reprlib
from typing import Any

_LONGEST = 120
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 80, 80


class PlanError(ValueError):
  """The description of a private run contradicts itself or its data."""


class UnsoundPlanError(ValueError):
  """No privacy guarantee is proved for this combination.

  The text names the rule that is broken and the nearest sound setting.
  """


class RunError(ValueError):
  """A work directory, key, checkpoint, model or configuration is unusable."""


def shown(value: Any) -> str:
  """Shorten a value of any size for one sentence."""
  text = _SHORT.repr(value)
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
