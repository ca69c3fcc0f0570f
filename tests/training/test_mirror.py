"""A run's files on an object store: whole at any moment, one process at a time.

On fsspec's store in memory; test_s3.py uses a server.
"""

import errno
import itertools
import json
import pathlib
import stat

import pytest

from episodic_dp import errors
from episodic_dp.training import keys
from episodic_dp.training import mirror
from episodic_dp.training import remote
from episodic_dp.training import stores
from episodic_dp.training import workdir

_NUMBERS = itertools.count()


@pytest.fixture
def url():
  return f"memory://bucket/{next(_NUMBERS)}/run"


def _write(folder, step, lines=None):
  """What a run has after a step: its checkpoint replaces the one before."""
  files = {
      "config.json": "{}",
      "metrics.jsonl": "line\n" * (lines or step),
      "private/key": "secret",
      "guarantees/one.json": "of a client",
      f"checkpoints/{step}/params/d/0": f"params {step}",
      f"checkpoints/{step}/rest": f"rest {step}",
      "checkpoints/9.orbax-checkpoint-tmp/rest": "half of it",
      ".config.json.tmp": "half of it",
  }
  for old in (folder / "checkpoints").glob("*/*"):
    if old.parent.name.isdigit() and old.is_file():
      old.unlink()
  for old in folder.glob("checkpoints/*/params/d/0"):
    old.unlink()
  for name, text in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _state(folder):
  """(name, text) of the files of the checkpoint in a folder, and its lines."""
  found = {
      path.relative_to(folder).as_posix(): path.read_text()
      for path in sorted(folder.glob("checkpoints/**/*"))
      if path.is_file()
  }
  lines = (folder / "metrics.jsonl").read_text().count("\n")
  return found, lines


def _of_step(step):
  return {
      f"checkpoints/{step}/params/d/0": f"params {step}",
      f"checkpoints/{step}/rest": f"rest {step}",
  }


def test_names_are_those_of_the_key():
  assert remote.KEY == keys.path("").as_posix()


