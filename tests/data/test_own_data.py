"""Own folders, tables and NPZ files: splits with a tree, or one sentence.

None is decoded before its units are known.
"""

import os
import shutil
import stat
import time
import tracemalloc
import types
import zipfile

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import models
from episodic_dp.data.own_data import load as own_data
from episodic_dp.data.own_data import npz
from episodic_dp.data.own_data import rows
from episodic_dp.data.own_data import trees
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from tests.data import own_images
from tests.refusals import assert_refused

CLASSES = {f"class{k}": 3 + k % 2 for k in range(7)}
PARTS = ("train", "validation", "test")


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


def survey(source, **options):
  return own_data.survey(source, data.read_options("own_data", options))


def rows_by_class(dataset):
  """name of the class -> its images uint8[n, H, W, C]."""
  hierarchy = dataset.hierarchy
  ends = np.cumsum(hierarchy.child_counts(hierarchy.depth - 1))[:-1]
  names = hierarchy.names[hierarchy.depth - 2]
  return dict(zip(names, np.split(dataset.images, ends)))


# Splits -----------------------------------------------------------------------


def test_every_image_is_in_its_class_and_every_class_in_one_part(load, folder):
  splits = load(folder, size=6)
  found = {}
  for part in PARTS:
    own = rows_by_class(getattr(splits, part))
    assert not own.keys() & found.keys()
    found |= own
  for k, (name, count) in enumerate(CLASSES.items()):
    expected = [own_images.pixels(100 * k + i) for i in range(count)]
    np.testing.assert_array_equal(found[name][..., 0], expected)
  assert found.keys() == CLASSES.keys()
  assert len(rows_by_class(splits.train)) == 5  # 0.6, and one each is left.
  assert isinstance(splits.train.images, np.memmap)
  assert "255" not in repr(splits) and "array" not in repr(splits)


def assert_survey_refused(match, *arguments, **options):
  """Require one sentence that says what is wrong."""
  assert_refused(DataError, match, survey, *arguments, **options)


def test_groups_stay_whole_and_folders_may_name_the_parts(tmp_path):
  root = own_images.tree(
      tmp_path / "groups",
      {f"writer{w}/{c}": 2 + w % 2 for w in range(5) for c in "ab"},
  )
  found = survey(root, shares=(1, 1, 1), levels=("writer", "letter", "image"))
  trees_ = found.hierarchies.values()
  assert [t.num_units(0) for t in trees_] == [1, 2, 2]
  assert all(t.child_counts(1).tolist() == [2] * t.num_units(0) for t in trees_)
  root = tmp_path / "parts"
  for k, part in enumerate(PARTS):
    own_images.tree(root / part, {f"{part}{c}": 2 for c in range(k + 1)})
  found = survey(root).hierarchies
  assert [t.num_units(0) for t in found.values()] == [1, 2, 3]
  assert_survey_refused("leave out shares", root, shares=(1, 1, 1))
  own_images.tree(root / "test", {"train0": 1})
  assert_survey_refused("'train0' .* in train and in test", root)


def test_division_is_public_and_moves_no_other_unit(tmp_path):
  root = own_images.tree(tmp_path / "mine", {f"c{k:02d}": 1 for k in range(20)})

  def part_of(**options):
    found = survey(root, **options)
    return {c.path: p for p, classes in found.parts.items() for c in classes}

  before = part_of()
  assert part_of() == before != part_of(seed=1)
  assert [list(before.values()).count(p) for p in ("train", "test")] == [12, 4]
  shutil.rmtree(root / "c07")
  after = part_of()
  assert sum(before[path] != part for path, part in after.items()) <= 2


def test_the_last_image_leaves_and_its_unit_stays(load, tmp_path):
  """Only the image differs: neither the division nor the other sizes."""
  sizes = {f"g{g}/c{c}": 2 - ((g, c) == (3, 1)) for g in range(6)
           for c in range(2)}
  root = own_images.tree(tmp_path / "mine", sizes)
  copy = tmp_path / "copy"
  shutil.copytree(root, copy)
  (copy / "g3/c1/000.png").unlink()
  before, after = (survey(r).hierarchies for r in (root, copy))
  for part, tree in before.items():
    assert tree.names[1].tolist() == after[part].names[1].tolist()
    fewer = tree.child_counts(2) - after[part].child_counts(2)
    held = tree.names[0][tree.parents(1)] == "g3"
    assert (fewer == held & (tree.names[1] == "c1")).all()
    assert not after[part].units_from_records
  units = (load(r).train.hierarchy.num_units(1) for r in (copy, root))
  assert len(set(units)) == 1


