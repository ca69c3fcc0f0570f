"""Files that are replaced at once, so that a reader never sees half of one."""

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
from typing import Any


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """A path to write to, which takes the place of `path` if nothing is raised.

  Raises:
    ValueError: the folder cannot be made or written; one sentence.
  """
  path = pathlib.Path(path)
  beside = path.with_name(f".{path.name}.tmp")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.touch()
  except OSError as e:
    raise ValueError(
        f"{path} cannot be written ({e.strerror or e}): choose another place"
    ) from e
  try:
    yield beside
    os.replace(beside, path)
  finally:
    beside.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
  """Replaces a text file (UTF-8)."""
  with replacing(path) as beside:
    beside.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike, value: Any) -> None:
  """Writes strict JSON (no NaN, no Infinity), indented."""
  text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
  write_text(path, text + "\n")
