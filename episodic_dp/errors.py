"""Errors that a user can fix: each message states the fault and the remedy."""

import reprlib
from typing import Any

_LONGEST = 120
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 80, 80


class PlanError(ValueError):
  """The description of a private run contradicts itself or its data."""


class UnsoundPlanError(ValueError):
  """No privacy guarantee is proved for this combination.

  The message names the violated rule and the nearest sound setting.
  """


class RunError(ValueError):
  """A work directory, key, checkpoint, model or configuration is unusable."""


def shown(value: Any) -> str:
  """Shorten the text of a value so that it fits into a message."""
  text = _SHORT.repr(value)
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
