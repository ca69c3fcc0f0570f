"""Caches are complete or absent, and one process at a time prepares."""

from concurrent import futures
import pathlib
import threading
import time

import numpy as np
import pytest

from episodic_dp.data import cache
from episodic_dp.data import originals


def test_a_failed_write_keeps_the_old_file(tmp_path):
  path = tmp_path / "new" / "cache.npy"
  path.parent.mkdir()
  (path.parent / ".cache.npy.tmp").write_bytes(b"left by a killed process")
  with cache.new_mapped_array(path, (1000, 2)) as array:
    array[:] = 3
  with pytest.raises(OSError, match="disk full"):
    with cache.new_mapped_array(path, (5,)):
      raise OSError("disk full")
  found = cache.map_array(path)
  assert found.shape == (1000, 2) and (found == 3).all()
  assert [p.name for p in path.parent.iterdir()] == ["cache.npy"]


def test_damaged_arrays_are_not_accepted(tmp_path):
  path = tmp_path / "cache.npy"
  assert cache.map_array(path) is None
  np.save(path, np.full(1000, 3))
  whole = path.read_bytes()
  for damaged in (b"", b"text", whole[:-1], whole + b"0"):
    path.write_bytes(damaged)
    assert cache.map_array(path) is None
  np.save(path, np.asarray([{}], object), allow_pickle=True)
  assert cache.map_array(path) is None
  with path.open("wb") as f:
    np.savez(f, a=np.zeros(3))
  assert cache.map_array(path) is None


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
