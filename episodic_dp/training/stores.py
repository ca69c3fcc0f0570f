"""Files on an object store (gs://, s3://, ...), whose errors are sentences.

Names are relative to the address of a run. What fsspec and the libraries below
it (s3fs, gcsfs) raise has many types; here each becomes one sentence. Plain
files only: nothing here knows what they hold.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import contextlib
import errno
import os
import pathlib
import re
from typing import TypeVar

import fsspec

from episodic_dp import errors

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SQUASHED = re.compile(r"(gcs|gs|memory|s3):/(?!/)")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
_THREADS = 8
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Item = TypeVar("_Item")


def is_url(workdir: str | os.PathLike) -> bool:
  """Whether a work directory is an address on an object store.

  Raises:
    RunError: it was one, and went through `pathlib.Path`, which takes a slash.
  """
  text = os.fspath(workdir)
  squashed = _SQUASHED.match(text)
  if squashed:
    raise errors.RunError(
        f"the work directory {text} is neither a folder nor an address: write"
        f" {squashed[1]}://{text[squashed.end():]}, as text and not as a"
        " pathlib.Path"
    )
  return bool(_URL.match(text))


class StoreError(errors.RunError):
  """A store that cannot be read or written now."""


class Store:
  """The files below an address.

  Attributes:
    url: the address, without a slash at its end.
  """

  def __init__(self, url: str):
    """Finds the library of the store; connects to nothing.

    Raises:
      RunError: it is not installed, or there is none.
    """
    self.url = url.rstrip("/")
    protocol = url.partition("://")[0]
    # What another process wrote must be seen, so that nothing is remembered.
    options = {"use_listings_cache": False}
    if protocol in ("file", "local"):
      options["auto_mkdir"] = True
    try:
      self._files, root = fsspec.core.url_to_fs(self.url, **options)
    except ImportError as e:
      package = _PACKAGES.get(protocol, f"a package for {protocol}://")
      raise errors.RunError(
          f"{self.url} needs {package}, which is not installed: pip install"
          " 'episodic_dp[cloud]'"
      ) from e
    except ValueError as e:
      raise errors.RunError(
          f"{self.url} is no address that fsspec knows ({_short(e)}): use"
          " gs://BUCKET/RUN, s3://BUCKET/RUN or a folder"
      ) from e
    self._root = root.rstrip("/")

  def names(self) -> dict[str, int]:
    """Name -> size in bytes, of every file; none where there is no bucket."""
    with self._sentence("read"):
      try:
        found = self._files.find(self._root, detail=True)
      except FileNotFoundError:
        return {}
    skip = len(self._root) + 1
    return {
        name[skip:]: int(about["size"])
        for name, about in found.items()
        if about["type"] == "file" and _is_inside(name[skip:])
    }

  def read(self, name: str) -> bytes | None:
    """What a file holds; None where there is none."""
    with self._sentence("read"):
      try:
        return self._files.cat_file(self._path(name))
      except FileNotFoundError:
        return None

  def write(self, name: str, content: bytes) -> None:
    """Writes a small file at once."""
    with self._sentence("written"):
      self._files.pipe_file(self._path(name), content)

  def put(self, name: str, path: pathlib.Path) -> None:
    """Uploads a file."""
    with self._sentence("written"):
      self._files.put_file(str(path), self._path(name))

  def get(self, name: str, path: pathlib.Path) -> None:
    """Downloads a file, readable by the owner only."""
    with self._sentence("read"):
      path.parent.mkdir(parents=True, exist_ok=True)
      path.touch(mode=0o600)
      self._files.get_file(self._path(name), str(path))

  def delete(self, name: str) -> None:
    """Deletes a file, if it is there."""
    with self._sentence("written"), contextlib.suppress(FileNotFoundError):
      self._files.rm_file(self._path(name))

  def _path(self, name: str) -> str:
    return f"{self._root}/{name}"

  @contextlib.contextmanager
  def _sentence(self, what: str) -> Iterator[None]:
    try:
      yield
    except errors.RunError:
      raise
    except Exception as e:  # Every store's library has errors of its own.
      if isinstance(e, PermissionError):
        remedy = "let the credentials of this machine read, write and delete"
      elif isinstance(e, FileNotFoundError):
        remedy = "make the bucket, or correct its name"
      elif isinstance(e, OSError) and e.errno in _FULL:  # Of this machine.
        remedy = "set TMPDIR to a folder with room"
      else:
        remedy = "see that network and credentials work"
      raise StoreError(
          f"{self.url} cannot be {what} ({_short(e)}): {remedy}, and run the"
          " same command again"
      ) from e


def each(function: Callable[[_Item], None], items: Iterable[_Item]) -> None:
  """Calls a function for all items, several at a time; raises its errors."""
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    for _ in pool.map(function, items):
      pass


def _is_inside(name: str) -> bool:
  """Whether a name leads to a place below the folder that it is copied to."""
  return not {"", ".", ".."} & {*name.split("/")}


def _short(error: BaseException) -> str:
  """The first line of an error's text, shortened, or its type."""
  text = (str(error).strip().splitlines() or [""])[0].rstrip(".:")
  text = text or type(error).__name__
  return text if len(text) <= 120 else text[:117] + "..."
