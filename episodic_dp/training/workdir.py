"""The work directory of a run: its lock, the place of its key, its config.

Every file is accessed through `etils.epath`, so that a work directory may be on
an object store (gs://, s3://). The key file never is: for a run on an object
store it is in the user's home folder, or at `--key_file`.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
from typing import Any, IO
import urllib.parse

from absl import logging
from etils import epath

from episodic_dp.errors import RunError
from episodic_dp.errors import shown
from episodic_dp.output import files

CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
PRIVATE = "private"
KEY = "key"
RECORD = "released.json"
METRICS = "metrics.jsonl"
DIAGNOSTICS = "diagnostics.jsonl"
BEGUN = (CONFIG, CHECKPOINTS, METRICS, RECORD)  # One is in the folder of a run.
_LOCK = ".lock"
_OWN = re.compile(rf"\..*|{PRIVATE}|slurm-.*\.log")  # Before a run begins.
_HOME_KEYS = pathlib.Path(".episodic_dp") / "keys"  # In the home folder.


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkDirectory:
  """A work directory that only one process uses.

  Attributes:
    folder: on this machine or on an object store.
    key: path of the secret key, on this machine.
    lock: the open file that other processes find locked.
  """

  folder: epath.Path
  key: pathlib.Path
  lock: IO[str] = dataclasses.field(repr=False)

  def check(self) -> None:
    """Raise RunError if the folder, or its lock, was removed or replaced."""
    try:
      there = os.path.samestat(
          os.stat(self.lock.name), os.fstat(self.lock.fileno())
      )
    except FileNotFoundError:
      there = False
    if not there:
      raise RunError(
          f"{self.lock.name} was removed or replaced during the run, maybe with"
          " all results: restore the folder from a backup to resume the run, or"
          " start a new one in another workdir"
      )

  @property
  def record(self) -> epath.Path:
    """Return the file with the steps that may have been released."""
    return self.folder / RECORD

  @property
  def diagnostics(self) -> pathlib.Path:
    """Return the file of private diagnostics, next to the key."""
    if self.key.parent.name == PRIVATE:
      return self.key.parent / DIAGNOSTICS
    return self.key.with_name(f"{self.key.name}.{DIAGNOSTICS}")


def is_remote(workdir: str | os.PathLike) -> bool:
  """Return whether a work directory is an address on an object store."""
  return "://" in os.fspath(workdir)


def folder_of(workdir: str | os.PathLike) -> epath.Path:
  """Return the work directory as an absolute path."""
  if is_remote(workdir):
    return epath.Path(os.fspath(workdir))
  return epath.Path(os.path.abspath(files.path_of(workdir)))


def key_path(
    workdir: str | os.PathLike, key_file: str | os.PathLike | None = None
) -> pathlib.Path:
  """Return the path of a run's secret key.

  Args:
    workdir: the run's work directory.
    key_file: None for WORKDIR/private/key, or for a run on an object store a
      file in the home folder.
  """
  if key_file is not None:
    return files.path_of(key_file).absolute()
  if not is_remote(workdir):
    return pathlib.Path(folder_of(workdir)) / PRIVATE / KEY
  name = urllib.parse.quote(os.fspath(workdir).rstrip("/"), safe="")
  return pathlib.Path.home() / _HOME_KEYS / name


def check_own(folder: epath.Path, key: pathlib.Path) -> None:
  """Raise RunError if a folder without a run or its key has files of others.

  A run that was killed before its key was written leaves `private` and hidden
  files; a launcher writes its log there.
  """
  held = [path.name for path in folder.iterdir()] if folder.exists() else []
  foreign = [name for name in held if not _OWN.fullmatch(name)]
  if foreign and not key.exists() and not {*BEGUN} & {*held}:
    raise RunError(
        f"{folder} holds no run, but other files, such as"
        f" {shown(min(foreign))}: choose a new or an empty folder"
    )


def make_private(folder: pathlib.Path) -> pathlib.Path:
  """Make a folder that only its owner may read, and return it."""
  with files.making(folder):
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  if folder.name == PRIVATE:
    folder.chmod(0o700)  # mkdir does not change an existing folder.
  return folder


@contextlib.contextmanager
def locked(
    workdir: str | os.PathLike, *, key_file: str | os.PathLike | None = None
) -> Iterator[WorkDirectory]:
  """Make a work directory and lock it.

  Args:
    workdir: a folder, or an address on an object store (gs://, s3://).
    key_file: see `key_path`.

  Raises:
    RunError: it cannot be made or written, or another process trains in it.
  """
  folder = folder_of(workdir)
  key = key_path(workdir, key_file)
  lock_path = key.with_name(f".{key.name}.lock")
  if not is_remote(workdir):
    lock_path = pathlib.Path(folder) / _LOCK
  files.check_folder(lock_path.parent)
  with open(lock_path, "w") as lock:
    _take(lock, folder)
    yield WorkDirectory(folder=folder, key=key, lock=lock)


def _take(lock: IO[str], folder: epath.Path) -> None:
  """Lock a file if its file system can."""
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as e:
    raise RunError(
        f"another process is training in {folder}: wait for it, stop it, or"
        " choose another workdir"
    ) from e
  except OSError as e:  # A mount without locks, such as some of NFS and FUSE.
    logging.warning(
        "the file system of %s has no locks (%s): make sure that no second"
        " process trains in it",
        folder,
        e.strerror or e,
    )


def read_config(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return the configuration of a run of `episodic-dp train`.

  Raises:
    RunError: it is missing, damaged, or from `episodic-dp pvi`.
  """
  path = epath.Path(os.path.expanduser(workdir)) / CONFIG
  if not path.exists():
    raise RunError(
        f"{path} does not exist: give the workdir of a run that was started"
        " with episodic-dp train"
    )
  value = files.read_json(
      path, "move it away and resume the run, which writes it again"
  )
  if not isinstance(value, dict) or "visit" in value:
    raise RunError(
        f"{path} is not from episodic-dp train: give the workdir of its run"
    )
  return value
