"""Finding original files, checking them, and caching decoded arrays.

Nothing half-made is ever accepted: files are checked by their sha256, and a
cache is written beside its final place and moved there when it is complete.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import fcntl
import hashlib
import lzma
import os
import pathlib
import struct
import tokenize
from typing import TypeVar
import urllib.request
import uuid
import zipfile
import zlib

import numpy as np

Path = str | os.PathLike[str]
T = TypeVar("T")

# What reading arrays from a file raises where its bytes are wrong: also for
# compression and encryption that nobody asked for (RuntimeError), and for sizes
# that no machine has.
DAMAGED = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclasses.dataclass(frozen=True)
class Archive:
  """One file that a data set is prepared from.

  Attributes:
    file: its name.
    sha256: the checksums that are accepted, the official one first.
    url: where the official file is published; None for files that are not.
  """

  file: str
  sha256: tuple[str, ...]
  url: str | None = None


Source = Mapping[str, Archive]  # By part; a data set needs all of them.


def find(
    name: str, archives: Source, data_dir: Path | None
) -> dict[str, pathlib.Path] | None:
  """Paths of the archives in data_dir/name/ or data_dir/, checked by sha256.

  Returns:
    A path for every key of `archives`; None when a file is missing.

  Raises:
    FileNotFoundError: data_dir is not a folder.
    ValueError: a file is there with a checksum that is not accepted.
  """
  found = {}
  for part, archive in archives.items():
    for folder in _folders(name, data_dir, [archives]):
      if (folder / archive.file).is_file():
        found[part] = folder / archive.file
        break
  if len(found) < len(archives):
    return None
  for part, path in found.items():
    with path.open("rb") as f:
      digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest not in archives[part].sha256:
      raise ValueError(
          f"{path} ({path.stat().st_size} bytes) has sha256 {digest} instead"
          f" of {' or '.join(archives[part].sha256)}: the copy is damaged or"
          f" incomplete, so fetch it again{_origin(archives[part])}"
      )
  return found


def find_first(
    name: str, sources: Mapping[str, Source], data_dir: Path | None
) -> tuple[str, dict[str, pathlib.Path]] | None:
  """The first of several sources that is whole: its key, and as `find`."""
  _folders(name, data_dir, list(sources.values()))
  for source, archives in sources.items():
    found = find(name, archives, data_dir)
    if found is not None:
      return source, found
  return None


def _folders(
    name: str, data_dir: Path | None, sources: Sequence[Source]
) -> tuple[pathlib.Path, ...]:
  """Where the files may lie: data_dir/name, then data_dir.

  The folder of the data set comes first: others may have files of one name.

  Raises:
    FileNotFoundError: data_dir is not a folder.
  """
  if data_dir is None:
    return ()
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise FileNotFoundError(
        f"data_dir {root} is not a folder: {_remedy(name, sources)}"
    )
  return root / name, root


def missing(
    name: str, sources: Sequence[Source], data_dir: Path | None
) -> str:
  """One sentence: which files are missing, and where to put them.

  Args:
    name: of the data set.
    sources: each of them is enough to prepare the data.
    data_dir: where the files were looked for.
  """
  where = "no data_dir was given"
  absent = list(sources)
  if data_dir is not None:
    own, root = _folders(name, data_dir, sources)
    where = f"neither {root} nor {own} holds all files"
    absent = [
        {
            part: archive
            for part, archive in source.items()
            if not any((f / archive.file).is_file() for f in (own, root))
        }
        for source in sources
    ]
  return f"'{name}' is not prepared yet and {where}: {_remedy(name, absent)}"


def _origin(archive: Archive) -> str:
  return f" from {archive.url}" if archive.url else ""


def _remedy(
    name: str, sources: Sequence[Source], download: bool = True
) -> str:
  texts = []
  for source in sources:
    files = []
    for a in source.values():
      about = f"sha256 {' or '.join(a.sha256)}"
      if a.url:
        about += f", from {a.url}"
      files.append(f"{a.file} ({about})")
    texts.append(", ".join(files))
  text = f"put {'; or '.join(texts)} into DIR or DIR/{name} and pass"
  online = any(a.url for source in sources for a in source.values())
  return f"{text} data_dir=DIR" + (
      ", or pass download=True" if download and online else ""
  )


def check_online(name: str, archives: Source) -> None:
  """ConnectionError, within seconds, when the archives cannot be reached."""
  for archive in archives.values():
    assert archive.url is not None, f"{archive.file} is not published"
    request = urllib.request.Request(archive.url, method="HEAD")
    try:
      with urllib.request.urlopen(request, timeout=10):
        pass
    except OSError as e:  # URLError, HTTPError and time-outs are OSErrors.
      raise ConnectionError(
          f"{archive.url} cannot be reached ({e}): try again later, or"
          f" {_remedy(name, [archives], download=False)}"
      ) from e


def cache_root(cache_dir: Path | None) -> pathlib.Path:
  """Where prepared data are kept: as given, or the folder that TFDS uses."""
  if cache_dir is None:
    cache_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
  return pathlib.Path(cache_dir).expanduser()


@contextlib.contextmanager
def lock(path: pathlib.Path) -> Iterator[None]:
  """Holds an exclusive lock, which a killed process gives back by itself."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("a") as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    yield


def read_or_make(
    folder: pathlib.Path, read: Callable[[], T | None], make: Callable[[], T]
) -> T:
  """What `read` finds, or else what `make` makes, once.

  One process makes; others that start meanwhile wait for it and then read.

  Args:
    folder: holds the lock.
    read: returns None where nothing is made yet.
    make: makes the same; called by one process at a time.
  """
  found = read()
  if found is None:
    with lock(folder / "preparing.lock"):
      found = read()
      if found is None:
        found = make()
  return found


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A place to write at, which becomes `path` in one step when all went well.

  The file is either complete or not there.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  # Readable names: the next start removes what a killed one left behind.
  for left in path.parent.glob(f"{path.name}.*.incomplete"):
    left.unlink(missing_ok=True)
  temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.incomplete")
  try:
    yield temporary
    with temporary.open("r+b") as f:
      os.fsync(f.fileno())
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)


def save_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes an .npz in one step: the file is either complete or not there."""
  with new_file(path) as temporary, temporary.open("wb") as f:
    np.savez(f, allow_pickle=False, **arrays)


def read_arrays(
    path: pathlib.Path, names: Sequence[str]
) -> tuple[np.ndarray, ...] | None:
  """The arrays of an .npz, or None when it is absent or damaged.

  Every member of an .npz carries a CRC-32, which reading checks.
  """
  try:
    with np.load(path, allow_pickle=False) as arrays:
      return tuple(arrays[name] for name in names)
  except DAMAGED:
    return None
