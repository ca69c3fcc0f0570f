"""A file is the old one or the new one, never half of one."""

import errno
import json
import os

import pytest

from episodic_dp.output import files


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside(tmp_path):
  path = tmp_path / "a.json"
  files.write_json(path, {"a": 1})
  with pytest.raises(ValueError):
    files.write_json(path, {"a": float("inf")})
  with pytest.raises(RuntimeError):
    with files.replacing(path) as beside:
      beside.write_text("half")
      raise RuntimeError
  assert json.loads(path.read_text()) == {"a": 1}
  assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_text_is_utf_8(tmp_path):
  path = tmp_path / "a" / "b.txt"
  files.write_text(path, "ε ≤ 1")
  assert path.read_bytes().decode("utf-8") == "ε ≤ 1"


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
  with files.replacing(path, private=True) as beside:
    assert beside.stat().st_mode & 0o777 == 0o600
    assert not beside.read_text()
    beside.write_text("secret")
  assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_in_the_way_is_one_sentence_and_keeps_its_number(tmp_path):
  (tmp_path / "file").write_text("")
  match = f"move the file {tmp_path / 'file'} away, or choose another place"
  with pytest.raises(ValueError, match=match) as caught:
    files.write_text(tmp_path / "file" / "a", "text")
  assert isinstance(caught.value, OSError)
  assert caught.value.errno in (errno.EEXIST, errno.ENOTDIR)
  assert str(caught.value).startswith(str(tmp_path))


def test_a_folder_that_is_a_file_is_refused_at_once(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match="cannot be written"):
    files.check_folder(tmp_path / "file")
  files.check_folder(tmp_path / "new" / "folder")
  assert not list((tmp_path / "new" / "folder").iterdir())


@pytest.mark.parametrize(
    "number, remedy",
    [(errno.ENOSPC, "make room on its disk"), (errno.EFBIG, "ulimit -f")],
)
def test_a_write_that_fails_names_what_helps(tmp_path, number, remedy):
  """The error of a write has no file name."""
  path = tmp_path / "file"
  path.write_text("before")
  with pytest.raises(files.WriteError, match=f"{path} .*{remedy}") as caught:
    with files.replacing(path) as beside:
      beside.write_text("half")
      raise OSError(number, os.strerror(number))
  assert caught.value.errno == number and "\n" not in str(caught.value)
  assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_file_stays_what_it_is(tmp_path):
  with pytest.raises(FileNotFoundError, match="elsewhere") as caught:
    with files.replacing(tmp_path / "file"):
      (tmp_path / "elsewhere").read_text()
  assert not isinstance(caught.value, files.WriteError)


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
  with pytest.raises(files.WriteError, match="there already"):
    with files.new_folder(out):
      pytest.fail("nothing is begun")
  assert (out / "x").read_text() == "whole"


def test_a_new_folder_in_a_file_is_told(tmp_path):
  (tmp_path / "file").touch()
  with pytest.raises(files.WriteError, match="file cannot be written"):
    files.check_new_folder(tmp_path / "file" / "out")
  match = f"move the file {tmp_path / 'file'} away"
  with pytest.raises(files.WriteError, match=match):
    files.check_new_folder(tmp_path / "file" / "a" / "out")
