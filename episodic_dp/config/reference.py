"""Reference of all fields of a config, read from its dataclasses."""

from collections.abc import Iterator
import dataclasses
import inspect
import re
import textwrap
import types
import typing
from typing import Annotated, Any, Literal

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan

_ALIASES = {
    plan.Stage: "stage, such as 'Poisson(0.02)'",
    plain.Count: "whole number, at least 1",
    plain.Whole: "whole number, at least 0",
    plain.Positive: "number above 0",
    plain.NotNegative: "number, at least 0",
    plain.Fraction: "number between 0 and 1",
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    type(None): "none",
    Any: "any",
}
_MEANING = re.compile(r"^  (\w+): (.*(?:\n    .*)*)", re.MULTILINE)


def fields(kind: Any, path: str = "") -> Iterator[tuple[str, str, str, str]]:
  """Yield (path, type, default, meaning) of each field of a dataclass.

  The default of a required field is "".

  Args:
    kind: the dataclass, whose docstring has a section "Attributes".
    path: path of the dataclass in the config.
  """
  hints = typing.get_type_hints(kind, include_extras=True)
  # A subclass describes only its own fields.
  described = "\n".join(
      (inspect.getdoc(base) or "").partition("Attributes:")[2]
      for base in reversed(kind.__mro__)
  )
  meanings = dict(_MEANING.findall(described))
  defaults = plain.defaults(kind)
  for field in plain.fields(kind):
    name, default = field.name, ""
    if path:
      name = f"{path}.{name}"
    if field.name in defaults:
      default = repr(defaults[field.name])
    inside = _dataclass_in(hints[field.name])
    if inside is not None:
      yield from fields(inside, name)
      continue
    meaning = " ".join(meanings.get(field.name, "").split())
    yield name, _type(hints[field.name]), default, meaning


def lines(kind: Any, width: int = 80) -> list[str]:
  """Return the lines about all fields for a command's help.

  Args:
    kind: the dataclass of the config.
    width: number of characters of a line.
  """
  result = []
  for path, words, default, meaning in fields(kind):
    stated = "required"
    if default:
      stated = f"default {default}"
    for text, indent in (
        (f"{path} ({words}; {stated})", "  "), (meaning, " " * 6)
    ):
      result += textwrap.wrap(
          text, width, initial_indent=indent, subsequent_indent=" " * 6,
          break_on_hyphens=False,
      )
  return result


def _dataclass_in(hint: Any) -> Any:
  """Return the dataclass that a field holds, or None."""
  for kind in map(plain.form_of, (hint, *typing.get_args(hint))):
    if dataclasses.is_dataclass(kind) and typing.get_origin(hint) is not tuple:
      return kind
  return None


def _type(hint: Any) -> str:
  """Return the type of a field in words."""
  if hint in _ALIASES:
    return _ALIASES[hint]
  if hint == options.LearnerName:
    return ", ".join(options.LEARNERS)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    return ", ".join(map(str, arguments))
  if origin is Annotated:
    return _type(arguments[0])
  if origin in (typing.Union, types.UnionType):
    return " or ".join(map(_type, arguments))
  if origin is tuple:
    return f"list of: {_type(arguments[0])}"
  return "mapping"
