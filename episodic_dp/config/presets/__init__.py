"""Configurations by name: one file each, with `get_config()`."""

import pathlib

_FOLDER = pathlib.Path(__file__).parent
NAMES = tuple(
    sorted(p.stem for p in _FOLDER.glob("*.py") if p.stem != "__init__")
)


def file(name: str) -> pathlib.Path:
  """The file of a preset, one of `NAMES`."""
  return _FOLDER / f"{name}.py"