def test_what_one_process_saved_the_next_one_has(url, caplog):
  caplog.set_level("WARNING", logger="absl")
  with workdir.opened(url) as place:
    _write(place.folder, 4)
    place.publish()
    _write(place.folder, 8)
    place.publish()
    gone = place.folder
  assert not gone.exists()
  names = stores.Store(url).names()
  assert {n for n in names if "checkpoint" in n} == set(_of_step(8))
  assert not [n for n in names if n.endswith("tmp")]
  with workdir.opened(url) as place:
    assert _state(place.folder) == (_of_step(8), 8)
    assert (place.folder / "guarantees/one.json").exists()
    assert stat.S_IMODE((place.folder / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((place.folder / "private/key").stat().st_mode) == 0o600
    assert not (place.folder / mirror.UNSAVED).exists()
  told = [r.getMessage() for r in caplog.records]
  assert sum(f"lies in {url}/private/key" in text for text in told) == 1


class Killed(BaseException):
  """Nothing that the run does after it counts."""


class CutOff(stores.Store):
  """Takes so many changes, half of one more file, and then nothing.

  Attributes:
    left: how many changes it takes.
  """

  left = 1000

  def _count(self):
    self.left -= 1
    if self.left < 0:
      raise Killed

  def write(self, name, content):
    self._count()
    super().write(name, content)

  def put(self, name, path):
    if self.left == 0:
      super().write(name, path.read_bytes()[:3])
    self._count()
    super().put(name, path)

  def delete(self, name):
    self._count()
    super().delete(name)


def _cut_off_after(changes, url, running):
  """Whether the second upload of a run was cut off."""
  store = CutOff(url)
  with remote.temporary(url) as folder:
    copy = mirror.Mirror(store, folder)
    _write(folder, 4)
    copy.publish()
    _write(folder, 8)
    store.left = changes
    try:
      copy.publish(running=running)
    except Killed:
      return True
  return False


@pytest.mark.parametrize("running", [True, False])
def test_an_upload_that_is_cut_off_anywhere_leaves_a_whole_checkpoint(
    url, running
):
  """Before every single change, with half of the file that it was about."""
  steps, cut = [], True
  while cut:
    store = stores.Store(f"{url}/{len(steps)}")
    cut = _cut_off_after(len(steps), store.url, running)
    with remote.temporary(store.url) as folder:
      copy = mirror.Mirror(store, folder)
      found, lines = _state(folder)
      step = 8 if "checkpoints/8/rest" in found else 4
      assert found == _of_step(step)
      # No step of the checkpoint lacks a line, and others may have followed.
      assert step == 4 or lines == 8
      stopped = not running and step == 8
      assert (folder / mirror.UNSAVED).exists() != stopped
      # It goes on, whatever lies about.
      _write(folder, 12)
      copy.publish()
    names = {n for n in store.names() if "checkpoint" in n}
    assert names == set(_of_step(12))
    steps.append(step)
  assert set(steps) == {4, 8} and steps == sorted(steps) and len(steps) > 6


def test_the_last_process_to_begin_goes_on(url):
  with pytest.raises(mirror.Superseded, match="after this one, and goes on"):
    with workdir.opened(url) as first:
      _write(first.folder, 4)
      first.publish()
      with workdir.opened(url) as second:
        assert (second.folder / mirror.UNSAVED).exists()
        _write(second.folder, 8)
        second.publish()
        _write(first.folder, 12)
        first.publish()
  with workdir.opened(url) as place:
    assert _state(place.folder) == (_of_step(8), 8)


def test_one_that_was_overtaken_while_it_began_stops(url):
  with pytest.raises(mirror.Superseded, match="while this one began"):
    with workdir.opened(url) as late:
      with workdir.opened(url) as other:
        _write(other.folder, 4)
        other.publish()
      _write(late.folder, 8)
      late.publish()
  with workdir.opened(url) as place:
    assert _state(place.folder)[0] == _of_step(4)


def test_a_refused_run_changes_nothing(url):
  with workdir.opened(url) as place:
    _write(place.folder, 4)
    place.publish()
  before = stores.Store(url).read(remote.MANIFEST)
  with pytest.raises(errors.RunError, match=f"{url}/config.json is another"):
    with workdir.opened(url) as place:
      _write(place.folder, 8)
      raise errors.RunError(f"{place.folder}/config.json is another")
  assert stores.Store(url).read(remote.MANIFEST) == before


def test_lines_of_steps_without_a_checkpoint_are_kept(url):
  with pytest.raises(OSError, match="at last"):
    with workdir.opened(url) as place:
      _write(place.folder, 4)
      place.publish()
      _write(place.folder, 4, lines=6)
      raise OSError("at last")
  with workdir.opened(url) as place:
    assert _state(place.folder) == (_of_step(4), 6)
    assert not (place.folder / mirror.UNSAVED).exists()


# The key in a file of its own -------------------------------------------------


def test_a_key_file_never_goes_to_the_store(url, tmp_path, caplog):
  path = tmp_path / "keys" / "key"
  with workdir.opened(url, key_file=path) as place:
    _write(place.folder, 4)
    place.publish()
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
  assert not [n for n in stores.Store(url).names() if "private" in n]
  assert "lies in" not in caplog.text
  with workdir.opened(url, key_file=path) as place:
    assert (place.folder / "private/key").read_text() == "secret"
  with pytest.raises(errors.RunError, match="give the --key_file=PATH that"):
    with workdir.opened(url):
      pass
  path.chmod(0o644)
  with pytest.raises(errors.RunError, match=f"chmod 600 {path}"):
    with workdir.opened(url, key_file=path):
      pass
  path.unlink()
  with pytest.raises(errors.RunError, match="does not exist: put the file ba"):
    with workdir.opened(url, key_file=path):
      pass


def test_a_key_file_where_the_key_is_elsewhere_is_refused(url, tmp_path):
  with workdir.opened(url) as place:
    _write(place.folder, 4)
    place.publish()
  with pytest.raises(errors.RunError, match="leave --key_file=.*out"):
    with workdir.opened(url, key_file=tmp_path / "key"):
      pass
  with pytest.raises(errors.RunError, match="for a run on an object store"):
    with workdir.opened(tmp_path / "run", key_file=tmp_path / "key"):
      pass
  (tmp_path / "file").touch()
  with pytest.raises(errors.RunError, match="name a file in a folder of your"):
    with workdir.opened(f"{url}/new", key_file=tmp_path / "file" / "key"):
      pass


# What is refused, and what is damaged -----------------------------------------


def test_resume_must_and_never(url):
  with pytest.raises(errors.RunError, match=f"no run was ever begun in {url}"):
    with workdir.opened(url, resume="must"):
      pass
  assert not stores.Store(url).names()
  with workdir.opened(url, resume="never"):
    pass
  with workdir.opened(url, resume="must") as place:
    _write(place.folder, 4)
    place.publish()
  with pytest.raises(errors.RunError, match=f"{url} holds a run"):
    with workdir.opened(url, resume="never"):
      pass


def test_what_is_refused_leaves_nothing_on_the_store(url):
  with pytest.raises(ValueError, match="refused"):
    with workdir.opened(url):
      raise ValueError("refused")
  assert not stores.Store(url).names()


@pytest.fixture
def saved(url):
  with workdir.opened(url) as place:
    _write(place.folder, 4)
    place.publish()
  return stores.Store(url)


def _refused(url, match):
  with pytest.raises(errors.RunError, match=match) as caught:
    with workdir.opened(url):
      pass
  text = str(caught.value)
  assert "\n" not in text and "/episodic_dp_" not in text


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"schema": 9}', b"\xff",
                b'{"schema": 1, "running": 0, "key_file": 0, "checkpoints": 1}',
                b'{"schema": 1, "running": 0, "key_file": 0, "checkpoints":'
                b' {"4": {"../4": ""}}}'],
)  # fmt: skip
def test_a_damaged_manifest_is_one_sentence(saved, content):
  saved.write(remote.MANIFEST, content)
  _refused(saved.url, "mirror.json cannot be read .*: put it back")


