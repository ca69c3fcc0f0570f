"""String arguments of a config file: `config.py:private=0,width=16`."""

from typing import Any

import ml_collections


def parse(text: str | None, **defaults: Any) -> ml_collections.ConfigDict:
  """Reads "name=value,name=value"; names and types come from the defaults.

  Args:
    text: what stands after the colon of `--config=FILE.py:TEXT`.
    **defaults: the arguments that the config file knows.

  Raises:
    ValueError: an unknown name, or a value of another type.
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
  try:
    if isinstance(default, bool):
      return words[value.lower()]
    return type(default)(value)
  except (KeyError, ValueError) as e:
    kind = "0 or 1" if isinstance(default, bool) else type(default).__name__
    raise ValueError(
        f"config argument {name}={value} must be {kind}, such as"
        f" {name}={default}"
    ) from e