def test_too_few_units_are_refused(tmp_path):
  root = own_images.tree(tmp_path / "two", {"a": 1, "b": 1})
  assert_survey_refused("2 units of level 'class', too few", root)
  (root / "b" / "000.png").unlink()
  (root / "c").mkdir()
  assert_survey_refused("no example for .*another seed", root)


# Folders ----------------------------------------------------------------------


def test_a_tree_is_listed_in_order_and_nothing_is_decoded(folder, caplog):
  (folder / "class0" / "000.png").write_bytes(b"no image")
  (folder / "class0" / ".hidden.png").write_bytes(b"")
  (folder / "class0" / "Thumbs.db").write_bytes(b"")
  (folder / "class0" / "SECOND.JPeG").write_bytes(b"")
  (folder / "labels.csv").write_text("a,b")
  (folder / "class1" / "notes.txt").write_text("note")
  (folder / "empty").mkdir()
  found = trees.folder_listing(folder)
  assert [c.path for c in found.classes] == [
      *((name,) for name in CLASSES), ("empty",)
  ]
  counts = [len(c.records) for c in found.classes]
  assert counts == [CLASSES["class0"] + 1, *list(CLASSES.values())[1:], 0]
  assert found.levels == ("class", "image") and found.declared
  assert "left out 2 of the files" in caplog.text and "notes.txt" in caplog.text
  assert "counted 1 of the folders" in caplog.text
  example = found.reader()(int(found.classes[2].records[1]))
  np.testing.assert_array_equal(
      example.values[..., 0], own_images.pixels(201)
  )


def test_the_fingerprint_follows_names_and_content(folder):
  path = folder / "class0" / "000.png"

  def fingerprint():
    return own_data.fingerprint(trees.folder_listing(folder).files)

  first = fingerprint()
  os.utime(path, ns=(1, 1))
  assert fingerprint() == first
  prints = {first}
  for change in (
      lambda: path.write_bytes(path.read_bytes()[:-1] + b"0"),
      lambda: path.rename(path.with_name("009.png")),
      (folder / "class1" / "000.png").unlink,
  ):
    change()
    prints.add(fingerprint())
  assert len(prints) == 4


@pytest.mark.parametrize(
    "spoil,text",
    [
        (lambda r: (r / "class0" / "x.png").symlink_to(r), "a symbolic link"),
        (lambda r: (r / "link").symlink_to(r / "class1"), "a symbolic link"),
        (lambda r: (r / "d" / "empty").mkdir(parents=True), "empty is at .* 2"),
        (lambda r: own_images.write(r / "beside.png"), "is in no folder"),
        (lambda r: own_images.write(r / "class0" / "d" / "0.png"),
         "000.png is beside folders"),
        (lambda r: own_images.write(r / "d" / "e" / "0.png"), "depth 1 and"),
        (lambda r: own_images.write(r / "train" / "0.png"), "give it train,"),
        (lambda r: own_images.write(r / "Test" / "a" / "0.png"), "give it tr"),
        (shutil.rmtree, "mine does not exist"),
        (lambda r: [shutil.rmtree(p) for p in r.iterdir()], "holds no file"),
    ],
)
def test_trees_that_hold_a_record_twice_or_nowhere_are_refused(
    folder, spoil, text
):
  spoil(folder)
  assert_refused((ValueError, FileNotFoundError), text, survey, folder)


@pytest.mark.parametrize(
    "levels, text",
    [
        (("group", "class", "image"), "folder depth 1.*=class/image.$"),
        (("episode", "image"), "'episode' is not allowed"),
        (("class", "class", "image"), "expected two different names"),
    ],
)
def test_levels_fit_the_depth(folder, levels, text):
  assert_refused((PlanError, DataError), text, survey, folder, levels=levels)


def test_a_table_in_a_folder_is_named(folder):
  (folder / "labels.csv").write_text("file,class")
  with pytest.raises(DataError, match="; or give the table, .*labels.csv$"):
    survey(folder, levels=("group", "class", "image"))


# Tables -----------------------------------------------------------------------

