"""The work directory: one run at a time, its configuration, room to write."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import tempfile
from typing import Any, IO

from absl import logging

from episodic_dp import errors
from episodic_dp.training import mirror
from episodic_dp.training import remote
from episodic_dp.training import stores

CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
_OF_A_RUN = (CONFIG, remote.KEY, CHECKPOINTS, "metrics.jsonl")
# What flock answers on a mount that knows no locks, some NFS and FUSE ones.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_ROOM = 64 * 2**20  # bytes: seven small checkpoints and the pictures

_RESTORE = (
    "restore the file, or move it away and resume the run, which writes it"
    " anew"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkDirectory:
  """A work directory that one process alone uses.

  Attributes:
    folder: where its files lie while they are used.
    publish: called when files of the run should outlast this machine: before
      the first step, and after every checkpoint. Does nothing for a folder of
      this machine; see `mirror` for those on an object store.
  """

  folder: pathlib.Path
  publish: Callable[[], None] = lambda: None


@contextlib.contextmanager
def opened(
    workdir: str | os.PathLike,
    *,
    resume: str = "auto",
    key_file: str | os.PathLike | None = None,
) -> Iterator[WorkDirectory]:
  """Makes the work directory, checks that it takes files, and locks it.

  What fails before a run began in it leaves it as it was.

  Args:
    workdir: a folder, or an address on an object store (gs://, s3://), whose
      run then works in a temporary folder (`mirror`).
    resume: "auto"; "must" refuses what was never opened as a work directory,
      "never" what holds a run.
    key_file: where the secret key of a run on an object store lies, on this
      machine; None for `private/` on the store.

  Raises:
    RunError: it cannot be made or written, its disk is full, another process
      trains in it, or `resume` refuses it.
  """
  check_key_file(workdir, key_file)
  if stores.is_url(workdir):
    store = stores.Store(os.fspath(workdir))
    there = store.names()
    if resume == "must" and not there:
      raise _never_opened(store.url)
    if resume == "never" and any(_of_a_run(name) for name in there):
      raise _holds_a_run(store.url)
    with mirror.opened(store, key_file=key_file) as copy:
      _check_room(copy.folder, "set TMPDIR to a folder with room")
      yield WorkDirectory(folder=copy.folder, publish=copy.publish)
    return
  folder = pathlib.Path(workdir).absolute()
  if resume == "must" and not (folder / remote.LOCK).exists():
    raise _never_opened(str(folder))
  with _locked(folder):
    if resume == "never" and any((folder / n).exists() for n in _OF_A_RUN):
      raise _holds_a_run(str(folder))
    yield WorkDirectory(folder=folder)


def check_key_file(
    workdir: str | os.PathLike, key_file: str | os.PathLike | None
) -> None:
  """Refuses a key apart from its run, where both would lie on this machine.

  Raises:
    RunError: one sentence.
  """
  if key_file is not None and not stores.is_url(workdir):
    raise errors.RunError(
        f"--key_file={key_file} is for a run on an object store: leave it out;"
        f" the key of this run lies in {workdir}/private"
    )


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
  """Makes the folder, and keeps other processes out of it."""
  try:
    before, made = _there(folder), _to_be_made(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
      probe.write(b"\0" * 4096)
      probe.flush()
    lock = open(folder / remote.LOCK, "w")
  except OSError as e:
    raise errors.RunError(
        f"the work directory {folder} cannot be written"
        f" ({e.strerror or e}): choose another --workdir or mend this one"
    ) from e
  with lock:
    _take(lock, folder)
    try:
      _check_room(folder, "make room or choose another --workdir")
      yield
    except Exception:
      # Without a configuration no step was taken, and the key has no use.
      if not (folder / CONFIG).exists():
        _remove(folder, _there(folder) - before, made)
      raise


def _there(folder: pathlib.Path) -> set[str]:
  """The names in a folder; none where there is no folder."""
  return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _to_be_made(folder: pathlib.Path) -> list[pathlib.Path]:
  """The folder and those above it that do not exist, the innermost first."""
  return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove(
    folder: pathlib.Path, names: set[str], made: list[pathlib.Path]
) -> None:
  """Removes what was made, as far as that can be done."""
  with contextlib.suppress(OSError):
    for name in names:
      path = folder / name
      if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
      else:
        path.unlink()
    for path in made:
      path.rmdir()  # Fails where another run was put into it.


def _check_room(folder: pathlib.Path, remedy: str) -> None:
  room = shutil.disk_usage(folder).free
  if room < _ROOM:
    raise errors.RunError(
        f"the disk of the work directory {folder} has {room >> 20} MiB left and"
        f" a run needs {_ROOM >> 20}: {remedy}"
    )


def _take(lock: IO[str], folder: pathlib.Path) -> None:
  """Locks the file, where its file system can."""
  taken = errors.RunError(
      f"another process is training in {folder}: wait for it, stop it, or"
      " choose another --workdir"
  )
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A process whose run was refused removes its lock.
    if os.fstat(lock.fileno()).st_nlink == 0:
      raise taken
  except BlockingIOError as e:
    raise taken from e
  except OSError as e:
    if e.errno not in _WITHOUT_LOCKS:
      raise errors.RunError(
          f"the work directory {folder} cannot be locked ({e.strerror or e}):"
          " choose another --workdir or mend this one"
      ) from e
    logging.warning(
        "the file system of %s knows no locks (%s): see to it that no second"
        " process trains in it",
        folder,
        e.strerror or e,
    )


def _never_opened(workdir: str) -> errors.RunError:
  """The sentence for --resume=must where there is nothing."""
  return errors.RunError(
      f"--resume=must, and no run was ever begun in {workdir}: mount or name"
      " the work directory of the run, or start one with --resume=auto"
  )


def _of_a_run(name: str) -> bool:
  return any(name == n or name.startswith(n + "/") for n in _OF_A_RUN)


def _holds_a_run(workdir: str) -> errors.RunError:
  """The sentence for --resume=never where there is a run."""
  return errors.RunError(
      f"--resume=never, and {workdir} holds a run: choose another --workdir, or"
      " go on with it by --resume=auto"
  )


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
  """The configuration of the run of `episodic-dp train` in this folder.

  Raises:
    RunError: there is none, it is damaged, or it is of `episodic-dp pvi`.
  """
  value = saved_config(folder)
  if "visit" in value:
    raise errors.RunError(
        f"{folder} holds a run of episodic-dp pvi, which prints and writes its"
        " scores itself: give the --workdir of a run of episodic-dp train"
    )
  return value


def saved_config(folder: str | os.PathLike) -> dict[str, Any]:
  """The configuration of a run of any kind.

  Raises:
    RunError: there is none, or it is damaged.
  """
  path = pathlib.Path(folder) / CONFIG
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise _no_run(pathlib.Path(folder)) from e
  except (OSError, ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{path} cannot be read ({e}): {_RESTORE}"
    ) from e
  if not isinstance(value, dict):
    raise errors.RunError(
        f"{path} does not hold a configuration: {_RESTORE}"
    )
  return value


def _no_run(path: pathlib.Path) -> errors.RunError:
  """The sentence where no run is; names one that lies beside or below."""
  where = f"{path / CONFIG} does not exist"
  remedy = "give the --workdir of a run that was started with episodic-dp train"
  near = sorted(path.glob("*"))
  if path.is_file():
    where, near = f"{path} is a file", [path.parent]
  runs = [str(p) for p in near if os.path.isfile(p / CONFIG)]
  if runs:
    remedy = "give the folder of a run, such as --workdir="
    remedy += shlex.quote(runs[0])
  return errors.RunError(f"{where}: {remedy}")


def warn_without_config(folder: pathlib.Path) -> None:
  """Says that a run goes on whose configuration is gone."""
  path = folder / CONFIG
  if not path.exists():
    logging.warning(
        "%s was missing: what determines the run's steps was compared with its"
        " key, and the file is written anew",
        path,
    )
