"""Work directory of a run: its lock, its key's place, its configuration.

Every file goes through `etils.epath`, so that a work directory may lie on an
object store (gs://, s3://). The key file never does: the key of a run on an
object store lies in the home folder of the user, or where `--key_file` says.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
from typing import Any, IO
import urllib.parse

from absl import logging
from etils import epath

from episodic_dp import errors

CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
PRIVATE = "private"
KEY = "key"
DIAGNOSTICS = "diagnostics.jsonl"
_LOCK = ".lock"
_HOME_KEYS = pathlib.Path(".episodic_dp") / "keys"  # In the home folder.


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkDirectory:
  """A work directory that one process alone uses.

  Attributes:
    folder: of this machine or on an object store.
    key: file of the secret key, on this machine.
    known: whether it was opened before, by a launcher or a run.
  """

  folder: epath.Path
  key: pathlib.Path
  known: bool = False

  @property
  def diagnostics(self) -> pathlib.Path:
    """File of private diagnostics, beside the key."""
    if self.key.parent.name == PRIVATE:
      return self.key.parent / DIAGNOSTICS
    return self.key.with_name(f"{self.key.name}.{DIAGNOSTICS}")

  @property
  def begun(self) -> bool:
    """True if a run was begun here."""
    names = (CONFIG, CHECKPOINTS, "metrics.jsonl")
    return self.key.exists() or any((self.folder / n).exists() for n in names)


def is_remote(workdir: str | os.PathLike) -> bool:
  """Return whether a work directory is an address on an object store."""
  return "://" in os.fspath(workdir)


def folder_of(workdir: str | os.PathLike) -> epath.Path:
  """Return the work directory as an absolute path."""
  if is_remote(workdir):
    return epath.Path(os.fspath(workdir))
  return epath.Path(os.path.abspath(workdir))


def key_path(
    workdir: str | os.PathLike, key_file: str | os.PathLike | None = None
) -> pathlib.Path:
  """Return the file of the secret key of a run.

  Args:
    workdir: of the run.
    key_file: for a run on an object store; None for the home folder.

  Raises:
    RunError: `key_file` is given for a folder of this machine.
  """
  if not is_remote(workdir):
    if key_file is not None:
      raise errors.RunError(
          f"--key_file={key_file} is for a run on an object store: leave it"
          f" out; the key of this run lies in {workdir}/{PRIVATE}"
      )
    return pathlib.Path(folder_of(workdir)) / PRIVATE / KEY
  if key_file is not None:
    return pathlib.Path(key_file).absolute()
  name = urllib.parse.quote(os.fspath(workdir).rstrip("/"), safe="")
  return pathlib.Path.home() / _HOME_KEYS / name


def make_private(folder: pathlib.Path) -> pathlib.Path:
  """Make a folder that its owner alone may read, and return it."""
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  if folder.name == PRIVATE:
    folder.chmod(0o700)  # mkdir leaves an existing folder as it is.
  return folder


@contextlib.contextmanager
def opened(
    workdir: str | os.PathLike, *, key_file: str | os.PathLike | None = None
) -> Iterator[WorkDirectory]:
  """Make a work directory, check that it takes files, and lock it.

  An error before a run began in it leaves the folder as it was.

  Args:
    workdir: a folder, or an address on an object store (gs://, s3://).
    key_file: see `key_path`.

  Raises:
    RunError: it cannot be made or written, or another process trains in it.
  """
  folder = folder_of(workdir)
  key = key_path(workdir, key_file)
  # The lock of a run on an object store is beside its key.
  locked = key.parent if is_remote(workdir) else pathlib.Path(folder)
  made = [path for path in (locked, *locked.parents) if not path.exists()]
  lock_path = locked / (f".{key.name}.lock" if is_remote(workdir) else _LOCK)
  try:
    locked.mkdir(parents=True, exist_ok=True)
    before = set(locked.iterdir())
    known = lock_path in before
    lock = open(lock_path, "w")
  except OSError as e:
    raise errors.RunError(
        f"the work directory {folder} cannot be written"
        f" ({e.strerror or e}): choose another --workdir or mend this one"
    ) from e
  with lock:
    _take(lock, folder)
    place = WorkDirectory(folder=folder, key=key, known=known)
    try:
      yield place
    except Exception:
      # Without a configuration no step was taken, and a new key has no use.
      if not (folder / CONFIG).exists():
        _remove(set(locked.iterdir()) - before, made)
      raise


def _remove(new: set[pathlib.Path], made: list[pathlib.Path]) -> None:
  """Remove what was made, as far as possible."""
  with contextlib.suppress(OSError):
    for path in new:
      shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in made:
      path.rmdir()  # Fails if another run was put into it.


def _take(lock: IO[str], folder: epath.Path) -> None:
  """Lock a file if its file system can."""
  taken = errors.RunError(
      f"another process is training in {folder}: wait for it, stop it, or"
      " choose another --workdir"
  )
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as e:
    raise taken from e
  except OSError as e:  # A mount without locks, such as some of NFS and FUSE.
    logging.warning(
        "the file system of %s knows no locks (%s): see to it that no second"
        " process trains in it",
        folder,
        e.strerror or e,
    )
  if os.fstat(lock.fileno()).st_nlink == 0:  # Removed after a refused run.
    raise taken


def read_config(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return the configuration of a run of `episodic-dp train`.

  Raises:
    RunError: there is none, it is damaged, or it is of `episodic-dp pvi`.
  """
  path = epath.Path(workdir) / CONFIG
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
      raise ValueError("it does not hold a configuration")
  except (FileNotFoundError, NotADirectoryError) as e:
    raise errors.RunError(
        f"{path} does not exist: give the --workdir of a run that was started"
        " with episodic-dp train"
    ) from e
  except (OSError, ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{path} cannot be read ({e}): restore the file, or move it away and"
        " resume the run, which writes it anew"
    ) from e
  if "visit" in value:
    raise errors.RunError(
        f"{workdir} holds a run of episodic-dp pvi, which prints and writes its"
        " scores itself: give the --workdir of a run of episodic-dp train"
    )
  return value