LEVELS = ("diagnosis", "patient", "image")
# Six patients with two images each; p0 and p1 have two diagnoses.
ROWS = [
    (f"scans/{p}_{i}.png", f"p{p}", diagnosis)
    for p, both in enumerate(("ab", "bc", "aa", "bb", "cc", "aa"))
    for i, diagnosis in enumerate(both)
]


@pytest.fixture
def table(tmp_path):
  for name, *_ in ROWS:
    own_images.write(tmp_path / name)
  return write(tmp_path / "table.csv", ROWS)


def write(path, lines, header="file,patient,diagnosis"):
  path.write_text("\n".join([header, *map(",".join, lines)]) + "\n")
  return path


def test_a_table_becomes_a_tree_in_the_order_of_the_levels(table, caplog):
  found = trees.table_listing(table, LEVELS)
  paths = [c.path for c in found.classes]
  assert paths == sorted({(d, p) for _, p, d in ROWS}) and not found.declared
  for unit in found.classes:
    names = {found.reader()(r).name.split("/")[-1] for r in unit.records}
    wanted = {f.split("/")[-1] for f, p, d in ROWS if (d, p) == unit.path}
    assert names == wanted
  fewer = trees.table_listing(table, ("diagnosis", "image"))
  (said,) = caplog.messages
  assert said.startswith("left out the columns ['patient'] of")
  assert [len(c.records) for c in fewer.classes] == [5, 4, 3]
  table.write_text(
      '\ufefffile,class\n"scans/0_0.png","a, or b"\n', encoding="utf-8"
  )
  (one,) = trees.table_listing(table).classes
  assert one == (("a, or b",), None, [0])


def test_a_patient_of_two_diagnoses_is_counted_and_kept_in_one_part(
    load, table
):
  asked = dict(levels=LEVELS, shares=(2, 1, 1), seed=1, crossing="patient")
  assert_survey_refused("by='patient' .in a command --conf", table, **asked)
  found = survey(table, **asked, by="patient").hierarchies
  names = [set(h.names[1].tolist()) for h in found.values()]
  assert sum(map(len, names)) == 6 == len(set().union(*names))
  both = {"p0", "p1"} & names[0]
  assert found["train"].most_copies == ((1, 2, 1) if both else None)
  assert found["train"].units_from_records
  train = load(table, **asked, by="patient", size=8).train
  assert train.hierarchy.same_tree(found["train"])
  parts = {"p0": "validation", "p1": "test"}
  header = "file,patient,diagnosis,split"
  divided = [(*row, parts.get(row[1], "train")) for row in ROWS]
  write(table, divided, header)
  del asked["shares"]
  trained = survey(table, **asked).hierarchies["train"]
  assert set(trained.names[1]) == {"p2", "p3", "p4", "p5"}
  divided[4] = (*divided[4][:3], "validation")  # p2 would be in two parts.
  write(table, divided, header)
  assert_survey_refused("in train and in validation", table, **asked)


@pytest.mark.parametrize(
    "lines, header, levels, message",
    [
        ([("a.png", "x")], "name,class", None, "column 'file'"),
        ([], "file,class", None, "and 0 rows"),
        ([("scans/0_0.png", "")], "file,class", None, "line 2 .* a value"),
        ([("scans/0_0.png",)], "file,class", None, "a value in each column"),
        (
            [("no.png", "x")], "file,class", None,
            r"'no.png', which cannot be read \(No such file or directory\)",
        ),
        ([("a\0b.png", "x")], "file,class", None, "line 2 .*zero byte"),
        ([("scans/0_0.png", "x\0")], "file,class", None, "line 2 .*zero byte"),
        ([("table.txt", "x")], "file,class", None, "no supported format"),
        (
            [("scans/0_0.png", "x"), ("scans/../scans/0_0.png", "y")],
            "file,class", None, "in lines 2 and 3: a record must be in one",
        ),
        ([ROWS[0]], "file,patient,diagnosis", None, "levels=patient/diag"),
        ([ROWS[0][:2]], "file,class", ("ward", "image"), "label columns"),
        ([(*ROWS[0][:2], "x")], "file,class,split", None, "split='x'"),
        ("grün.png,x\n".encode("latin-1"), "file,class", None, "CSV in UTF-8"),
        (b"file;class\nscans/0_0.png;x\n", "", None, "semicolons .*commas"),
        (b"file\tclass\nscans/0_0.png\tx\n", "", None, "tabs .*commas"),
        ([(r"scans\0_0.png", "x")], "file,class", None, "with / in place of"),
        (
            [ROWS[0]], "file,patient,diagnosis", None,
            r"crossing='diagnosis' and by='diagnosis' \(in a c.* depth=8 .*16",
        ),
        ([("pipe.png", "x")], "file,class", None, "no supported format"),
    ],
)
def test_wrong_tables_are_one_sentence(table, lines, header, levels, message):
  (table.parent / "table.txt").write_text("no example")
  os.mkfifo(table.parent / "pipe.png")
  if isinstance(lines, bytes):
    table.write_bytes(lines)
  else:
    write(table, lines, header)
  assert_refused(DataError, message, trees.table_listing, table, levels)


