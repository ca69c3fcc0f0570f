"""Original files of a data set: find, check and download them."""

from collections.abc import Mapping
import dataclasses
import hashlib
import os
import pathlib
from typing import Any
import urllib.request

from episodic_dp.errors import DataError
from episodic_dp.output import files

_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
Path = str | os.PathLike[str]
VERSION = "2.0.0"  # Of records and arrays.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Where:
  """The places of a data set's files.

  Attributes:
    data_dir: folder of the original files, or own data.
    cache_dir: folder of the prepared data; None means the environment variable
      TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: fetch the original files that data_dir does not have.
    surveyed: the listed own data (`own_data.load.Survey`), or None.
  """

  data_dir: Path | None = None
  cache_dir: Path | None = None
  download: bool = False
  surveyed: Any = None

  @property
  def cache(self) -> pathlib.Path:
    """Return the folder of the prepared data."""
    chosen = self.cache_dir or os.environ.get("TFDS_DATA_DIR")
    return files.path_of(chosen or "~/tensorflow_datasets")


@dataclasses.dataclass(frozen=True)
class Archive:
  """One original file.

  Attributes:
    file: name of the file.
    sha256: accepted checksums, the official one first; empty for a file or
      folder without a known checksum.
    url: address of the official file; "" for an unpublished file.
  """

  file: str
  sha256: tuple[str, ...] = ()
  url: str = ""

  def __str__(self) -> str:
    digests = " or ".join(self.sha256) or "unknown"
    return f"{self.file} (sha256 {digests}, {self.url or 'not published'})"


Source = tuple[Archive, ...]  # All of them are needed.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Originals:
  """The files that a data set can be prepared from.

  Attributes:
    name: name of the data set, and of its folder in data_dir.
    copy: name of one of several copies whose images differ; "" for the only
      one.
    sources: alternative sets of files; the first complete one is used.
  """

  name: str
  copy: str = ""
  sources: Mapping[str, Source]

  @property
  def online(self) -> Source:
    """Return the first source of which all files are published, or ()."""
    for archives in self.sources.values():
      if all(archive.url for archive in archives):
        return archives
    return ()

  def find(self, where: Where) -> list[pathlib.Path]:
    """Return the files of the first complete source, downloaded if requested.

    Returns:
      Their paths in order, checked by their sha256.

    Raises:
      FileNotFoundError: no source is complete; says what to do.
      ConnectionError: a download cannot be reached.
      DataError: a file has a checksum that is not accepted.
    """
    folders = []
    if where.data_dir is not None:
      folder = files.path_of(where.data_dir)
      # The set's own folder first: other sets may have files of the same name.
      folders = [folder / self.name, folder]
    for archives in self.sources.values():
      found = {}
      for archive in archives:
        for folder in reversed(folders):
          if (folder / archive.file).exists():
            found[archive] = folder / archive.file
      if len(found) == len(archives):
        for archive, path in found.items():
          _check_sha256(path, archive)
        return list(found.values())
    if where.download and self.online:
      return self._fetch(where.cache / "downloads" / self.name)
    raise FileNotFoundError(
        f"'{self.name}' is not prepared yet and data_dir={where.data_dir}"
        f" does not hold all of its files: {self._remedy()}"
    )

  def _fetch(self, folder: pathlib.Path) -> list[pathlib.Path]:
    """Download the files of the online source that the folder lacks."""
    for archive in self.online:
      path = folder / archive.file
      if path.is_file():  # It was checked before it got this name.
        continue
      try:
        with urllib.request.urlopen(archive.url, timeout=20) as reply:
          content = reply.read()
      except OSError as e:  # URLError, HTTPError and time-outs are OSErrors.
        raise ConnectionError(
            f"{archive.url} cannot be fetched ({e}): try again later, or"
            f" {self._remedy()}"
        ) from e
      with files.replacing(path) as new:
        new.write_bytes(content)
        _check_sha256(new, archive)
    return [folder / archive.file for archive in self.online]

  def _remedy(self) -> str:
    """Return the files of each source, and their places."""
    sources = []
    for archives in self.sources.values():
      sources.append(", ".join(map(str, archives)))
    python, command = "data_dir=DIR", "--data_dir=DIR"
    if self.online:
      python, command = f"{python} or download=True", f"{command} or --download"
    return (
        f"put {'; or '.join(sources)} into DIR/{self.name} and give {python}"
        f" (in a command {command})"
    )


def read(name: str, copy: str = "") -> Originals:
  """Return the original files of a published data set.

  Args:
    name: name of the data set.
    copy: as in `Originals`.
  """
  sources: dict[str, Source] = {}
  for owner, of, source, sha256, url, file in read_table(_TABLE):
    if (owner, of) == (name, copy):
      archive = Archive(file, tuple(sha256.split()), url)
      sources[source] = (*sources.get(source, ()), archive)
  return Originals(name=name, copy=copy, sources=sources)


def read_table(path: pathlib.Path) -> list[list[str]]:
  """Return the columns of every line of a .tsv, without its comments."""
  lines = path.read_text().splitlines()
  return [line.split("\t") for line in lines if not line.startswith("#")]


def _check_sha256(path: pathlib.Path, archive: Archive) -> None:
  """Raise DataError unless the file has an accepted checksum."""
  if not archive.sha256:
    return
  with path.open("rb") as f:
    digest = hashlib.file_digest(f, "sha256").hexdigest()
  if digest not in archive.sha256:
    raise DataError(
        f"{path} ({path.stat().st_size} bytes) has sha256 {digest} instead"
        f" of {' or '.join(archive.sha256)}: the copy is damaged or"
        " incomplete, so fetch it again"
    )
