"""Replace files in one operation, so that a reader never sees half a file."""

from collections.abc import Iterator
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

from episodic_dp.errors import RunError


def path_of(path: str | os.PathLike) -> pathlib.Path:
  """Return a path that a caller gave; "~" at its start is the home folder."""
  return pathlib.Path(os.path.expanduser(path))


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike, *, private: bool = False
) -> Iterator[pathlib.Path]:
  """Yield a path to write to; it replaces `path` if nothing is raised.

  The content is on the disk before it replaces the file, so that a machine that
  stops leaves the old file or the new one.

  Args:
    path: path of the file; its folder is made if it does not exist.
    private: whether only the owner may read it, from the first byte on.

  Raises:
    RunError: it is a folder, or its folder cannot be made or written.
  """
  path = path_of(path)
  made = path.with_name(f".{path.name}.tmp")
  if path.is_dir():
    raise RunError(f"{path} is a folder: name a file")
  with making(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    made.unlink(missing_ok=True)
    made.touch(mode=0o600 if private else 0o666)
  try:
    yield made
    with open(made, "rb") as file:
      os.fsync(file.fileno())
    os.replace(made, path)
  finally:
    with contextlib.suppress(OSError):  # Probably of the same disk.
      made.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yield a folder to fill; it becomes `path` if nothing is raised.

  A killed process leaves its files in `.NAME.tmp`, which the next one removes.

  Args:
    path: must not exist, or be an empty folder.

  Raises:
    RunError: it is not empty.
  """
  check_new_folder(path)
  path = path_of(path).absolute()
  made = path.with_name(f".{path.name}.tmp")
  shutil.rmtree(made, ignore_errors=True)
  made.mkdir()
  try:
    yield made
    os.rename(made, path)
  finally:
    shutil.rmtree(made, ignore_errors=True)


def check_folder(folder: str | os.PathLike) -> None:
  """Make a folder and test that it can be written, before any computation.

  Raises:
    RunError: it is a file, or below one, or cannot be made or written; one
      sentence.
  """
  folder = path_of(folder)
  check_no_file(folder)
  with making(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def making(path: pathlib.Path) -> Iterator[None]:
  """Raise RunError, one sentence, if a file or a folder cannot be made."""
  try:
    yield
  except OSError as e:
    raise RunError(
        f"{path} cannot be written ({e.strerror}): choose another path"
    ) from e


def check_no_file(folder: str | os.PathLike) -> None:
  """Raise RunError if a folder of the user is a file, or below one."""
  path = path_of(folder).absolute()
  for place in (path, *path.parents):
    if os.path.lexists(place) and not place.is_dir():
      raise RunError(f"{place} is not a folder: choose another path")


def check_new_folder(path: str | os.PathLike) -> None:
  """Raise RunError if a folder cannot be made, or is not empty."""
  path = path_of(path)
  if path.suffix == ".onnx":
    raise RunError(
        f"{path} names one file, and a folder is to be written: choose another"
        " name, or run episodic-dp export --format=onnx"
    )
  empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
  if os.path.lexists(path) and not empty:
    raise RunError(
        f"{path} exists already: choose a folder that does not exist yet"
    )
  check_folder(path.parent)


def check_outside(
    out: str | os.PathLike, folder: str | os.PathLike, flag: str
) -> None:
  """Raise RunError if results would be in a folder that is only read.

  Args:
    out: folder of results, from --out.
    folder: folder that must not change.
    flag: the flag that named it.
  """
  if path_of(out).resolve().is_relative_to(path_of(folder).resolve()):
    raise RunError(
        f"results in {out} would change {flag}={folder}, which is only read:"
        " choose another folder"
    )


def sha256(content: bytes | memoryview) -> str:
  """Return the SHA-256 of bytes, in hexadecimal digits."""
  return hashlib.sha256(content).hexdigest()


def read_json(path: Any, remedy: str) -> Any:
  """Return the JSON of a file, here or on an object store.

  Args:
    path: path of the file, of `pathlib` or `epath`.
    remedy: end of the sentence for a file that is damaged.

  Raises:
    RunError: it cannot be read, or is no JSON.
  """
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except (OSError, ValueError, RecursionError) as e:
    raise RunError(f"{path} cannot be read ({e}): {remedy}") from e


def write_text(
    path: str | os.PathLike, text: str, *, private: bool = False
) -> None:
  """Replace a text file (UTF-8); see `replacing`."""
  write_bytes(path, text.encode("utf-8"), private=private)


def write_bytes(
    path: str | os.PathLike, content: bytes, *, private: bool = False
) -> None:
  """Replace a file, see `replacing`, or an object of an object store."""
  if "://" in os.fspath(path):
    # Lazy import: files of this machine need no client of object stores.
    from etils import epath

    epath.Path(path).write_bytes(content)
  else:
    with replacing(path, private=private) as made:
      made.write_bytes(content)


def write_json(
    path: str | os.PathLike, value: Any, *, private: bool = False
) -> None:
  """Write strict JSON (no NaN, no Infinity), indented; see `replacing`."""
  text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
  write_text(path, text + "\n", private=private)
