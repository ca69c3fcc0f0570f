"""The work directory: lock, room, configuration."""

import errno

import pytest

from episodic_dp import errors
from episodic_dp.output import files
from episodic_dp.training import resume
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


def test_a_mount_without_locks_is_not_another_process(
    tmp_path, monkeypatch, caplog
):
  def flock(*unused):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr(workdir.fcntl, "flock", flock)
  with workdir.opened(tmp_path):
    pass
  (warned,) = [r.getMessage() for r in caplog.records]
  assert f"the file system of {tmp_path} knows no locks" in warned


def test_a_run_may_be_insisted_on_or_refused(tmp_path):
  folder = tmp_path / "run"
  with pytest.raises(errors.RunError, match="no run was ever begun in .*/run"):
    with workdir.opened(folder) as place:
      resume.check_mode(place, "must")
  assert not folder.exists()
  with workdir.opened(folder) as place:
    resume.check_mode(place, "never")
  with workdir.opened(folder) as place:
    resume.check_mode(place, "must")
    files.write_json(folder / workdir.CONFIG, CONFIG)
  with pytest.raises(errors.RunError, match="holds a run: choose another"):
    with workdir.opened(folder) as place:
      resume.check_mode(place, "never")


def test_the_key_never_lies_on_a_store(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  url = "s3://bucket/run"
  assert workdir.key_path(url).is_relative_to(tmp_path / ".episodic_dp")
  assert workdir.key_path(url) != workdir.key_path(url + "2")
  assert workdir.key_path(url, tmp_path / "k") == tmp_path / "k"
  assert workdir.key_path(tmp_path) == tmp_path / "private" / "key"
  with pytest.raises(errors.RunError, match="leave it out"):
    workdir.key_path(tmp_path, tmp_path / "k")


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


def test_another_folder_is_no_run_of_train(tmp_path):
  with pytest.raises(errors.RunError, match="does not exist: give the --work"):
    workdir.read_config(tmp_path)
  files.write_json(tmp_path / workdir.CONFIG, {"visit": {"local_steps": 25}})
  with pytest.raises(errors.RunError, match="a run of episodic-dp pvi"):
    workdir.read_config(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", "[" * 10**5])
def test_a_damaged_configuration_is_one_sentence(tmp_path, text):
  (tmp_path / workdir.CONFIG).write_text(text)
  with pytest.raises(errors.RunError, match="cannot be read .*move it away"):
    workdir.read_config(tmp_path)
