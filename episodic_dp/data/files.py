"""The original files of a data set: looked for, checked, and asked for."""

from collections.abc import Mapping
import dataclasses
import hashlib
import os
import pathlib
import urllib.request

Path = str | os.PathLike[str]


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


Source = Mapping[str, Archive]  # By part; all of them are needed.
Found = tuple[str, dict[str, pathlib.Path]]  # A source, and a path by part.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Originals:
  """The files that a data set can be prepared from.

  Attributes:
    name: of the data set, and of its own folder in data_dir.
    title: what a sentence calls it.
    sources: each is enough; the first that is whole is taken.
    online: the source that `download=True` fetches; None where none can be.
  """

  name: str
  title: str
  sources: Mapping[str, Source]
  online: str | None = None

  def find(self, data_dir: Path | None) -> Found | None:
    """The first source that is whole in data_dir/name/ or data_dir/.

    Returns:
      Its key and the paths of its files, checked by their sha256; None where no
      source is whole.

    Raises:
      FileNotFoundError: data_dir is not a folder.
      ValueError: a file is there with a checksum that is not accepted.
    """
    folders = self._folders(data_dir)
    for source, archives in self.sources.items():
      found = {}
      for part, archive in archives.items():
        places = (folder / archive.file for folder in folders)
        path = next((p for p in places if p.is_file()), None)
        if path is not None:
          found[part] = path
      if len(found) == len(archives):
        for part, path in found.items():
          _check_sha256(path, archives[part])
        return source, found
    return None

  def missing(self, data_dir: Path | None) -> str:
    """One sentence: which files are missing, and where to put them."""
    where, absent = "no data_dir was given", self.sources
    if data_dir is not None:
      own, shared = self._folders(data_dir)
      where = f"neither {shared} nor {own} holds all files"
      absent = {
          source: {
              part: archive
              for part, archive in archives.items()
              if not any((f / archive.file).is_file() for f in (own, shared))
          }
          for source, archives in self.sources.items()
      }
    return (
        f"'{self.name}' is not prepared yet and {where}: {self._remedy(absent)}"
    )

  def downloads(self) -> dict[str, str]:
    """The addresses of the files that `download=True` fetches, by part."""
    archives = self.sources[self.online] if self.online else {}
    return {part: a.url for part, a in archives.items() if a.url is not None}

  def check_online(self) -> None:
    """ConnectionError, within seconds, when a download cannot be reached."""
    for url in self.downloads().values():
      request = urllib.request.Request(url, method="HEAD")
      try:
        with urllib.request.urlopen(request, timeout=10):
          pass
      except OSError as e:  # URLError, HTTPError and time-outs are OSErrors.
        assert self.online is not None
        wanted = {self.online: self.sources[self.online]}
        raise ConnectionError(
            f"{url} cannot be reached ({e}): try again later, or"
            f" {self._remedy(wanted, download=False)}"
        ) from e

  def _folders(self, data_dir: Path | None) -> tuple[pathlib.Path, ...]:
    """Where the files may lie: data_dir/name, then data_dir.

    The folder of the data set comes first: others may have files of one name.

    Raises:
      FileNotFoundError: data_dir is not a folder.
    """
    if data_dir is None:
      return ()
    folder = pathlib.Path(data_dir).expanduser()
    if not folder.is_dir():
      raise FileNotFoundError(
          f"data_dir {folder} is not a folder: {self._remedy(self.sources)}"
      )
    return folder / self.name, folder

  def _remedy(
      self, sources: Mapping[str, Source], download: bool = True
  ) -> str:
    texts = []
    for archives in sources.values():
      listed = []
      for a in archives.values():
        about = f"sha256 {' or '.join(a.sha256)}"
        if a.url:
          about += f", from {a.url}"
        listed.append(f"{a.file} ({about})")
      texts.append(", ".join(listed))
    place = f"put {'; or '.join(texts)} into DIR or DIR/{self.name}"
    return f"{place} and {given(download=download and self.online is not None)}"


def given(*, download: bool) -> str:
  """How to name the folder of the files; with `download`, or to fetch them."""
  if download:
    return (
        "give --data_dir=DIR, or give --download alone (in Python data_dir=DIR"
        " or download=True)"
    )
  return "give --data_dir=DIR (in Python data_dir=DIR)"


def _check_sha256(path: pathlib.Path, archive: Archive) -> None:
  """ValueError unless the file is one of those accepted."""
  with path.open("rb") as f:
    digest = hashlib.file_digest(f, "sha256").hexdigest()
  if digest not in archive.sha256:
    origin = f" from {archive.url}" if archive.url else ""
    raise ValueError(
        f"{path} ({path.stat().st_size} bytes) has sha256 {digest} instead"
        f" of {' or '.join(archive.sha256)}: the copy is damaged or"
        f" incomplete, so fetch it again{origin}"
    )