def test_a_damaged_checkpoint_is_one_sentence_and_one_that_is_gone_is_said(
    saved, caplog
):
  names = sorted(_of_step(4))
  saved.write(names[0], b"another")
  _refused(saved.url, "checkpoints/4 cannot be read .*differs from what was")
  saved.delete(names[0])
  _refused(saved.url, "checkpoints/4 cannot be read .*params/d/0 is gone")
  saved.delete(names[1])
  caplog.set_level("WARNING", logger="absl")
  with workdir.opened(saved.url) as place:
    assert _state(place.folder) == ({}, 4)
  assert "checkpoints/4 is gone: the run goes on without it" in caplog.text


def test_a_folder_that_was_copied_to_a_store_is_a_run(url, tmp_path):
  _write(tmp_path, 4)
  store = stores.Store(url)
  for path in tmp_path.rglob("*"):
    if path.is_file():
      store.put(path.relative_to(tmp_path).as_posix(), path)
  with workdir.opened(url, resume="must") as place:
    assert _state(place.folder) == (_of_step(4), 4)
    place.publish()
  assert json.loads(store.read(remote.MANIFEST))["checkpoints"].keys() == {"4"}


# Readers ----------------------------------------------------------------------


def test_readers_get_all_runs_below_but_nothing_private(url):
  for name in ("z=1,key=0", "z=2,key=0"):
    with workdir.opened(f"{url}/{name}") as place:
      _write(place.folder, 4)
      place.publish()
    stores.Store(f"{url}/{name}").write("checkpoints/8/rest", b"half")
  before = stores.Store(url).names()
  with remote.fetched(url, results=["evaluation.json"]) as folder:
    assert folder.name == "run"
    for name in ("z=1,key=0", "z=2,key=0"):
      assert _state(folder / name) == (_of_step(4), 4)
    assert not list(folder.rglob("*key"))
  assert stores.Store(url).names() == before
  with remote.fetched(f"{url}/z=1,key=0", results=["evaluation.json"]) as one:
    assert _state(one) == (_of_step(4), 4)
    (one / "evaluation.json").write_text("{}")
  assert stores.Store(url).read("z=1,key=0/evaluation.json") == b"{}"