# Names ------------------------------------------------------------------------

COMPOSED, APART = "Jos\u00e9", "Jose\u0301"


def test_the_files_of_a_table_are_found_in_either_unicode_form(tmp_path):
  for name in (COMPOSED, f"{APART}2"):
    own_images.write(tmp_path / f"{name}.png")
  lines = [(f"{APART}.png", "x"), (f"{COMPOSED}2.png", "x")]
  found = trees.table_listing(write(tmp_path / "t.csv", lines, "file,class"))
  assert [found.reader()(i).image for i in range(2)] == [True, True]
  lines.append((f"{COMPOSED}.png", "x"))
  with pytest.raises(DataError, match="in lines 2 and 4"):
    trees.table_listing(write(tmp_path / "t.csv", lines, "file,class"))


@pytest.mark.parametrize(
    "names", [(COMPOSED, APART), ("ann", "ann "), ("ann", "ann\u200b")]
)
@pytest.mark.parametrize("parts", [True, False])
def test_names_that_look_alike_are_refused_by_every_source(
    tmp_path, names, parts
):
  """Each would be two people, perhaps one in each part."""
  people = [names[0], "bo", names[1], "cy", "di"]
  split = ["train", "train", "test", "validation", "test"]
  root, path = tmp_path / "mine", tmp_path / "own.npz"
  lines = []
  for person, part in zip(people, split):
    file = own_images.write((root / part if parts else root) / person / "0.png")
    lines.append((str(file), person, part)[: 2 + parts])
  header = "file,person,split" if parts else "file,person"
  table = write(tmp_path / "t.csv", lines, header)
  arrays = {"features": np.eye(5), "person": people}
  np.savez(path, **arrays, **({"split": split} if parts else {}))
  units = tmp_path / "units.npz"
  np.savez(units, features=np.eye(5), person=list("abcde"),
           units=[*"abcde", *names])
  for source in (root, table, path, units):
    with pytest.raises(DataError, match="differ only in blanks") as e:
      survey(source, levels=("person", "image"))
    assert all(ascii(name) in str(e.value) for name in names)


# NPZ files --------------------------------------------------------------------

COUNT = 24
FLOAT = np.zeros((COUNT, 6, 6), np.float32)


@pytest.fixture
def save(tmp_path):
  def save(**changes):
    arrays = own_images.arrays() | changes
    path = tmp_path / "own.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path

  return save


def test_rows_are_grouped_by_label(save):
  arrays = own_images.arrays()
  found = npz.listing(save())
  assert found.levels == ("class", "image") and found.shape == (6, 6, 1)
  for k, c in enumerate(found.classes):
    assert c.path == (str(k),) and len(c.records) == 4
    assert (arrays["class"][c.records] == k).all()
  np.testing.assert_array_equal(
      found.reader()(3).values[..., 0], arrays["images"][3]
  )
  letters = np.asarray(list("abcdef"))[arrays["class"]]
  group = np.where(arrays["class"] < 2, "x", "y")
  split = np.asarray(PARTS)[np.minimum(arrays["class"], 2)]
  arrays = {"class": letters, "group": group, "split": split}
  found = npz.listing(save(**arrays))
  assert [c.path for c in found.classes] == [
      ("x", "a"), ("x", "b"), *(("y", letter) for letter in "cdef")
  ]
  assert [c.part for c in found.classes] == [*PARTS, *["test"] * 3]


def assert_listing_refused(match, given):
  """Require one sentence that says what is wrong, and return it."""
  return assert_refused(DataError, match, npz.listing, given)


