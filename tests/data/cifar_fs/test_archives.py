"""Archives are read without running what a pickle asks for."""

import os
import pickle

import pytest

from episodic_dp.data.cifar_fs import archives
from tests.data.cifar_fs import copies


class _Harm:

  def __reduce__(self):
    return os.system, ("echo harm",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_that_ask_for_code_are_refused_unrun(protocol, monkeypatch):
  ran = []
  monkeypatch.setattr(os, "system", ran.append)
  text = pickle.dumps({"data": _Harm()}, protocol)
  with pytest.raises(pickle.UnpicklingError, match="asks for .*only arrays"):
    archives.plain_pickle(text)
  assert not ran


@pytest.mark.parametrize(
    "name",
    ["numpy\nload", "builtins\neval", "numpy.core.multiarray\nfrombuffer"],
)
def test_no_other_name_is_looked_up(name):
  with pytest.raises(pickle.UnpicklingError, match="only arrays"):
    archives.plain_pickle(b"c" + name.encode() + b"\n.")


def test_archives_of_another_kind_are_refused(roots, tmp_path, monkeypatch):
  path = tmp_path / "some.tar.gz"
  copies.tar(path, "folder", {"train.bin": b""})
  with pytest.raises(ValueError, match="holds no file 'test.bin'"):
    archives.read("binary", {"archive": path}, list(copies.TABLE))
  with pytest.raises(ValueError, match="label 6, and there are 3 classes"):
    archive = roots["binary"] / "cifar-100-binary.tar.gz"
    archives.read("binary", {"archive": archive}, ["a", "b", "c"])
  monkeypatch.setattr(archives, "GRID", (3, 2))
  with pytest.raises(ValueError, match="64 x 96 pixels instead of 96 x 64"):
    archives.read(
        "sheets", {"test": roots["sheets"] / "test.zip"}, list(copies.TABLE)
    )
