"""Caches are complete or absent, and one process at a time prepares."""

from concurrent import futures
import pathlib
import threading
import time

import numpy as np
import pytest

from episodic_dp.data import cache
from episodic_dp.data import originals


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / "new" / "cache.npz"
  path.parent.mkdir()
  (path.parent / ".cache.npz.tmp").write_bytes(b"left by a killed process")
  cache.save_arrays(path, a=np.full(1000, 3), names=np.asarray(["x", "y"]))
  found = cache.read_arrays(path)
  assert (found["a"] == 3).all() and found["names"].tolist() == ["x", "y"]

  def half(f, **unused):
    f.write(b"half")
    raise OSError("disk full")

  monkeypatch.setattr(np, "savez", half)
  with pytest.raises(OSError, match="disk full"):
    cache.save_arrays(path, a=np.zeros(3))
  assert (cache.read_arrays(path)["a"] == 3).all()
  assert [p.name for p in path.parent.iterdir()] == ["cache.npz"]


def test_damaged_arrays_are_not_accepted(tmp_path):
  path = tmp_path / "cache.npz"
  cache.save_arrays(path, a=np.full(1000, 3))
  whole = path.read_bytes()
  for damaged in (b"", b"text", whole[:-1], whole[:2000] + b"?" + whole[2001:]):
    path.write_bytes(damaged)
    assert cache.read_arrays(path) is None
  np.savez(path, a=np.asarray([{}], object))
  assert cache.read_arrays(path) is None


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


def test_the_cache_lies_where_it_is_told(monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", "elsewhere")
  assert originals.Where(cache_dir="here").cache == pathlib.Path("here")
  assert originals.Where().cache == pathlib.Path("elsewhere")
  monkeypatch.delenv("TFDS_DATA_DIR")
  default = pathlib.Path.home() / "tensorflow_datasets"
  assert originals.Where().cache == default