def test_declared_units_are_there_without_an_image(save):
  found = npz.listing(save(units=np.arange(8)))
  assert found.declared and not npz.listing(save()).declared
  assert [len(c.records) for c in found.classes] == [4] * 6 + [0, 0]
  units = [["x", k] for k in range(6)] + [["x", "6"], ["y", "0"], ["z", ""]]
  found = npz.listing(save(group=np.full(COUNT, "x"), units=np.asarray(units)))
  assert [c.path for c in found.classes] == [
      *(("x", str(k)) for k in range(7)), ("y", "0"), ("z",)
  ]
  split = np.asarray(PARTS)[np.minimum(own_images.arrays()["class"], 2)]
  parts = [*PARTS, *["test"] * 3, "train"]
  both = dict(split=split, units=np.arange(7))
  found = npz.listing(save(**both, units_split=np.asarray(parts)))
  assert [c.part for c in found.classes] == parts
  assert_listing_refused("add an array 'units_split'", save(**both))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"images": FLOAT}, "is float32 of shape .*save uint8"),
        ({"features": FLOAT}, "either 'images' or 'features'"),
        ({"images": None, "features": FLOAT.astype("c8")}, "is complex64"),
        ({"images": None, "features": FLOAT[:, 0, 0]}, r"shape \(24,\)"),
        ({"images": np.full(COUNT, None)}, r"images.astype\('uint8'\)"),
        ({"images": np.zeros((COUNT, 6), np.uint8)}, r"shape \(24, 6\)"),
        ({"images": np.zeros((COUNT, 6, 6, 4), np.uint8)}, "1 or 3"),
        ({"images": np.zeros((0, 6, 6), np.uint8)}, "none of them 0"),
        ({"images": np.zeros((9, 3, 6, 6), np.uint8)}, "channels last, by"),
        ({"images": None}, "expected .*images.* in levels=.*in a command"),
        ({"class": None}, "has the arrays .*images.* expected .*class"),
        ({"class": np.zeros(23, int)}, r"'class' of .* shape \(24,\)"),
        ({"class": np.zeros(COUNT)}, "'class' of .* is float64"),
        ({"class": np.zeros((COUNT, 1), int)}, r"of shape \(24, 1\)"),
        ({"class": np.asarray(["x", ""] * 12)}, "row 1 .*'class' .* no label"),
        ({"class": np.full(COUNT, b"\xff")}, "'class' of .* no text in UTF-8"),
        ({"units": np.full((6, 1), b"\xff")}, "'units' of .* no text in UTF-8"),
        ({"class": np.full(COUNT, None)}, r"'class' of .*class.astype\(str\)"),
        ({"images": None, "features": np.full(COUNT, None)}, r"astype\('float"),
        ({"splits": np.zeros(COUNT, int)}, "splits.* optionally"),
        ({"split": np.full(COUNT, "val")}, "split='val'"),
        ({"split": np.full(3, "test")}, r"'split' of .* of shape \(3,\)"),
        ({"units": np.arange(5)}, "rows of '5', which is not among"),
        ({"units": np.zeros((6, 2), int)}, r"'units' of .* of shape \(6, 2\)"),
        ({"units": np.asarray(6)}, r"'units' of .* of shape \(\)"),
        ({"units": np.zeros(6)}, "'units' of .* is float64"),
        ({"units": np.asarray(["a"])}, "rows of '0', which is not among"),
        ({"units": np.asarray(["0", ""])}, "only labels at its end"),
    ],
)
def test_wrong_arrays_are_named(save, changes, text):
  assert_listing_refused(text, save(**changes))


def test_files_that_are_no_npz_or_damaged(save, tmp_path):
  path = tmp_path / "own.npz"
  for content in (b"", b"no arrays " * 20, save().read_bytes()[:200]):
    path.write_bytes(content)
    said = assert_listing_refused("cannot be read as an .npz", path)
    assert "pickle" not in said and "trust" not in said
  path = save(images=np.zeros((COUNT, 64, 64), np.uint8))
  content = bytearray(path.read_bytes())
  content[50_000] ^= 255  # Among the pixels: header and labels are whole.
  path.write_bytes(content)
  read = npz.listing(path).reader
  assert_refused(DataError, "cannot be read as an .npz.*CRC", read)


