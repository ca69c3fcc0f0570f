"""String arguments of a config file: `config.py:private=0,width=16`."""

import math
from typing import Any

import ml_collections


def parse(text: str | None, **defaults: Any) -> ml_collections.ConfigDict:
  """Reads "name=value,name=value"; names and types come from the defaults.

  Args:
    text: what stands after the colon of `--config=FILE.py:TEXT`.
    **defaults: the arguments that the config file knows. Whole numbers are at
      least 1, or 0 where the default is 0; `rate` is a share that is drawn.

  Raises:
    ValueError: an unknown name, or a value of another type or out of range.
  """
  result = dict(defaults)
  for part in filter(None, (text or "").split(",")):
    name, equals, value = part.partition("=")
    if name not in defaults or not equals:
      known = ", ".join(f"{k}={v}" for k, v in defaults.items())
      raise ValueError(
          f"config argument '{part}' is not known: after the colon write some"
          f" of {known}, separated by commas"
      )
    result[name] = _convert(name, value, defaults[name])
  return ml_collections.ConfigDict(result)


def _convert(name: str, value: str, default: Any) -> Any:
  words = {"1": True, "true": True, "0": False, "false": False}
  least, most, kind = -math.inf, math.inf, "a number"
  if isinstance(default, bool):
    kind = "0 or 1"
  elif isinstance(default, int):
    least = min(default, 1)
    kind = f"a whole number of at least {least}"
  elif name == "rate":
    least, most, kind = math.ulp(0.0), 1, "above 0 and at most 1"
  try:
    if isinstance(default, bool):
      return words[value.lower()]
    found = type(default)(value)
    if not isinstance(default, str) and not least <= found <= most:
      raise ValueError(f"{found} is out of range")
    return found
  except (KeyError, ValueError) as e:
    raise ValueError(
        f"config argument {name}={value} must be {kind}, such as"
        f" {name}={default}"
    ) from e
