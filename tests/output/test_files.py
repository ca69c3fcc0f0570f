"""A file is the old one or the new one, never half of one."""

import errno
import json
import pathlib
import tempfile

import numpy as np
import pytest

from episodic_dp import errors
from episodic_dp import models
from episodic_dp.output import files
from episodic_dp.training import workdir


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside(tmp_path):
  path = tmp_path / "a.json"
  files.write_json(path, {"a": 1})
  with pytest.raises(ValueError):
    files.write_json(path, {"a": float("inf")})
  with pytest.raises(RuntimeError):
    with files.replacing(path) as part:
      part.write_text("half")
      raise RuntimeError
  assert json.loads(path.read_text()) == {"a": 1}
  assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_text_is_utf_8(tmp_path):
  path = tmp_path / "a" / "b.txt"
  files.write_text(path, "ε ≤ 1")
  assert path.read_bytes().decode("utf-8") == "ε ≤ 1"


def open_run(path):
  with workdir.locked(path, key_file=f"{path}.key") as found:
    found.key.write_text("key")


def read_back(path):
  models.write_weights(f"{path}.npz", {"kernel": np.ones(2)})
  assert models.read_weights(f"{path}.npz")["kernel"].tolist() == [1, 1]
  files.write_text(path, "read")


def make_folder(path):
  with files.new_folder(path):
    pass


@pytest.mark.parametrize(
    "door", [open_run, read_back, make_folder, files.check_folder]
)
def test_a_tilde_is_the_home_folder(door, tmp_path, monkeypatch):
  home, here = tmp_path / "home", tmp_path / "here"
  for folder in (home, here):
    folder.mkdir()
  monkeypatch.setenv("HOME", str(home))
  monkeypatch.chdir(here)
  door("~/x")
  assert (home / "x").exists() and not any(here.iterdir())
  with pytest.raises(errors.RunError, match="would change"):
    files.check_outside("~/x/results", home / "x", "--workdir")


def test_content_is_on_the_disk_before_it_takes_the_place(
    tmp_path, monkeypatch
):
  calls = []
  for name in ("fsync", "replace"):
    real = getattr(files.os, name)
    monkeypatch.setattr(
        files.os, name,
        lambda *args, name=name, real=real: (calls.append(name), real(*args)),
    )
  files.write_text(tmp_path / "a", "text")
  assert calls == ["fsync", "replace"]


def test_private_files_are_never_readable_by_others(tmp_path):
  path = tmp_path / "a.txt"
  (tmp_path / ".a.txt.tmp").write_text("of a process that was killed")
  with files.replacing(path, private=True) as part:
    assert part.stat().st_mode & 0o777 == 0o600
    assert not part.read_text()
    part.write_text("secret")
  assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_a_file_is_refused_at_once(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(errors.RunError, match="not a folder"):
    files.check_folder(tmp_path / "file")
  files.check_folder(tmp_path / "new" / "folder")
  assert not list((tmp_path / "new" / "folder").iterdir())


def test_a_file_that_cannot_be_made_is_named(tmp_path):
  with pytest.raises(errors.RunError, match=f"{tmp_path} is a folder"):
    files.write_text(tmp_path, "x")
  for door in (open_run, read_back, workdir.make_private):
    with pytest.raises(errors.RunError, match="^/proc/x.* cannot be written"):
      door(pathlib.Path("/proc/x/y"))


def test_a_folder_that_is_only_read_is_named(tmp_path, monkeypatch):
  def refuse(**_):
    raise OSError(errno.EROFS, "Read-only", str(tmp_path / "tmpx1y2"))

  monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
  for check in (files.check_folder, files.check_new_folder):
    with pytest.raises(errors.RunError) as e:
      check(tmp_path / "new")
    assert "cannot be written (Read-only): choose" in str(e.value)
    assert "tmpx1y2" not in str(e.value)


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path):
  out = tmp_path / "a" / "out"
  with pytest.raises(RuntimeError), files.new_folder(out) as place:
    (place / "x").write_text("half")
    assert not out.exists()
    raise RuntimeError
  assert not any((tmp_path / "a").iterdir())
  left = tmp_path / "a" / ".out.tmp"  # Of a process that was killed.
  left.mkdir()
  (left / "old").touch()
  out.mkdir()  # Empty, as someone might have made it.
  with files.new_folder(out) as place:
    (place / "x").write_text("whole")
  assert [p.name for p in out.iterdir()] == ["x"] and not left.exists()
  for wrong, match in ((out, "exists already"), ("m.onnx", "names one file")):
    with pytest.raises(errors.RunError, match=match):
      with files.new_folder(wrong):
        pytest.fail("nothing is begun")
  assert (out / "x").read_text() == "whole"


def test_results_never_lie_in_a_folder_that_is_read(tmp_path):
  (tmp_path / "link").symlink_to(tmp_path / "in")
  for out in ("in", "in/new", "link/x"):
    with pytest.raises(errors.RunError, match="would change --model="):
      files.check_outside(tmp_path / out, tmp_path / "in", "--model")
  files.check_outside(tmp_path / "other", tmp_path / "in", "--model")
