"""Configurations by name: one file each, with `get_config()`."""

import ast
from collections.abc import Sequence
import importlib.util
import os
import pathlib
from typing import Any

from episodic_dp import errors
from episodic_dp.config import run_config
from episodic_dp.output import files

_FOLDER = pathlib.Path(__file__).parent


def _names(folder: pathlib.Path) -> tuple[str, ...]:
  return tuple(
      sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
  )


NAMES = _names(_FOLDER)
PVI_NAMES = _names(_FOLDER / "pvi")  # For `episodic-dp pvi`.


def load(
    source: str,
    fields: Sequence[str] = (),
    *,
    names: Sequence[str] = NAMES,
) -> dict[str, Any]:
  """Return the config of a preset or of a file, with fields set.

  Args:
    source: name of a preset or path of a file, with arguments after a colon,
      such as "glyphs:private=0".
    fields: such as "mechanism.clip_norm=2"; a value is a Python literal, or
      text.
    names: `NAMES` or `PVI_NAMES`.

  Raises:
    RunError: there is no such file, or it cannot be imported.
    ValueError: an argument is unknown or wrong.
  """
  name, colon, arguments = source.partition(":")
  path = str(files.path_of(name))
  if name in names:
    folder = _FOLDER / "pvi" if name in PVI_NAMES else _FOLDER
    path = str(folder / f"{name}.py")
  elif not os.path.isfile(path):
    raise errors.RunError(
        f"--config={name}: expected a file, or one of {', '.join(names)}"
    )
  spec = importlib.util.spec_from_file_location("config_file", path)
  assert spec is not None and spec.loader is not None, path
  module = importlib.util.module_from_spec(spec)
  try:
    spec.loader.exec_module(module)
  except Exception as e:  # A user's file may raise anything.
    raise errors.RunError(
        f"--config={name} cannot be read ({type(e).__name__}: {e}): correct it"
    ) from e
  make = module.get_config
  found = run_config.as_mapping(make(arguments) if colon else make())
  for text in fields:
    field, _, value = text.partition("=")
    run_config.set_field(found, field, _value(value))
  return found


def _value(text: str) -> Any:
  """Return the value of a Python literal, true or false; else the text."""
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    return {"true": True, "false": False}.get(text, text)