def test_a_reader_takes_a_folder_as_it_is(tmp_path):
  with remote.fetched(tmp_path) as folder:
    assert folder == tmp_path


def test_a_reader_of_nothing_is_one_sentence(url):
  with pytest.raises(errors.RunError, match="holds nothing: give the --workd"):
    with remote.fetched(url):
      pass


def test_a_reader_follows_a_run_that_goes_on(saved, monkeypatch):
  """A checkpoint is replaced by the next one while it is fetched."""
  get, store = stores.Store.get, saved
  opened = workdir.opened(store.url)
  place = opened.__enter__()

  def replaced(self, name, path):
    monkeypatch.setattr(stores.Store, "get", get)
    _write(place.folder, 8)
    place.publish()
    get(self, name, path)

  monkeypatch.setattr(stores.Store, "get", replaced)
  with remote.fetched(store.url) as folder:
    assert _state(folder) == (_of_step(8), 8)
  opened.__exit__(None, None, None)


# Addresses --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [("s3://b/run", True), ("gs://b", True), ("memory://b", True),
     ("runs/a", False), ("/runs/s3", False), ("a:b/c", False)],
)  # fmt: skip
def test_addresses_are_told_from_folders(text, expected):
  assert stores.is_url(text) is expected


def test_an_address_that_went_through_pathlib_is_said():
  with pytest.raises(errors.RunError, match="write s3://bucket/run, as text"):
    stores.is_url(pathlib.Path("s3://bucket/run"))


def test_a_store_that_nobody_knows_is_one_sentence(monkeypatch):
  with pytest.raises(errors.RunError, match="use gs://BUCKET/RUN"):
    stores.Store("nowhere://bucket/run")
  missing = ImportError("no")
  monkeypatch.setattr(
      stores.fsspec.core, "url_to_fs", lambda *a, **k: _raise(missing)
  )
  with pytest.raises(errors.RunError, match="needs s3fs.*pip install 'epis"):
    stores.Store("s3://bucket/run")


def _raise(error):
  raise error


@pytest.mark.parametrize(
    "error, match",
    [(PermissionError("Forbidden"), "Forbidden.: let the credentials"),
     (FileNotFoundError("no bucket"), "no bucket.: make the bucket"),
     (OSError(errno.ENOSPC, "No space"), ".*No space.: set TMPDIR to"),
     (TimeoutError(), "TimeoutError.: see that network")],
)  # fmt: skip
def test_a_store_that_cannot_be_written_is_said_at_once(
    url, monkeypatch, error, match
):
  monkeypatch.setattr(
      stores.fsspec.implementations.memory.MemoryFileSystem,
      "pipe_file",
      lambda *a, **k: _raise(error),
  )
  _refused(url, f"{url} cannot be written .{match}")


def test_names_that_lead_elsewhere_are_passed_over(url):
  store = stores.Store(url)
  store.write("checkpoints/4/x", b"")
  for name in ("checkpoints/4/../../../x", "private//key", "./x"):
    store._files.store[f"{store._root}/{name}"] = store._files.store[
        f"{store._root}/checkpoints/4/x"
    ]
  assert store.names().keys() == {"checkpoints/4/x"}
