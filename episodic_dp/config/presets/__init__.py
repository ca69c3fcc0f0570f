"""Runs by name: one file each, with a function of that name that returns one.

Its keyword arguments, with their types, are those of the command line.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
import importlib
import inspect
import pathlib
import runpy
import typing
from typing import Any

from episodic_dp import plain
from episodic_dp.errors import PlanError
from episodic_dp.errors import RunError
from episodic_dp.output import files
from episodic_dp.run import Run

_FOLDER = pathlib.Path(__file__).parent
_BOOLS = {"0": False, "false": False, "1": True, "true": True}


def _names(folder: pathlib.Path) -> tuple[str, ...]:
  return tuple(
      sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
  )


NAMES = _names(_FOLDER)
PVI_NAMES = _names(_FOLDER / "pvi")  # For `episodic-dp pvi`.


def load(source: str, fields: Mapping[str, str] | None = None) -> Run:
  """Return the run of a preset or of a file, with fields set.

  Args:
    source: name of a preset or path of a file, with arguments after a colon,
      such as "glyphs:private=0".
    fields: name -> text, such as {"mechanism.clip_norm": "2"}, which is a
      Python literal or text. "episode.way" is that of 2.x for
      "plan.episode.way".

  Raises:
    RunError: there is no such file, or it cannot be imported.
    PlanError: an argument or a field is unknown or wrong.
  """
  described, changes = made(source), read(fields or {})
  return Run.parse(described).replace(changes)


def read(fields: Mapping[str, str]) -> dict[str, Any]:
  """Return the values of fields that are given as texts; see `load`."""
  values = {}
  for name, text in fields.items():
    if name.startswith("episode"):
      name = f"plan.{name}"
    values[name] = _literal(text)
  return values


def made(source: str, names: Sequence[str] = NAMES) -> Any:
  """Call the function of a preset or of a file, and return its result.

  A preset's function has its name, and that of a file is `get_config`. Its
  keyword arguments are read by their types; a function with a positional
  argument receives the text after the colon.

  Args:
    source: see `load`.
    names: `NAMES` or `PVI_NAMES`.

  Raises:
    RunError, PlanError: see `load`; or a file's function needs a text.
  """
  name, _, text = source.partition(":")
  if name in names:
    package = __name__
    if name in PVI_NAMES:
      package = f"{__name__}.pvi"
    make = getattr(importlib.import_module(f"{package}.{name}"), name)
  elif files.path_of(name).is_file():
    make = _imported(name)
  else:
    raise RunError(
        f"--config={name}: expected a file, or one of {', '.join(names)}"
    )
  signature = inspect.signature(make)
  kinds = [p.kind for p in signature.parameters.values()]
  if any(kind is not inspect.Parameter.KEYWORD_ONLY for kind in kinds):
    given, named = [text] if text else [], {}
  else:
    given, named = [], arguments(make, text)
  try:
    signature.bind(*given, **named)
  except TypeError as e:
    raise RunError(
        f"--config={source}: get_config: {e}: write it after a colon, as in"
        f" --config={name}:TEXT or {name}:NAME=VALUE, or give a default"
    ) from e
  return make(*given, **named)


def arguments(make: Callable[..., Any], text: str) -> dict[str, Any]:
  """Read "name=value,name=value" by the keyword arguments of a function.

  Raises:
    PlanError: an argument is unknown, or a value is of another type.
  """
  hints = typing.get_type_hints(make, include_extras=True)
  known = inspect.signature(make).parameters
  found = {}
  for part in filter(None, text.split(",")):
    name, equals, value = part.partition("=")
    if name not in known or not equals:
      takes = ", ".join(f"{k}={_shown(p.default)}" for k, p in known.items())
      remedy = "leave out the colon: this config takes no arguments"
      if takes:
        remedy = f"after the colon write some of {takes}, separated by commas"
      raise PlanError(
          f"config argument '{part}' is not known: {remedy}"
      )
    kind = hints.get(name, str)
    found[name] = plain.read(
        kind, _of_kind(kind, value), name=f"config argument {name}"
    )
  return found


def _of_kind(kind: Any, text: str) -> Any:
  """Return the plain data that a text means for a type."""
  if kind is str:
    return text
  if kind is bool:
    return _BOOLS.get(text.lower(), text)
  if typing.get_origin(kind) is tuple:
    return text.split("/")
  return _literal(text)


def _shown(default: object) -> str:
  """Write a default as an argument would be."""
  if isinstance(default, tuple):
    return "/".join(default)
  return str(default)


def _literal(text: str) -> Any:
  """Return the value of a Python literal, true or false; else the text."""
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    return {"true": True, "false": False}.get(text, text)


def _imported(path: str) -> Callable[..., Any]:
  """Return `get_config` of a file of the user's.

  Raises:
    RunError: the file fails, or has no such function.
  """
  try:
    found = runpy.run_path(str(files.path_of(path)))
  except Exception as e:  # A user's file may raise anything.
    raise RunError(
        f"--config={path} cannot be read ({type(e).__name__}: {e}): correct it"
    ) from e
  make: object = found.get("get_config")
  if not callable(make):
    raise RunError(
        f"--config={path} has no function get_config: define one that returns a"
        " Run, or a mapping of the fields"
    )
  return make
