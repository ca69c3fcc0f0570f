"""Caches are complete or absent, and one process at a time prepares."""

from concurrent import futures
import pathlib
import threading
import time

import numpy as np
import pytest

from episodic_dp.data import cache
from episodic_dp.data import originals


def mapped(path, write=lambda: None):
  """Map an array of 1000 rows; AssertionError if it was not written."""
  return cache.mapped_array(path, lambda a: len(a) == 1000, write)


def test_a_failed_write_keeps_the_old_file(tmp_path):
  path = tmp_path / "new" / "cache.npy"
  path.parent.mkdir()
  (path.parent / ".cache.npy.tmp").write_bytes(b"left by a killed process")
  with pytest.raises(AssertionError):
    mapped(path)
  with cache.new_mapped_array(path, (1000, 2)) as array:
    array[:] = 3
  with pytest.raises(OSError, match="disk full"):
    with cache.new_mapped_array(path, (5,)):
      raise OSError("disk full")
  assert (mapped(path) == 3).all()
  assert not list(path.parent.glob("*.tmp")) + list(path.parent.glob(".*"))


def test_damaged_arrays_are_not_accepted(tmp_path):
  path, other = tmp_path / "cache.npy", tmp_path / "other"
  np.save(path, np.full(1000, 3))
  whole, damaged = path.read_bytes(), [b"", b"text"]
  for write, array in (
      (np.savez, np.zeros(1000)), (np.save, np.full(1000, {})),
  ):
    with other.open("wb") as f:
      write(f, array, allow_pickle=True)
    damaged.append(other.read_bytes())
  for content in (*damaged, whole[:-1], whole + b"0"):
    path.write_bytes(content)
    with pytest.raises(AssertionError, match="was written a moment ago"):
      mapped(path)
  path.write_bytes(whole)
  assert len(mapped(path)) == 1000


def test_two_starts_write_once(tmp_path):
  path, written, started = tmp_path / "new" / "x.npy", [], threading.Event()

  def write():
    started.set()
    time.sleep(0.2)
    written.append(np.save(path, np.zeros(1000)))

  with futures.ThreadPoolExecutor(2) as pool:
    first = pool.submit(mapped, path, write)
    started.wait(10)
    second = pool.submit(mapped, path, write)
    assert len(first.result()) == len(second.result()) == 1000
  assert len(written) == 1


def test_the_cache_lies_where_it_is_told(monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", "elsewhere")
  assert originals.Where(cache_dir="here").cache == pathlib.Path("here")
  assert originals.Where().cache == pathlib.Path("elsewhere")
  monkeypatch.delenv("TFDS_DATA_DIR")
  default = pathlib.Path.home() / "tensorflow_datasets"
  assert originals.Where().cache == default
