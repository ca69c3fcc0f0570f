"""The fixed split is the published one, and the random one leaves none out."""

import collections
import pathlib

import numpy as np
import pytest

from episodic_dp.data import dataset
from episodic_dp.data.omniglot import splits


def test_random_split_covers_every_character():
  parts = splits.divide("random", np.arange(1623), None, 0)
  assert [len(c) for c in parts.values()] == [1150, 50, 423]
  everything = np.concatenate(list(parts.values()))
  np.testing.assert_array_equal(np.sort(everything), np.arange(1623))


def test_vinyals_list_is_whole():
  parts = list(splits.vinyals().values())
  counts = [parts.count(p) for p in dataset.PARTS]
  assert counts == [1028, 172, 423]


def test_real_lists_are_those_of_the_package(real_data):
  root = pathlib.Path(real_data) / "omniglot" / "splits"
  if not root.is_dir():
    pytest.skip(f"{root} is not there")
  part_of = splits.vinyals()
  for part, name in zip(dataset.PARTS, ("train", "val", "test")):
    lines = (root / f"vinyals_{name}.txt").read_text().split()
    # The list names every rotation as a class of its own. Here a character is
    # one unit, with all its drawings, and a task draws the rotation.
    characters = collections.Counter(n.rsplit("/", 1)[0] for n in lines)
    assert set(characters.values()) == {4}
    assert set(characters) == {c for c, p in part_of.items() if p == part}
