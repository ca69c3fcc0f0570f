"""Folders and NPZ files of one's own become splits with a hierarchy."""

import logging
import os
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data.own_data import load as own_data
from episodic_dp.data.own_data import rows
from tests.data import own_images

CLASSES = {f"class{k}": 3 + k % 2 for k in range(7)}


@pytest.fixture
def load(tmp_path):
  def load(source, **options):
    return data.load(
        "own_data", data_dir=source, cache_dir=tmp_path / "cache", **options
    )

  return load


@pytest.fixture
def folder(tmp_path):
  return own_images.tree(tmp_path / "mine", CLASSES)


def rows_by_class(dataset):
  """name of the class -> its images uint8[n, H, W, C]."""
  hierarchy = dataset.hierarchy
  ends = np.cumsum(hierarchy.child_counts(hierarchy.depth - 1))[:-1]
  names = hierarchy.names[hierarchy.depth - 2]
  return dict(zip(names, np.split(dataset.images, ends)))


def test_every_image_is_in_its_class_and_every_class_in_one_part(load, folder):
  splits = load(folder, size=6)
  found = {}
  for part in ("train", "validation", "test"):
    dataset = getattr(splits, part)
    assert dataset.hierarchy.levels == ("class", "image")
    own = rows_by_class(dataset)
    assert not own.keys() & found.keys()
    found |= own
  assert found.keys() == CLASSES.keys()
  for k, (name, count) in enumerate(CLASSES.items()):
    expected = [own_images.pixels(100 * k + i) for i in range(count)]
    np.testing.assert_array_equal(found[name][..., 0], expected)
  assert len(rows_by_class(splits.train)) == 5  # 0.6, and one each is left.
  assert isinstance(splits.train.images, np.memmap)


def test_three_levels_keep_groups_whole(load, tmp_path):
  root = own_images.tree(
      tmp_path / "mine",
      {f"writer{w}/{c}": 2 + w % 2 for w in range(5) for c in "ab"},
  )
  splits = load(root, size=6, shares=(1, 1, 1))
  levels = ("group", "class", "image")
  sizes = []
  for part in (splits.train, splits.validation, splits.test):
    assert part.hierarchy.levels == levels
    sizes += part.hierarchy.child_counts(0).tolist()
    assert part.hierarchy.names[1].tolist() == (
        ["a", "b"] * part.hierarchy.num_units(0)
    )
  assert sizes == [1, 2, 2]
  named = load(root, levels=("writer", "letter", "drawing"), size=6)
  assert named.train.hierarchy.levels == ("writer", "letter", "drawing")


def test_parts_that_the_folder_names(load, tmp_path):
  root = tmp_path / "mine"
  for k, part in enumerate(("train", "validation", "test")):
    own_images.tree(root / part, {f"{part}{c}": 2 for c in range(k + 1)})
  splits = load(root)
  assert [
      p.hierarchy.names[0].tolist()
      for p in (splits.train, splits.validation, splits.test)
  ] == [
      ["train0"], ["validation0", "validation1"], ["test0", "test1", "test2"]
  ]
  with pytest.raises(ValueError, match=r"leave out shares=\(1, 1, 1\)"):
    load(root, shares=(1, 1, 1))
  own_images.tree(root / "test", {"train0": 1})
  with pytest.raises(ValueError, match="'train0' .* is in train and in test"):
    load(root)


def test_division_is_public_and_moves_no_other_unit(load, tmp_path):
  """Taking a class away moves at most the classes at a border."""
  names = {f"c{k:02d}": 1 for k in range(20)}
  root = own_images.tree(tmp_path / "mine", names)

  def part_of(root, **options):
    found = own_data.survey(root, **options)
    return {c.path: p for p, classes in found.parts.items() for c in classes}

  before = part_of(root)
  assert part_of(root) == before != part_of(root, seed=1)
  assert [list(before.values()).count(p) for p in ("train", "test")] == [12, 4]
  (root / "c07" / "000.png").unlink()
  (root / "c07").rmdir()
  after = part_of(root)
  assert sum(before[path] != part for path, part in after.items()) <= 2


def test_decoded_once_and_again_when_something_changes(
    load, folder, tmp_path, monkeypatch
):
  count = []
  row = rows.Form.row
  monkeypatch.setattr(
      rows.Form, "row", lambda form, *of: count.append(of) or row(form, *of)
  )
  total = sum(CLASSES.values())
  for options, expected in (
      ({}, total),
      ({}, 0),
      ({"size": 9}, total),
      ({"color": True}, total),
      ({"seed": 5}, total),
      ({}, 0),
  ):
    count.clear()
    assert load(folder, **options).train.images.shape[1] in (9, 28)
    assert len(count) == expected, options
  own_images.write(folder / "class0" / "000.png", 999, side=7)
  count.clear()
  load(folder)
  assert len(count) == total
  cache = tmp_path / "cache" / "own_data"
  assert stat.S_IMODE(cache.stat().st_mode) == 0o700
  for path in cache.glob("*.npy"):
    path.write_bytes(path.read_bytes()[:-1])
  count.clear()
  load(folder)
  assert len(count) == total


