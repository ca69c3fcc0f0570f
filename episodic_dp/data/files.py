"""Finding original files, checking them, and caching decoded arrays.

Nothing half-made is ever accepted: files are checked by their sha256, and a
cache is written beside its final place and moved there when it is complete.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import urllib.request
import uuid
import zipfile

import numpy as np

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Archive:
  """One original file of a data set.

  Attributes:
    file: its name.
    sha256: the checksums that are accepted, the official one first.
    url: where the official file is published.
  """

  file: str
  sha256: tuple[str, ...]
  url: str


def find(
    name: str, archives: Mapping[str, Archive], data_dir: Path | None
) -> dict[str, pathlib.Path] | None:
  """Paths of the archives in data_dir/ or data_dir/name/, checked by sha256.

  Returns:
    A path for every key of `archives`; None when a file is missing.

  Raises:
    FileNotFoundError: data_dir is not a folder.
    ValueError: a file is there with a checksum that is not accepted.
  """
  if data_dir is None:
    return None
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise FileNotFoundError(
        f"data_dir {root} is not a folder: {_remedy(name, archives)}"
    )
  found = {}
  for part, archive in archives.items():
    for folder in (root, root / name):
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
          f" incomplete, so fetch it again from {archives[part].url}"
      )
  return found


def missing(
    name: str, archives: Mapping[str, Archive], data_dir: Path | None
) -> str:
  """One sentence: which files are missing, and where to put them."""
  absent = archives
  where = "no data_dir was given"
  if data_dir is not None:
    root = pathlib.Path(data_dir).expanduser()
    where = f"neither {root} nor {root / name} holds all files"
    absent = {
        part: archive
        for part, archive in archives.items()
        if not any(
            (folder / archive.file).is_file() for folder in (root, root / name)
        )
    }
  return (
      f"'{name}' is not prepared yet and {where}: {_remedy(name, absent)}"
  )


def _remedy(
    name: str, archives: Mapping[str, Archive], download: bool = True
) -> str:
  files = ", ".join(
      f"{a.file} (sha256 {' or '.join(a.sha256)}, from {a.url})"
      for a in archives.values()
  )
  text = f"put {files} into DIR or DIR/{name} and pass data_dir=DIR"
  return text + (", or pass download=True" if download else "")


def check_online(name: str, archives: Mapping[str, Archive]) -> None:
  """ConnectionError, within seconds, when the archives cannot be reached."""
  for archive in archives.values():
    request = urllib.request.Request(archive.url, method="HEAD")
    try:
      with urllib.request.urlopen(request, timeout=10):
        pass
    except OSError as e:  # URLError, HTTPError and time-outs are OSErrors.
      raise ConnectionError(
          f"{archive.url} cannot be reached ({e}): try again later, or"
          f" {_remedy(name, archives, download=False)}"
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


def save_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes an .npz in one step: the file is either complete or not there."""
  path.parent.mkdir(parents=True, exist_ok=True)
  # Readable names: the next start removes what a killed one left behind.
  for left in path.parent.glob(f"{path.name}.*.incomplete"):
    left.unlink(missing_ok=True)
  temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.incomplete")
  try:
    with temporary.open("wb") as f:
      np.savez(f, allow_pickle=False, **arrays)
      f.flush()
      os.fsync(f.fileno())
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)


def read_arrays(
    path: pathlib.Path, names: Sequence[str]
) -> tuple[np.ndarray, ...] | None:
  """The arrays of an .npz, or None when it is absent or damaged.

  Every member of an .npz carries a CRC-32, which reading checks.
  """
  try:
    with np.load(path, allow_pickle=False) as arrays:
      return tuple(arrays[name] for name in names)
  except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
    return None
