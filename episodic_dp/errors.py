"""Errors that a user can fix: each message states the fault and the remedy."""

import re
import reprlib

_LONGEST = 120
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 80, 80


class PlanError(ValueError):
  """The description of a private run contradicts itself or its data."""


class UnsoundPlanError(ValueError):
  """No privacy guarantee is proved for this combination.

  The message names the violated rule and the nearest sound setting.
  """


class DataError(ValueError):
  """Data, images, labels or weights that a user gives cannot be used."""


class RunError(ValueError):
  """A work directory, key, checkpoint, model or configuration is unusable."""


OF_USERS = (DataError, PlanError, RunError, UnsoundPlanError)
"""Errors of which a command prints the one sentence."""


def shown(value: object) -> str:
  """Shorten the text of a value so that it fits into a message."""
  try:
    return shortened(re.sub(r"\s*\n\s*", " ", _SHORT.repr(value)))
  except ValueError:  # Python writes no whole number of more than 4300 digits.
    return "more than 10^4000"


def shortened(text: str) -> str:
  """Cut a text of another library so that it fits into a message."""
  if len(text) <= _LONGEST:
    return text
  return f"{text[: _LONGEST - 3]}..."