KILLED = """
import os
import sys
import time
from episodic_dp.data.own_data import load as own_data
from episodic_dp.data.own_data import rows

def slow(*unused):
  os.write(1, b"decoding\\n")
  time.sleep(60)

rows.Form.row = slow
own_data.load(data_dir=sys.argv[1], cache_dir=sys.argv[2])
"""


def test_killed_preparation_leaves_nothing_half_made(load, folder, tmp_path):
  process = subprocess.Popen(
      [sys.executable, "-c", KILLED, folder, tmp_path / "cache"],
      stdout=subprocess.PIPE,
  )
  assert process.stdout.readline() == b"decoding\n"
  process.send_signal(signal.SIGKILL)
  process.wait()
  cache = tmp_path / "cache" / "own_data"
  assert len(list(cache.glob(".*.npy.tmp"))) == 1
  assert not list(cache.glob("*.npy"))
  assert load(folder).train.images.shape[1:] == (28, 28, 1)
  assert not list(cache.glob(".*.npy.tmp"))


def test_broken_image_ends_the_preparation(load, folder, tmp_path):
  path = folder / "class3" / "001.png"
  path.write_bytes(path.read_bytes()[:60])
  with pytest.raises(ValueError, match="class3/001.png cannot be read as"):
    load(folder)
  assert not list((tmp_path / "cache" / "own_data").glob("*.npy*"))


def test_full_disk_is_said_at_once(load, folder, monkeypatch):
  def full(*unused):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "posix_fallocate", full)
  with pytest.raises(ValueError, match="No space left on device.*make room"):
    load(folder)


def test_a_cache_that_cannot_be_written_is_named(load, folder, tmp_path):
  (tmp_path / "cache").write_text("a file")
  with pytest.raises(ValueError, match="own_data cannot be written.*another"):
    load(folder)


def test_copies_are_counted(load, folder, caplog):
  own_images.write(folder / "class1" / "again.png", 0)  # That of class 0.
  with caplog.at_level(logging.WARNING):
    load(folder)
  assert "1 rows" in caplog.text and "same values" in caplog.text


def test_npz_is_the_same_as_a_folder(load, tmp_path):
  arrays = own_images.arrays()
  np.savez(tmp_path / "own.npz", **arrays)
  splits = load(tmp_path / "own.npz")
  parts = (splits.train, splits.validation, splits.test)
  assert [p.hierarchy.num_units(0) for p in parts] == [4, 1, 1]
  for part in parts:
    for name, images in rows_by_class(part).items():
      expected = arrays["images"][arrays["class"] == int(name)]
      np.testing.assert_array_equal(images[..., 0], expected)
  # A list, as in a config.json, finds what was decoded for a tuple.
  cached = list((tmp_path / "cache" / "own_data").glob("*.npy"))
  load(tmp_path / "own.npz", levels=("class", "image"))
  load(tmp_path / "own.npz", levels=["class", "image"])
  assert list((tmp_path / "cache" / "own_data").glob("*.npy")) == cached
  # Its own size and colour unless others are asked for.
  assert splits.train.image_shape == (6, 6, 1)
  assert load(
      tmp_path / "own.npz", size=8, color=True
  ).train.image_shape == (8, 8, 3)


def test_features_are_the_same_from_files_and_from_an_npz(load, tmp_path):
  """Of every shape; scaled by what is given, which is in the cache's name."""
  labels = np.arange(24) // 4
  for shape in ((5,), (7, 2), (4, 4, 1)):
    values = np.random.default_rng(0).normal(size=(24, *shape))
    root, path = tmp_path / f"mine{len(shape)}", tmp_path / "own.npz"
    for k, value in enumerate(values):
      (root / str(labels[k])).mkdir(parents=True, exist_ok=True)
      np.save(root / str(labels[k]) / f"{k:02d}.npy", value)
    np.savez(path, features=values, **{"class": labels})
    scaled = load(path, offset=1, scale=(2,), clip=(-3, 0)).train
    for source in (path, root):
      train = load(source, shares=(1, 1, 1)).train
      assert train.image_shape == shape and train.images.dtype == np.float32
      for name, found in rows_by_class(train).items():
        np.testing.assert_array_equal(
            found, values[labels == int(name)].astype(np.float32)
        )
    np.testing.assert_allclose(
        scaled.images,
        np.clip((load(path).train.images - 1) / 2, -3, 0),
        rtol=1e-6,
    )
  assert "of shape 4 x 4 x 1" in train.description


