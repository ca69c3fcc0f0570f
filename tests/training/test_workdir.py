"""The work directory: lock, room, configuration."""

import errno

import pytest

from episodic_dp import errors
from episodic_dp.output import files
from episodic_dp.training import workdir


def test_second_process_is_refused_and_the_lock_ends(tmp_path):
  with workdir.locked(tmp_path):
    with pytest.raises(errors.RunError, match="another process is training"):
      with workdir.locked(tmp_path):
        pass
  with workdir.locked(tmp_path):
    pass


def test_a_mount_without_locks_is_not_another_process(
    tmp_path, monkeypatch, caplog
):
  def flock(*unused):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr(workdir.fcntl, "flock", flock)
  with workdir.locked(tmp_path):
    pass
  (warned,) = [r.getMessage() for r in caplog.records]
  assert f"the file system of {tmp_path} has no locks" in warned


def test_the_key_never_lies_on_a_store(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  url = "s3://bucket/run"
  assert workdir.key_path(url).is_relative_to(tmp_path / ".episodic_dp")
  assert workdir.key_path(url) != workdir.key_path(url + "2")
  assert workdir.key_path(url, tmp_path / "k") == tmp_path / "k"
  assert workdir.key_path(tmp_path) == tmp_path / "private" / "key"
  assert workdir.key_path(tmp_path, tmp_path / "k") == tmp_path / "k"


def test_another_folder_is_no_run_of_train(tmp_path):
  with pytest.raises(errors.RunError, match="does not exist: give the work"):
    workdir.read_config(tmp_path)
  files.write_json(tmp_path / workdir.CONFIG, {"visit": {"local_steps": 25}})
  with pytest.raises(errors.RunError, match="is not from episodic-dp train"):
    workdir.read_config(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "\0", "[" * 10**5])
def test_a_damaged_configuration_is_one_sentence(tmp_path, text):
  (tmp_path / workdir.CONFIG).write_text(text)
  with pytest.raises(errors.RunError, match="cannot be read .*move it away"):
    workdir.read_config(tmp_path)
