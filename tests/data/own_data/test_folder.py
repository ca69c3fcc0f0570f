"""Trees of images are listed, or refused by one sentence, without decoding."""

import logging
import os

import numpy as np
from PIL import Image
import pytest

from episodic_dp.data.own_data import folder
from tests.data import own_images


@pytest.fixture
def root(tmp_path):
  return own_images.tree(tmp_path / "mine", {"b": 2, "a": 1, "c": 3})


def test_lists_in_rising_order_and_decodes_nothing(root):
  (root / "a" / "000.png").write_bytes(b"no image")
  (root / "a" / ".hidden.png").write_bytes(b"")
  (root / "a" / "Thumbs.db").write_bytes(b"")
  (root / "a" / "SECOND.JPeG").write_bytes(b"")
  found = folder.listing(root)
  assert [c.path for c in found.classes] == [("a",), ("b",), ("c",)]
  assert [len(c.records) for c in found.classes] == [2, 2, 3]
  assert found.levels == ("class", "image") and found.shape is None
  together = np.concatenate([c.records for c in found.classes])
  assert sorted(together) == list(range(7))


def test_fingerprint_follows_names_sizes_and_times(root):
  prints = [folder.listing(root).fingerprint]
  path = root / "a" / "000.png"
  os.utime(path, ns=(1, 1))
  prints.append(folder.listing(root).fingerprint)
  path.write_bytes(path.read_bytes() + b"0")
  os.utime(path, ns=(1, 1))
  prints.append(folder.listing(root).fingerprint)
  path.rename(root / "a" / "001.png")
  prints.append(folder.listing(root).fingerprint)
  assert len(set(prints)) == 4
  assert folder.listing(root).fingerprint == prints[-1]


def test_files_that_are_no_images_are_left_out_with_one_warning(root, caplog):
  (root / "labels.csv").write_text("a,b")
  (root / "a" / "notes.txt").write_text("note")
  with caplog.at_level(logging.WARNING):
    found = folder.listing(root)
  assert [len(c.records) for c in found.classes] == [1, 2, 3]
  assert "left out 2 files" in caplog.text and "notes.txt" in caplog.text
  assert len(caplog.records) == 1


def _symbolic_file(root):
  (root / "a" / "link.png").symlink_to(root / "b" / "000.png")


def _symbolic_folder(root):
  (root / "link").symlink_to(root / "b")


def _empty_and_deeper(root):
  (root / "d" / "empty").mkdir(parents=True)


def _beside(root):
  own_images.write(root / "beside.png")


def _deeper(root):
  own_images.write(root / "d" / "e" / "000.png")


def _partly(root):
  own_images.write(root / "train" / "d" / "000.png")


@pytest.mark.parametrize(
    "spoil,text",
    [
        (_symbolic_file, "a/link.png is a symbolic link: put what it points"),
        (_symbolic_folder, "mine/link is a symbolic link"),
        (_empty_and_deeper, "empty folder d/empty is 2 folders deep in"),
        (_beside, "beside.png lies beside folders"),
        (_deeper, "a/000.png is 1 folder deep and .*d/e/000.png 2 in"),
        (_partly, "has the folders a, b, c, train: give it train, validation"),
    ],
)
def test_refuses_what_no_class_holds(root, spoil, text):
  spoil(root)
  with pytest.raises(ValueError, match=text):
    folder.listing(root)


def test_a_folder_without_an_image_is_an_empty_unit(root, caplog):
  (root / "empty").mkdir()
  (root / "text").mkdir()
  (root / "text" / "a.txt").write_text("")
  (root / "b" / "000.png").unlink()
  (root / "b" / "001.png").unlink()
  with caplog.at_level(logging.WARNING):
    found = folder.listing(root)
  assert found.declared
  assert [(c.path, len(c.records)) for c in found.classes] == [
      (("a",), 1), (("b",), 0), (("c",), 3), (("empty",), 0), (("text",), 0)
  ]
  assert "3 folders of" in caplog.text and "example, such as b" in caplog.text


def test_a_group_without_a_class_is_an_empty_unit(tmp_path):
  root = own_images.tree(tmp_path / "mine", {"ann/cat": 2, "ann/dog": 1})
  (root / "bob").mkdir()
  found = folder.listing(root)
  assert found.levels == ("group", "class", "image")
  assert [c.path for c in found.classes] == [
      ("ann", "cat"), ("ann", "dog"), ("bob",)
  ]


def test_refuses_a_folder_of_one_class_and_an_empty_one(tmp_path):
  own_images.write(tmp_path / "flat" / "000.png")
  with pytest.raises(ValueError, match="flat/000.png is in no class"):
    folder.listing(tmp_path / "flat")
  (tmp_path / "empty").mkdir()
  with pytest.raises(ValueError, match="empty holds no file that is read"):
    folder.listing(tmp_path / "empty")


def test_levels_fit_the_depth(root):
  match = "1 folder deep.*the --data_dir that has.*levels=class/image$"
  with pytest.raises(ValueError, match=match):
    folder.listing(root, ("group", "class", "image"))
  found = folder.listing(root, ("sort", "photo"))
  assert found.levels == ("sort", "photo")


def test_reads_the_files_it_listed(root):
  read = folder.listing(root).reader()
  found = folder.listing(root)
  record = int(found.classes[2].records[1])  # Class c was written third.
  image = read(record)
  assert image.image
  np.testing.assert_array_equal(image.values[..., 0], own_images.pixels(201))


def test_pages_are_examples_and_tables_only_where_nothing_else_is(
    root, tmp_path, caplog
):
  pages = [Image.fromarray(own_images.pixels(k)) for k in range(3)]
  stack = root / "a" / "stack.tiff"
  pages[0].save(stack, save_all=True, append_images=pages[1:])
  (root / "labels.csv").write_text("file,label")
  found = folder.listing(root)
  read, records = found.reader(), found.classes[0].records
  assert "left out 1 file of" in caplog.text and "labels.csv" in caplog.text
  names = [found.name_of(record) for record in records]
  assert names[-3:] == [f"page {k} of {stack}" for k in (1, 2, 3)]
  for k, record in enumerate(records[-3:]):
    np.testing.assert_array_equal(
        read(record).values[..., 0], own_images.pixels(k)
    )
  tables = tmp_path / "tables"
  for k in range(3):
    (tables / f"c{k}").mkdir(parents=True)
    (tables / f"c{k}" / "a.csv").write_text(f"{k},1,2")
  found = folder.listing(tables)
  assert [len(c.records) for c in found.classes] == [1, 1, 1]
  assert found.reader()(2).values.tolist() == [2, 1, 2]