def test_labels_that_decompress_to_more_than_the_images_are_refused(tmp_path):
  """A bomb: 200 MB of label text in a few hundred kilobytes."""
  path, arrays = tmp_path / "own.npz", own_images.arrays()
  longest = 2 * 10**6
  labels = np.full(COUNT, "x", f"<U{longest}")
  np.savez_compressed(path, images=arrays["images"], **{"class": labels})
  assert path.stat().st_size < 10**6
  del labels
  tracemalloc.start()
  assert_listing_refused("'class' .* to 192000128", path)
  assert tracemalloc.get_traced_memory()[1] < 10**7
  tracemalloc.stop()
  with zipfile.ZipFile(path) as z:
    assert z.getinfo("class.npy").file_size > 10**8


def test_suffixes_have_any_case_and_a_missing_path_is_said(save, tmp_path):
  path = save().rename(tmp_path / "own.NPZ")
  assert own_data.survey(path, rows.OwnData(shares=(2, 1, 1))).listing.shape
  own_images.tree(tmp_path, {"a": 1, "b": 1, "c": 1})
  table_ = tmp_path / "own.CSV"
  table_.write_text("file,class\n" + "".join(
      f"{c}/000.png,{c}\n" for c in "abc"
  ))
  assert len(own_data.survey(table_, rows.OwnData()).listing.classes) == 3
  weights = tmp_path / "w.NPZ"
  models.write_weights(weights, {"a": np.ones(2)})
  assert models.read_weights(weights)["a"].size == 2
  with pytest.raises(FileNotFoundError, match="nowhere.npz does not exist"):
    own_data.survey(tmp_path / "nowhere.npz", rows.OwnData())
  with pytest.raises(FileNotFoundError, match="nowhere.npz does not exist"):
    models.read_weights(tmp_path / "nowhere.npz")


@pytest.mark.slow  # The file is made of a gigabyte.
def test_arrays_that_unpack_to_gigabytes_are_refused_before(tmp_path):
  path, zeros = tmp_path / "own.npz", bytes(2**26)
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
    for name in ("images", "class"):
      with z.open(f"{name}.npy", "w") as f:
        head = {"descr": "|u1", "fortran_order": False, "shape": (2**15, 2**15)}
        np.lib.format.write_array_header_1_0(f, head)
        for _ in range(8 if name == "class" else 16):
          f.write(zeros)
  tracemalloc.start()
  began = time.process_time()
  assert_listing_refused("unpacks to 1610612992 bytes, more", path)
  with pytest.raises(DataError, match="weights .* cannot be read"):
    models.read_weights(path)
  assert time.process_time() - began < 2
  assert tracemalloc.get_traced_memory()[1] < 10**7
  tracemalloc.stop()


@pytest.mark.parametrize("name", ["class", "units"])
def test_labels_without_a_byte_are_not_made(save, name):
  """An array of empty texts takes no byte, whatever its length."""
  path = save(**{"class": None})
  head = {"descr": "<U0", "fortran_order": False, "shape": (2**28,)}
  with zipfile.ZipFile(path, "a") as z:
    if name == "units":
      with z.open("class.npy", "w") as f:
        np.save(f, own_images.arrays()["class"])
    with z.open(f"{name}.npy", "w") as f:
      np.lib.format.write_array_header_1_0(f, head)
  began = time.process_time()
  assert_listing_refused("268435456 labels, more than", path)
  assert time.process_time() - began < 2


# Rows on disk -----------------------------------------------------------------


def test_decoded_once_and_again_when_something_changes(
    load, folder, tmp_path, monkeypatch
):
  count, row = [], rows.Form.row
  monkeypatch.setattr(
      rows.Form, "row", lambda form, *of: count.append(of) or row(form, *of)
  )
  total = sum(CLASSES.values())
  for options, expected in (
      ({}, total), ({}, 0), ({"size": 9}, total), ({"color": True}, total),
      ({"seed": 5}, total), ({}, 0),
  ):
    count.clear()
    assert load(folder, **options).train.images.shape[1] in (9, 28)
    assert len(count) == expected, options
  cache = tmp_path / "cache" / "own_data"
  assert stat.S_IMODE(cache.stat().st_mode) == 0o700
  own_images.write(folder / "class0" / "000.png", 999, side=7)
  for spoil in (
      lambda: None,
      lambda: [p.write_bytes(p.read_bytes()[:-1]) for p in cache.glob("*.npy")],
  ):
    spoil()
    count.clear()
    load(folder)
    assert len(count) == total


