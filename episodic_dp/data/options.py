"""Checks of the options of data sets, each answered by one sentence."""

import numpy as np


def check_seed(name: str, seed: object) -> None:
  """ValueError unless the seed is a whole number, 0 to 2^32 - 1."""
  if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
    raise ValueError(
        f"{name} option seed={seed!r} must be a whole number, 0 to 2^32 - 1"
    )


def check_count(
    name: str, option: str, value: object, *, least: int = 1
) -> None:
  """ValueError unless an option is a whole number of at least `least`."""
  if (
      not isinstance(value, (int, np.integer))
      or isinstance(value, bool)
      or value < least
  ):
    raise ValueError(
        f"{name} option {option}={value!r} must be a whole number of at least"
        f" {least}"
    )
