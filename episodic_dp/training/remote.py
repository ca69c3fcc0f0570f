"""What an object store has of a run, and how it is fetched.

A checkpoint on the store counts once `.mirror.json` names its files and their
digests; see `mirror`, which writes it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

from absl import logging

from episodic_dp import errors
from episodic_dp.output import phases
from episodic_dp.training import stores

MANIFEST, LOCK, SESSION = ".mirror.json", ".lock", ".session"
CHECKPOINTS, PRIVATE = "checkpoints/", "private/"
KEY = "private/key"  # As in `keys`, which needs JAX.
SCHEMA = 1
_CONTROL = (MANIFEST, SESSION, LOCK)
# Those of a run; others may be runs of their own.
_FOLDERS = ("checkpoints", "guarantees", "private", "tensorboard")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def fetched(
    workdir: str | os.PathLike,
    *,
    results: Sequence[str] = (),
    only: Collection[str] | None = None,
) -> Iterator[pathlib.Path]:
  """The work directory as a folder: itself, or a copy of what the store has.

  The copy has neither `private/` nor `tensorboard/`, and runs in folders below
  the address as well. The run on the store is not changed.

  Args:
    workdir: a folder, or an address on an object store.
    results: names of files that are uploaded at the end, where they were made.
    only: the last parts of the names of what is wanted, private files too; None
      for what is said above.

  Raises:
    RunError: the store cannot be read, or holds nothing there.
  """
  if not stores.is_url(workdir):
    yield pathlib.Path(workdir)
    return
  store = stores.Store(os.fspath(workdir))
  with temporary(store.url) as folder, naming(store.url, folder):
    with phases.phase(f"fetching {store.url}"):
      _download_runs(store, folder, only)
    before = {n: sha256(folder / n) for n in results if (folder / n).exists()}
    yield folder
    for name in results:
      path = folder / name
      if path.exists() and sha256(path) != before.get(name):
        store.put(name, path)


def _download_runs(
    store: stores.Store, folder: pathlib.Path, only: Collection[str] | None
) -> None:
  """Everything below an address that readers may want; `only` as above."""
  for attempt in range(3):
    names = store.names()
    if not names:
      raise errors.RunError(
          f"{store.url} holds nothing: give the --workdir of a run that was"
          " started with episodic-dp train"
      )
    manifests, wanted = {}, {}
    for name, size in names.items():
      parts = name.split("/")
      if only is not None:
        if parts[-1] in only:
          wanted[name] = size
      elif parts[-1] == MANIFEST:
        found = parsed(store, store.read(name))
        if found:
          manifests[name.removesuffix(MANIFEST)] = found
      elif not {*_CONTROL, "private", "tensorboard"} & {*parts}:
        wanted[name] = size
    try:
      download(store, folder, wanted, manifests)
    except errors.RunError:
      # A process that trains there may have gone on to its next checkpoint.
      if attempt == 2 or store.names() == names:
        raise
      shutil.rmtree(folder)
      folder.mkdir()
    else:
      return


def download(
    store: stores.Store,
    folder: pathlib.Path,
    names: Mapping[str, int],
    manifests: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
  """Downloads files, of checkpoints those that count; name -> digest.

  Args:
    store: where from.
    folder: where to.
    names: of the files, with their sizes.
    manifests: of the runs, by the start of the names of their files.
  """
  wanted: dict[str, str | None] = dict.fromkeys(names)
  for run, manifest in manifests.items():
    for name in names:
      if name.startswith(run + CHECKPOINTS):
        wanted.pop(name)
    for step, of_step in manifest["checkpoints"].items():
      expected = {run + name: digest for name, digest in of_step.items()}
      there = expected.keys() & names.keys()
      if len(there) == len(expected):
        wanted |= expected
      elif there:
        missing = min(expected.keys() - there)
        raise _damaged(store, run + CHECKPOINTS + step, f"{missing} is gone")
      else:
        logging.warning(
            "%s/%s is gone: the run goes on without it",
            store.url,
            run + CHECKPOINTS + step,
        )
  found: dict[str, str] = {}

  def fetch(name: str) -> None:
    path = folder / name
    store.get(name, path)
    found[name] = sha256(path)
    if wanted[name] not in (None, found[name]):
      head, _, tail = name.partition(CHECKPOINTS)
      place = head + CHECKPOINTS + tail.partition("/")[0]
      raise _damaged(store, place, f"{name} differs from what was saved")

  if any(name.startswith(PRIVATE) for name in wanted):
    make_private(folder)
  stores.each(fetch, sorted(wanted))
  return found


def _damaged(store: stores.Store, name: str, why: str) -> errors.RunError:
  return errors.RunError(
      f"the checkpoint {store.url}/{name} cannot be read ({why}): move all"
      " objects below it away and run the same command again; the run then goes"
      " on from the checkpoint before, or starts again with the same key"
  )


def parsed(
    store: stores.Store, content: bytes | None
) -> dict[str, Any] | None:
  """What `.mirror.json` holds; None where there is none.

  A folder that was copied to the store has none: all its checkpoints count.
  """
  if content is None:
    return None
  try:
    value = json.loads(content)
    if value["schema"] != SCHEMA:
      raise ValueError("another version wrote it")
    for step, digests in value["checkpoints"].items():
      if not all(belongs(n) and step_of(n) == step for n in digests):
        raise ValueError("a checkpoint has other files")
      dict(digests)
    bool(value["running"]), bool(value["key_file"])
  except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{store.url}/{MANIFEST} cannot be read ({type(e).__name__}): put it"
        " back, or start a new run in another --workdir"
    ) from e
  return value


def make_private(folder: pathlib.Path) -> None:
  """Makes `private/` in the folder of a run."""
  (folder / PRIVATE).mkdir(mode=0o700, exist_ok=True)


def own(names: Mapping[str, int]) -> dict[str, int]:
  """Those of a run's own files, not of runs in folders below."""
  return {name: size for name, size in names.items() if belongs(name)}


def belongs(name: str) -> bool:
  """Whether a file is one of a run, and whole: not written to just now."""
  first, *rest = name.split("/")
  if not rest:
    return not first.startswith(".")
  if first == "checkpoints":
    return len(rest) > 1 and rest[0].isdigit()
  return first in _FOLDERS and not rest[-1].startswith(".")


def step_of(name: str) -> str:
  """The folder of the checkpoint that a file belongs to."""
  return name.removeprefix(CHECKPOINTS).partition("/")[0]


def sha256(path: pathlib.Path) -> str:
  """Of what the file holds."""
  with path.open("rb") as f:
    return hashlib.file_digest(f, "sha256").hexdigest()


@contextlib.contextmanager
def temporary(url: str) -> Iterator[pathlib.Path]:
  """An empty folder, named as the last part of the address."""
  with tempfile.TemporaryDirectory(prefix="episodic_dp_") as parent:
    name = url.rpartition("/")[2] or "run"
    folder = pathlib.Path(parent) / name
    folder.mkdir()
    yield folder


@contextlib.contextmanager
def naming(name: str, path: pathlib.Path) -> Iterator[None]:
  """Errors name the address in place of a path in a temporary folder.

  But not where the folder itself is what is wrong: its disk is full.

  Args:
    name: of the address.
    path: of what lies there.
  """
  try:
    yield
  except errors.RunError as e:
    cause = e.__cause__
    if not (isinstance(cause, OSError) and cause.errno in _FULL):
      e.args = (str(e).replace(str(path), name),)
    raise