def test_data_replaced_with_one_size_and_time_are_read_again(load, tmp_path):
  values = np.arange(48.0).reshape(24, 2)
  path, root = tmp_path / "own.npz", tmp_path / "mine"
  files = [root / str(k // 4) / f"{k}.npy" for k in range(24)]
  for added in (0, 100):
    np.savez(path, features=values + added, **{"class": np.arange(24) // 4})
    for file, value in zip(files, values + added):
      own_images.save(file, value)
    for file in (path, *files):
      os.utime(file, ns=(1, 1))
    for source in (path, root):
      held = load(source).train.images
      assert (held.min() >= added) and (held.max() < added + 48), source


def test_broken_images_full_disks_and_copies_are_said(
    load, folder, monkeypatch, caplog
):
  def full(*unused):
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patch:
    patch.setattr(os, "posix_fallocate", full)
    assert_refused(OSError, "No space left on device", load, folder)
  with monkeypatch.context() as patch:  # As on macOS.
    patch.delattr(os, "posix_fallocate", raising=False)
    patch.setattr(
        shutil, "disk_usage", lambda unused: types.SimpleNamespace(free=99)
    )
    assert_refused(OSError, "No space left on device", load, folder)
    patch.undo()
    patch.delattr(os, "posix_fallocate", raising=False)
    assert len(load(folder).train.images)
  own_images.write(folder / "class1" / "again.png", 0)  # That of class 0.
  load(folder)
  assert "copies of other rows, 1 in" in caplog.text
  path = folder / "class3" / "001.png"
  path.write_bytes(path.read_bytes()[:60])
  assert_refused(DataError, "class3/001.png cannot be read as", load, folder)


def test_features_are_the_same_from_files_and_from_an_npz(load, tmp_path):
  labels = np.arange(24) // 4
  for shape in ((5,), (7, 2), (4, 4, 1)):
    values = np.random.default_rng(0).normal(size=(24, *shape))
    root, path = tmp_path / f"mine{len(shape)}", tmp_path / "own.npz"
    for k, value in enumerate(values):
      own_images.save(root / str(labels[k]) / f"{k:02d}.npy", value)
    np.savez(path, features=values, **{"class": labels})
    for source in (path, root):
      train = load(source).train
      assert train.image_shape == shape and train.images.dtype == np.float32
      for name, found in rows_by_class(train).items():
        np.testing.assert_array_equal(
            found, values[labels == int(name)].astype(np.float32)
        )


def test_colours_are_left_out_with_a_word_unless_that_is_asked(
    load, folder, caplog
):
  for path in folder.glob("*/*.png"):
    own_images.save(path, np.uint8([[[90, 80, 70]]]))
  for options, said in (({"color": True}, 0), ({"color": False}, 0), ({}, 1)):
    caplog.clear()
    load(folder, **options)
    assert caplog.text.count("has colours, and images are turned grey") == said


def test_an_npz_keeps_its_size_bits_and_colours(load, save, tmp_path):
  pictures = tmp_path / "pictures"
  for k in range(12):
    values = np.full((6, 6), 20 * k, np.uint16)
    own_images.save(pictures / f"class{k % 6}" / f"{k}.png", values)
  arrays = own_images.arrays()
  shaped = load(save(), size=8, color=True).train
  assert shaped.image_shape == (8, 8, 3)
  deep = np.random.default_rng(0).integers(0, 2**16, (COUNT, 6, 6), np.uint16)
  train = load(save(images=deep.astype(">u2"))).train
  for name, found in rows_by_class(train).items():
    chosen = deep[arrays["class"] == int(name)]
    np.testing.assert_allclose(found[..., 0] * 65535, chosen, rtol=1e-6)
  assert load(save(images=deep), depth=8).train.images.dtype == np.uint8
  # One image may be dark, but not all.
  dark = deep // 256
  dark[0] = deep[0]
  assert load(save(images=dark)).train.images.dtype == np.float32
  for source in (save(images=deep // 256), pictures):
    for _ in range(2):
      assert_refused(DataError, f"{source} are nearly black", load, source)
  values = np.zeros((COUNT, 3))
  values[7, 1] = np.inf
  path = save(images=None, features=values)
  assert_refused(DataError, r"row 7 of .*own.npz holds inf .*\[1\]", load, path)
