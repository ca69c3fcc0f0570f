"""Files that are replaced at once, so that a reader never sees half of one."""

from collections.abc import Iterator
import contextlib
import errno
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

# What can be done about errors of a disk, to end a sentence.
REMEDIES = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room within your quota",
    errno.EFBIG: "allow larger files (ulimit -f unlimited)",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "make it writable",
    errno.ENOENT: "make its folder again",
    errno.ENOTDIR: "move the file that is in its place away",
    errno.EEXIST: "move the file that is in its place away",
    errno.EISDIR: "move the folder that is in its place away",
    errno.EIO: "mend its disk",
    errno.ESTALE: "mount its disk again",
    errno.ENODEV: "mount its disk again",
    errno.ENOTCONN: "mount its disk again",
}


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
    WriteError: the folder cannot be made, or the file not be written.
  """
  path = pathlib.Path(path)
  beside = path.with_name(f".{path.name}.tmp")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600 if private else 0o666)
    yield beside
    with beside.open("rb") as f:
      os.fsync(f.fileno())
    os.replace(beside, path)
  except OSError as e:
    if isinstance(e, WriteError) or not _concerns(e, path, beside):
      raise
    raise _write_error(path, e, "choose another place") from e
  finally:
    with contextlib.suppress(OSError):  # Of the same disk, most likely.
      beside.unlink(missing_ok=True)


def _concerns(error: OSError, *paths: pathlib.Path) -> bool:
  """Whether an error is of these files; of writing to one, which has no name.

  Whoever writes may read other files at the same time.
  """
  if not isinstance(error.filename, str | os.PathLike):
    return error.filename is None
  name = pathlib.Path(error.filename)
  return any(name == path or name in path.parents for path in paths)


def _write_error(
    path: str | os.PathLike, error: OSError, another: str
) -> WriteError:
  """The sentence, with what can be done about this very error."""
  remedy = another
  if error.errno in REMEDIES:
    remedy = f"{REMEDIES[error.errno]}, or {another}"
  for above in pathlib.Path(path).parents:
    if os.path.isfile(above):
      remedy = f"move the file {above} away, or {another}"
  told = WriteError(
      f"{path} cannot be written ({error.strerror or error}): {remedy}"
  )
  told.errno = error.errno  # With `strerror` it would print these two alone.
  return told


def check_folder(folder: str | os.PathLike, flag: str = "--out") -> None:
  """Makes a folder and writes to it, before anything is computed for it.

  Args:
    folder: of results.
    flag: that named it.

  Raises:
    WriteError: it cannot be made, or takes no file; one sentence.
  """
  try:
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=pathlib.Path(folder)):
      pass
  except OSError as e:
    raise _write_error(folder, e, f"choose another {flag}") from e


def check_outside(
    out: str | os.PathLike, folder: str | os.PathLike, flag: str
) -> None:
  """WriteError where results would lie in a folder that is only read.

  Args:
    out: folder of results, of --out.
    folder: which stays as it is.
    flag: that named it.
  """
  if pathlib.Path(out).resolve().is_relative_to(pathlib.Path(folder).resolve()):
    raise WriteError(
        f"results in {out} would change {flag}={folder}, which is only read:"
        " choose another --out"
    )


def remove(path: str | os.PathLike) -> None:
  """Removes a file, if it is there; WriteError where it cannot be."""
  try:
    pathlib.Path(path).unlink(missing_ok=True)
  except OSError as e:
    raise _write_error(path, e, "choose another --out") from e


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """A folder to fill, which becomes `path` if nothing is raised.

  A killed process leaves what it wrote beside it, as `.NAME.tmp`, which the
  next one removes.

  Args:
    path: does not exist, or is an empty folder.

  Raises:
    WriteError: it holds something already, or cannot be written; one sentence.
  """
  check_new_folder(path)
  path = pathlib.Path(os.path.abspath(path))
  beside = path.with_name(f".{path.name}.tmp")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    yield beside
    for written in sorted(beside.iterdir()):
      _to_disk(written)
    _to_disk(beside)
    os.rename(beside, path)
    _to_disk(path.parent)
  except OSError as e:
    if isinstance(e, WriteError):
      own = str(e).startswith(str(beside))  # Whose name nobody gave.
    else:
      own = _concerns(e, path, beside, *beside.glob("*"))
    # One without a number is a sentence about something else.
    if not own or e.errno is None:
      raise
    why = OSError(e.errno, os.strerror(e.errno))
    raise _write_error(path, why, "choose another --out") from e
  finally:
    shutil.rmtree(beside, ignore_errors=True)


def check_new_folder(path: str | os.PathLike) -> None:
  """WriteError where a folder cannot be made, or holds something already."""
  path = pathlib.Path(path)
  if path.is_symlink() or (
      path.exists() and not (path.is_dir() and not any(path.iterdir()))
  ):
    raise WriteError(
        f"{path} is there already: choose a folder that does not exist yet"
    )
  check_folder(path.parent)


def _to_disk(path: pathlib.Path) -> None:
  """Waits until a file or a folder is on the disk."""
  handle = os.open(path, os.O_RDONLY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)


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
