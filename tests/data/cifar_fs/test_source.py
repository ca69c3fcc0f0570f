"""The classes and checksums are those published."""

import collections
import pathlib

import pytest

from episodic_dp.data.cifar_fs import builder
from episodic_dp.data.cifar_fs import source


def test_classes_are_divided_as_published():
  table = source.classes()
  names = [c.name for c in table]
  assert len(set(names)) == 100 and names == sorted(names)
  counts = collections.Counter(c.part for c in table)
  assert counts == {"train": 64, "validation": 16, "test": 20}
  sizes = collections.Counter(c.superclass for c in table)
  assert len(sizes) == 20 and set(sizes.values()) == {5}


def test_training_superclasses_hold_two_to_five_classes():
  sizes = list(source.superclass_sizes("train").values())
  assert len(sizes) == 20 and sum(sizes) == 64
  assert min(sizes) == 2 and sizes.count(5) == 3 and max(sizes) == 5
  for part in ("validation", "test"):
    assert max(source.superclass_sizes(part).values()) <= 3


def test_checksum_for_the_download_is_the_accepted_one():
  (archive,) = source.ORIGINALS.sources["binary"].values()
  assert archive.url == (
      "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
  )
  info = builder.CifarFs32.url_infos[archive.url]
  assert (info.checksum,) == archive.sha256
  assert info.filename == archive.file
  # The registry of TFDS itself names the same file.
  import tensorflow_datasets as tfds

  text = pathlib.Path(tfds.__file__).parent / "url_checksums" / "cifar100.txt"
  assert text.read_text().split() == [
      archive.url, str(int(info.size)), info.checksum, info.filename
  ]


def test_real_lists_are_those_of_the_package(real_data):
  root = pathlib.Path(real_data) / "cifar_fs"
  if not root.is_dir():
    pytest.skip(f"{root} is not there")
  lines = (root / "classes.csv").read_text().splitlines()[1:]
  short = {"train": "train", "validation": "val", "test": "test"}
  assert lines == [
      f"{i},{c.name},{c.superclass},{short[c.part]}"
      for i, c in enumerate(source.classes())
  ]
  for part, name in short.items():
    listed = (root / "splits" / f"{name}.txt").read_text().split()
    assert sorted(listed) == sorted(
        c.name for c in source.classes() if c.part == part
    )