def test_a_value_that_is_not_finite_is_named(load, tmp_path):
  values = np.zeros((12, 3))
  values[7, 1] = np.inf
  np.savez(tmp_path / "own.npz", features=values, **{"class": np.arange(12)})
  with pytest.raises(ValueError, match=r"row 7 of .*own.npz holds inf .*\[1\]"):
    load(tmp_path / "own.npz")


def test_sixteen_bits_reach_the_rows(load, tmp_path):
  images = np.random.default_rng(0).integers(0, 2**16, (12, 6, 6), np.uint16)
  np.savez(tmp_path / "own.npz", images=images, **{"class": np.arange(12) // 2})
  train = load(tmp_path / "own.npz").train
  assert train.images.dtype == np.float32
  for name, found in rows_by_class(train).items():
    np.testing.assert_allclose(
        found[..., 0] * 65535, images[2 * int(name) :][:2], rtol=1e-6
    )
  shallow = load(tmp_path / "own.npz", depth=8).train
  assert shallow.images.dtype == np.uint8


@pytest.mark.parametrize(
    "options,text",
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**32}, "seed=4294967296"),
        ({"size": 0}, "size=0"),
        ({"size": True}, "size=True"),
        ({"shares": (1, 0, 1)}, r"shares=\(1, 0, 1\)"),
        ({"shares": (0.5, 0.5)}, r"shares=\(0.5, 0.5\)"),
        ({"levels": "class"}, "levels='class' must be a tuple of names"),
        ({"levels": ("episode", "image")}, "'episode' is not allowed"),
    ],
)
def test_wrong_options_are_named(load, folder, options, text):
  with pytest.raises(ValueError, match=text):
    load(folder, **options)


def test_wrong_places_are_named(load, tmp_path):
  with pytest.raises(FileNotFoundError, match="needs data_dir"):
    load(None)
  with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
    load(tmp_path / "nowhere")
  (tmp_path / "own.tar").write_bytes(b"")
  with pytest.raises(ValueError, match="own.tar is neither a folder nor"):
    load(tmp_path / "own.tar")
  root = own_images.tree(tmp_path / "two", {"a": 1, "b": 1})
  with pytest.raises(ValueError, match="2 units of level 'class', too few"):
    load(root)


def _emptied(root, tmp_path, removed):
  """A copy of a folder, less one image."""
  copy = tmp_path / "copy"
  shutil.copytree(root, copy)
  (copy / removed).unlink()
  return copy


def test_the_last_image_leaves_and_its_unit_stays(load, tmp_path):
  """Nothing but the image differs: not the division, not the other sizes."""
  sizes = {f"g{g}/c{c}": 2 if (g, c) != (3, 1) else 1 for g in range(6)
           for c in range(2)}
  root = own_images.tree(tmp_path / "mine", sizes)
  copy = _emptied(root, tmp_path, "g3/c1/000.png")
  before, after = (own_data.survey(r).hierarchies for r in (root, copy))
  for part, tree in before.items():
    assert [str(n) for n in tree.names[1]] == [
        str(n) for n in after[part].names[1]
    ]
    fewer = tree.child_counts(2) - after[part].child_counts(2)
    held = tree.names[0][tree.parents(1)] == "g3"
    assert fewer.tolist() == (held & (tree.names[1] == "c1")).astype(
        int
    ).tolist()
    assert not after[part].units_from_records
  # Both load; what was decoded is by class as before.
  assert load(copy).train.hierarchy.num_units(1) == (
      load(root).train.hierarchy.num_units(1)
  )


def test_an_npz_without_units_says_that_it_has_none(tmp_path):
  for units in ({}, {"units": np.arange(9)}):
    np.savez(tmp_path / "own.npz", **own_images.arrays(), **units)
    found = own_data.survey(tmp_path / "own.npz")
    for tree in found.hierarchies.values():
      assert tree.units_from_records == (not units)
    total = sum(t.num_units(0) for t in found.hierarchies.values())
    assert total == (9 if units else 6)


def test_a_part_of_empty_units_alone_is_refused(tmp_path):
  root = own_images.tree(tmp_path / "mine", {"a": 1})
  (root / "b").mkdir()
  (root / "c").mkdir()
  with pytest.raises(ValueError, match="only for .*: give more units images"):
    own_data.survey(root)


def test_a_seed_that_leaves_no_part_empty_is_found(tmp_path):
  root = own_images.tree(tmp_path / "mine", {"a": 1, "b": 1, "c": 1, "d": 1})
  (root / "empty").mkdir()
  told = []
  for seed in range(10):
    try:
      own_data.survey(root, seed=seed)
    except ValueError as e:
      told.append(str(e))
  found = {int(text.partition("data.options.seed=")[2]) for text in told}
  assert len(told) in range(1, 10) and len(found) == 1
  own_data.survey(root, seed=found.pop())
