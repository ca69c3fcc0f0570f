"""Configurations by name: one file each, with `get_config()`."""

import pathlib

_FOLDER = pathlib.Path(__file__).parent
_PVI = _FOLDER / "pvi"


def _names(folder: pathlib.Path) -> tuple[str, ...]:
  return tuple(
      sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
  )


NAMES = _names(_FOLDER)
PVI_NAMES = _names(_PVI)  # Of `episodic-dp pvi`.


def file(name: str) -> pathlib.Path:
  """Return the file of a preset, one of `NAMES` or `PVI_NAMES`."""
  return (_PVI if name in PVI_NAMES else _FOLDER) / f"{name}.py"
