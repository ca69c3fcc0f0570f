"""The classes and images are those published."""

import collections
import pathlib

import pytest

from episodic_dp.data import dataset
from episodic_dp.data.mini_imagenet import source


def test_classes_and_images_are_those_published():
  table = source.classes()
  assert len({c.wnid for c in table}) == 100
  counts = collections.Counter(c.part for c in table)
  assert counts == {"train": 64, "validation": 16, "test": 20}
  names = [name for c in table for name in c.images]
  assert len(set(names)) == 60_000
  assert all(len(c.images) == 600 for c in table)
  assert all(name.startswith(c.wnid) for c in table for name in c.images)
  # Parts are contiguous, so that they are slices of one mapped array.
  order = [dataset.PARTS.index(c.part) for c in table]
  assert order == sorted(order)


def test_real_lists_are_those_of_the_package(real_data):
  root = pathlib.Path(real_data) / "mini_imagenet" / "splits"
  if not root.is_dir():
    pytest.skip(f"{root} is not there")
  short = {"train": "train", "validation": "val", "test": "test"}
  for part, name in short.items():
    chosen = [c for c in source.classes() if c.part == part]
    lines = (root / f"{name}.csv").read_text().split()
    assert lines[1:] == [
        f"{image}.jpg,{c.wnid}" for c in chosen for image in c.images
    ]
    wnids = (root / f"{name}_wnids.txt").read_text().split()
    assert wnids == [c.wnid for c in chosen]
