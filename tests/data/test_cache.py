"""Caches are complete or absent, and one process at a time prepares."""

from concurrent import futures
import pathlib
import threading
import time

import numpy as np
import pytest

from episodic_dp.data import cache


def _save(path, value):
  cache.save_arrays(path, a=np.full(1000, value), names=np.asarray(["x", "y"]))


def test_arrays_come_back(tmp_path):
  path = tmp_path / "new" / "cache.npz"
  _save(path, 3)
  a, names = cache.read_arrays(path, ("a", "names"))
  assert (a == 3).all() and names.tolist() == ["x", "y"]
  assert [p.name for p in path.parent.iterdir()] == ["cache.npz"]


def test_failed_write_keeps_what_was_there(tmp_path, monkeypatch):
  path = tmp_path / "cache.npz"
  _save(path, 3)

  def half(f, **unused):
    f.write(b"half")
    raise OSError("disk full")

  monkeypatch.setattr(np, "savez", half)
  with pytest.raises(OSError, match="disk full"):
    _save(path, 4)
  assert (cache.read_arrays(path, ("a",))[0] == 3).all()
  assert [p.name for p in tmp_path.iterdir()] == ["cache.npz"]


def test_leftovers_of_a_killed_write_are_removed(tmp_path):
  path = tmp_path / "cache.npz"
  left = tmp_path / ".cache.npz.tmp"
  left.write_bytes(b"half")
  assert cache.read_arrays(path, ("a",)) is None
  _save(path, 3)
  assert not left.exists()


def test_damaged_arrays_are_not_accepted(tmp_path):
  path = tmp_path / "cache.npz"
  _save(path, 3)
  whole = path.read_bytes()
  assert cache.read_arrays(path, ("a", "b")) is None
  for damaged in (b"", b"text", whole[:-1], whole[:2000] + b"?" + whole[2001:]):
    path.write_bytes(damaged)
    assert cache.read_arrays(path, ("a",)) is None
  np.savez(path, a=np.asarray([{}], object))
  assert cache.read_arrays(path, ("a",)) is None


def test_lock_admits_one_at_a_time(tmp_path):
  path = tmp_path / "folder" / "lock"
  order = []

  def second():
    with cache.lock(path):
      order.append("second")

  with cache.lock(path):
    waiting = threading.Thread(target=second)
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    order.append("first")
  waiting.join(timeout=10)
  assert order == ["first", "second"]


def test_cache_lies_where_it_is_told(monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", "elsewhere")
  assert cache.root("here") == pathlib.Path("here")
  assert cache.root(None) == pathlib.Path("elsewhere")
  monkeypatch.delenv("TFDS_DATA_DIR")
  assert cache.root(None) == pathlib.Path.home() / "tensorflow_datasets"


def test_two_starts_make_once(tmp_path):
  made, started = [], threading.Event()

  def make():
    started.set()
    time.sleep(0.2)
    made.append("whole")
    return made[-1]

  def start():
    return cache.read_or_make(
        tmp_path / "new", lambda: made[-1] if made else None, make
    )

  with futures.ThreadPoolExecutor(2) as pool:
    first = pool.submit(start)
    started.wait()
    second = pool.submit(start)
    assert first.result() == second.result() == "whole"
  assert made == ["whole"]
