"""A work directory on an object store: a local folder, and its mirror there.

A run works in a temporary folder of its machine. What the store has of the run
is fetched when it begins; before the first step, after every checkpoint and at
the end, what is new is uploaded. What holds:

- A checkpoint on the store counts once `.mirror.json` names its files and their
  digests. That file is written at once and last, and checkpoints that are gone
  are deleted after it; so an upload that is cut off anywhere leaves the
  checkpoint before, and nothing half uploaded is taken for one.
- The key, the configuration and the lines of all steps are there before the
  checkpoint that needs them.
- `.mirror.json` also says whether a process still takes steps. Where one was
  killed, steps after the last checkpoint may have been seen, of which the store
  has no line: they are gone on with as those of a killed run are.
- Of two processes the one that began last goes on: it leaves a number in
  `.session`, and the other one finds it before its next upload and stops. Until
  then both take the same steps under the same key, so that nothing is released
  twice (`binding`).

What is private goes to `private/` alone. Plain files, without JAX.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
import secrets
import tempfile
from typing import Any

from absl import logging

from episodic_dp import errors
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import remote
from episodic_dp.training import stores

UNSAVED = ".unsaved"  # In the folder: steps may have followed; see above.

Digests = Mapping[str, str]  # name -> SHA-256


class Superseded(errors.RunError):
  """A process that began later goes on with the run."""


class Mirror:
  """The local folder of a run on an object store.

  Attributes:
    folder: where the run works; private to this user.
  """

  def __init__(
      self,
      store: stores.Store,
      folder: pathlib.Path,
      *,
      key_file: pathlib.Path | None = None,
  ):
    """Fetches what the store has of the run, and tries to write there.

    Args:
      store: of the address of the run.
      folder: a new one.
      key_file: where the key of the run lies, on this machine; None for
        `private/` on the store.

    Raises:
      RunError: the store cannot be read or written, or what it holds is not
        whole.
    """
    self.folder, self._store, self._key_file = folder, store, key_file
    self._session = secrets.token_hex(8)
    self._begun = False
    self._digests: dict[str, dict[str, str]] = {}  # Of checkpoints, by folder.
    names = store.names()
    self._empty = not names
    store.write(remote.LOCK, b"")  # Whether it takes files shows now.
    self._fetched = store.read(remote.MANIFEST)
    manifest = remote.parsed(store, self._fetched)
    self._check_key_file(names, manifest)
    with phases.phase(f"fetching the run from {store.url}"):
      self._uploaded = remote.download(
          store, folder, remote.own(names), {"": manifest} if manifest else {}
      )
    if key_file is not None:
      self._take_key_file(key_file)
    if manifest and manifest["running"]:
      (folder / UNSAVED).touch()

  def publish(self, *, running: bool = True) -> None:
    """Uploads what is new, and deletes what is gone.

    Args:
      running: whether steps may follow.

    Raises:
      RunError: the store cannot be written.
      Superseded: a later process goes on with the run.
    """
    self._check_session()
    if self._key_file is not None:
      self._keep_key_file(self._key_file)
    there, local = self._store.names(), self._local()
    checkpoints = {n for n in local if n.startswith(remote.CHECKPOINTS)}
    others = {n: remote.sha256(local[n]) for n in local.keys() - checkpoints}
    if remote.KEY in others:  # Before whatever follows from it.
      self._upload_key(others.pop(remote.KEY))
    self._upload(others, there)
    self._upload(self._checkpoint_digests(checkpoints), there)
    self._check_session()
    self._write_manifest(running)
    gone = {n for n in there if n.startswith(remote.CHECKPOINTS)} - checkpoints
    gone |= self._uploaded.keys() - local.keys()
    stores.each(self._store.delete, gone & there.keys())
    self._uploaded = {n: d for n, d in self._uploaded.items() if n in local}

  def finish(self) -> None:
    """The last upload; nothing where the run never began."""
    if self._begun:
      self.publish(running=False)

  def withdraw(self) -> None:
    """Leaves nothing on a store that was empty, where the run never began."""
    if not self._begun and self._empty:
      self._store.delete(remote.LOCK)

  def _check_session(self) -> None:
    """Begins the session of this process, or sees that no other one has."""
    store = self._store
    if not self._begun:
      store.write(remote.SESSION, self._session.encode())
      if store.read(remote.MANIFEST) != self._fetched:
        raise Superseded(
            f"another process trains in {store.url}, and saved a checkpoint"
            " while this one began: stop it and run the same command again, or"
            " choose another --workdir"
        )
      self._begun = True
      if self._key_file is None:
        logging.warning(
            "the secret key of the run lies in %s/%s: whoever reads it can take"
            " the noise away; keep readers of the bucket from it, or begin"
            " another run with --key_file=PATH",
            store.url,
            remote.KEY,
        )
    elif store.read(remote.SESSION) != self._session.encode():
      raise Superseded(
          f"another process was started in {store.url} after this one, and goes"
          " on with the run: this one stops, whose steps since its last"
          " checkpoint the other one takes alike; to train twice choose another"
          " --workdir"
      )

  def _upload_key(self, digest: str) -> None:
    """Unless it is there: read again, since nothing goes on without it."""
    path = self.folder / remote.KEY
    if self._store.read(remote.KEY) != path.read_bytes():
      self._store.put(remote.KEY, path)
    self._uploaded[remote.KEY] = digest

  def _upload(self, digests: Digests, there: Mapping[str, int]) -> None:
    """Uploads those files that the store does not have like this."""

    def upload(name: str) -> None:
      self._store.put(name, self.folder / name)
      self._uploaded[name] = digests[name]

    stores.each(
        upload,
        [
            name
            for name in sorted(digests)
            if name not in there or self._uploaded.get(name) != digests[name]
        ],
    )

  def _local(self) -> dict[str, pathlib.Path]:
    """Name -> path of every file that belongs on the store."""
    found = {}
    for path in self.folder.rglob("*"):
      name = path.relative_to(self.folder).as_posix()
      if path.is_file() and remote.belongs(name):
        found[name] = path
    if self._key_file is not None:
      found.pop(remote.KEY, None)
    return found

  def _checkpoint_digests(self, names: set[str]) -> Digests:
    """Of their files, which do not change once they are written."""
    known, self._digests = self._digests, {}
    for name in names:
      step = remote.step_of(name)
      of_step = self._digests.setdefault(step, {})
      of_step[name] = known.get(step, {}).get(name) or (
          self._uploaded.get(name) or remote.sha256(self.folder / name)
      )
    return {n: d for of in self._digests.values() for n, d in of.items()}

  def _write_manifest(self, running: bool) -> None:
    value = {
        "schema": remote.SCHEMA,
        "running": running,
        "key_file": self._key_file is not None,
        "checkpoints": self._digests,
    }
    text = json.dumps(value, indent=1, sort_keys=True) + "\n"
    self._store.write(remote.MANIFEST, text.encode())

  # The key in a file of its own ----------------------------------------------

  def _check_key_file(
      self, names: Mapping[str, int], manifest: Mapping[str, Any] | None
  ) -> None:
    url, path = self._store.url, self._key_file
    if path is None:
      if manifest and manifest["key_file"]:
        raise errors.RunError(
            f"the secret key of the run in {url} was kept in a file of its own:"
            " give the --key_file=PATH that the run was started with"
        )
    elif remote.KEY in names:
      raise errors.RunError(
          f"the secret key of the run lies in {url}/{remote.KEY}: leave"
          f" --key_file={path} out, or choose another --workdir"
      )
    elif manifest and not path.exists():
      raise errors.RunError(
          f"the secret key --key_file={path} of the run in {url} does not"
          " exist: put the file back, or start a new run in another --workdir"
      )

  def _take_key_file(self, path: pathlib.Path) -> None:
    """Copies the key into the folder, where it exists."""
    try:
      path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
      with tempfile.TemporaryFile(dir=path.parent):
        pass
      if not path.exists():
        return
      if path.stat().st_mode & 0o077:
        raise errors.RunError(
            f"--key_file={path} can be read by others: chmod 600 {path}"
        )
      text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
      raise errors.RunError(
          f"--key_file={path} cannot be read and written ({e.strerror or e}):"
          " name a file in a folder of your own"
      ) from e
    remote.make_private(self.folder)
    files.write_text(self.folder / remote.KEY, text, private=True)

  def _keep_key_file(self, path: pathlib.Path) -> None:
    """Copies the key out of the folder, where it changed."""
    text = (self.folder / remote.KEY).read_text(encoding="utf-8")
    if not path.exists() or path.read_text(encoding="utf-8") != text:
      files.write_text(path, text, private=True)


@contextlib.contextmanager
def opened(
    store: stores.Store, *, key_file: str | os.PathLike | None = None
) -> Iterator[Mirror]:
  """A folder with what the store has of a run, uploaded at the end.

  Errors that name the folder, which is gone then, name the address.

  Args:
    store: of the address of the run.
    key_file: see `Mirror`.

  Raises:
    RunError: see `Mirror`.
  """
  path = None if key_file is None else pathlib.Path(key_file).absolute()
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(remote.temporary(store.url))
    stack.enter_context(remote.naming(store.url, folder))
    if path is not None:
      key = folder / remote.KEY
      stack.enter_context(remote.naming(str(path), key))
    mirror = Mirror(store, folder, key_file=path)
    try:
      yield mirror
    except (Superseded, stores.StoreError):
      raise
    except Exception:
      # Lines of steps that no checkpoint holds yet. Where they are not uploaded
      # the store goes on saying that steps may have followed.
      with contextlib.suppress(errors.RunError, OSError):
        mirror.finish()
        mirror.withdraw()
      raise
    mirror.finish()
