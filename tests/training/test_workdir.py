"""The work directory: lock, room, configuration."""

import collections
import errno
import os

import pytest

from episodic_dp import errors
from episodic_dp.output import files
from episodic_dp.training import workdir

CONFIG = {
    "steps": 5,
    "delta": 1e-5,
    "mechanism": {"noise_multiplier": 1.0},
    "compute": {"microbatch_size": 4},
}


def test_second_process_is_refused_and_the_lock_ends(tmp_path):
  with workdir.opened(tmp_path):
    with pytest.raises(errors.RunError, match="another process is training"):
      with workdir.opened(tmp_path):
        pass
  with workdir.opened(tmp_path):
    pass


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS]
)
def test_a_mount_without_locks_is_not_another_process(
    tmp_path, monkeypatch, caplog, number
):
  _lock_fails(monkeypatch, number)
  with workdir.opened(tmp_path):
    pass
  (told,) = [r.getMessage() for r in caplog.records]
  assert f"the file system of {tmp_path} knows no locks" in told


def test_a_lock_that_fails_otherwise_is_one_sentence(tmp_path, monkeypatch):
  _lock_fails(monkeypatch, errno.EIO)
  with pytest.raises(errors.RunError, match="cannot be locked .*mend this one"):
    with workdir.opened(tmp_path):
      pass


def _lock_fails(monkeypatch, number):
  def flock(*unused):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(workdir.fcntl, "flock", flock)


def test_a_run_may_be_insisted_on_or_refused(tmp_path):
  folder = tmp_path / "run"
  with pytest.raises(errors.RunError, match="no run was ever begun in .*/run"):
    with workdir.opened(folder, resume="must"):
      pass
  assert not folder.exists()
  with workdir.opened(folder, resume="never"):
    pass
  with workdir.opened(folder, resume="must"):
    files.write_json(folder / workdir.CONFIG, CONFIG)
  with pytest.raises(errors.RunError, match="holds a run: choose another"):
    with workdir.opened(folder, resume="never"):
      pass


@pytest.mark.parametrize("there", [None, [], ["notes.txt"]])
def test_what_is_refused_leaves_the_folder_as_it_was(tmp_path, there):
  folder = tmp_path / "runs" / "new"
  if there is not None:
    folder.mkdir(parents=True)
    for name in there:
      (folder / name).write_text("mine")
  with pytest.raises(FileNotFoundError, match="no data"):
    with workdir.opened(folder):
      (folder / "private").mkdir()
      (folder / "private" / "key").write_text("secret")
      raise FileNotFoundError("no data")
  if there is None:
    assert not (tmp_path / "runs").exists()
  else:
    assert [path.name for path in folder.iterdir()] == there


def test_what_fails_later_stays(tmp_path):
  with pytest.raises(ValueError):
    with workdir.opened(tmp_path / "run"):
      files.write_json(tmp_path / "run" / workdir.CONFIG, CONFIG)
      raise ValueError("later")
  assert (tmp_path / "run" / ".lock").exists()


def test_a_lock_that_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
  flock = workdir.fcntl.flock

  def after_it_was_removed(*arguments):
    (tmp_path / ".lock").unlink()
    flock(*arguments)

  monkeypatch.setattr(workdir.fcntl, "flock", after_it_was_removed)
  with pytest.raises(errors.RunError, match="another process is training"):
    with workdir.opened(tmp_path):
      pass


def test_a_file_in_the_way_is_one_sentence(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(errors.RunError, match="choose another --workdir"):
    with workdir.opened(tmp_path / "file" / "run"):
      pass


def test_full_disk_is_one_sentence(tmp_path, monkeypatch):
  usage = collections.namedtuple("usage", "total used free")
  monkeypatch.setattr(
      workdir.shutil, "disk_usage", lambda path: usage(2**30, 2**30, 2**20)
  )
  with pytest.raises(errors.RunError, match="has 1 MiB left.*make room"):
    with workdir.opened(tmp_path):
      pass


def test_a_run_beside_or_below_is_named_where_there_is_none(tmp_path):
  run = tmp_path / "runs" / "a run"
  run.mkdir(parents=True)
  (tmp_path / "runs" / "README").touch()
  for path, said in (
      (run / workdir.CONFIG, "does not exist: give the --workdir of a run"),
      (tmp_path / "runs" / "README", "README is a file: give the --workdir"),
  ):
    with pytest.raises(errors.RunError, match=said):
      workdir.read_config(path)
  files.write_json(run / workdir.CONFIG, CONFIG)
  for path, said in (
      (run / workdir.CONFIG, "config.json is a file"),
      (tmp_path / "runs", "runs/config.json does not exist"),
  ):
    remedy = f"{said}: give the folder of a run, such as --workdir='{run}'"
    with pytest.raises(errors.RunError, match=remedy):
      workdir.read_config(path)
  files.write_json(run / workdir.CONFIG, {"visit": {"local_steps": 25}})
  with pytest.raises(errors.RunError, match="a run of episodic-dp pvi"):
    workdir.read_config(run)
