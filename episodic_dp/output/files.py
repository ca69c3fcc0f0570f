"""Files that are replaced at once, so that a reader never sees half of one."""

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import tempfile
from typing import Any


class WriteError(OSError, ValueError):
  """A file that cannot be written, as one sentence with the remedy.

  It is a ValueError, as every error that a command shows as a sentence, and an
  OSError with its `errno` for callers who know a better remedy.
  """


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike, *, private: bool = False
) -> Iterator[pathlib.Path]:
  """A path to write to, which takes the place of `path` if nothing is raised.

  What was written is on the disk before it takes the place, so that even a
  machine that stops leaves the old file or the new one.

  Args:
    path: of the file; its folder is made where it does not exist.
    private: whether only the owner may read it, from the first byte on.

  Raises:
    WriteError: the folder cannot be made or written.
  """
  path = pathlib.Path(path)
  beside = path.with_name(f".{path.name}.tmp")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600 if private else 0o666)
  except OSError as e:
    error = WriteError(
        f"{path} cannot be written ({e.strerror or e}): choose another place"
    )
    error.errno = e.errno
    raise error from e
  try:
    yield beside
    with beside.open("rb") as f:
      os.fsync(f.fileno())
    os.replace(beside, path)
  finally:
    beside.unlink(missing_ok=True)


def check_folder(folder: str | os.PathLike) -> None:
  """Makes a folder and writes to it, before anything is computed for it.

  Raises:
    WriteError: it cannot be made, or takes no file; one sentence.
  """
  try:
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=pathlib.Path(folder)):
      pass
  except OSError as e:
    raise WriteError(
        f"{folder} cannot be written ({e.strerror or e}): choose another --out"
    ) from e


def write_text(
    path: str | os.PathLike, text: str, *, private: bool = False
) -> None:
  """Replaces a text file (UTF-8); see `replacing`."""
  with replacing(path, private=private) as beside:
    beside.write_text(text, encoding="utf-8")


def write_json(
    path: str | os.PathLike, value: Any, *, private: bool = False
) -> None:
  """Writes strict JSON (no NaN, no Infinity), indented; see `replacing`."""
  text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
  write_text(path, text + "\n", private=private)
