"""NPZ files are listed by their labels, or refused by one sentence."""

import numpy as np
import pytest

from episodic_dp.data.own_data import npz
from tests.data import own_images


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
  assert [c.path for c in found.classes] == [(k,) for k in range(6)]
  for c in found.classes:
    assert (arrays["class"][c.records] == c.path[0]).all()
    assert len(c.records) == 4
  read = found.reader()
  np.testing.assert_array_equal(
      read(3).values[..., 0], arrays["images"][3]
  )


def test_groups_and_strings(save):
  arrays = own_images.arrays()
  letters = np.asarray(list("abcdef"))[arrays["class"]]
  writers = np.where(arrays["class"] < 2, "x", "y")
  found = npz.listing(save(**{"class": letters, "group": writers}))
  assert found.levels == ("group", "class", "image")
  assert [c.path for c in found.classes] == [
      ("x", "a"), ("x", "b"), *(("y", letter) for letter in "cdef")
  ]
  renamed = {"class": None, "writer": writers, "letter": letters}
  levels = ("writer", "letter", "drawing")
  assert npz.listing(save(**renamed), levels).levels == levels


def test_split_says_the_part(save):
  label = own_images.arrays()["class"]
  split = np.asarray(["train", "validation", "test"])[np.minimum(label, 2)]
  found = npz.listing(save(split=split))
  assert [c.part for c in found.classes] == [
      "train", "validation", *["test"] * 4
  ]


COUNT = 24
FLOAT = np.zeros((COUNT, 6, 6), np.float32)


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"images": FLOAT}, "is float32: save uint8.*or call it 'features'"),
        ({"features": FLOAT}, "both 'images' and 'features'"),
        ({"images": None, "features": FLOAT.astype("c8")}, "is complex64"),
        ({"images": None, "features": FLOAT[:, 0, 0]}, r"shape \(24,\)"),
        ({"images": np.full(COUNT, None)}, "'images' of .* holds objects"),
        ({"images": np.zeros((COUNT, 6), np.uint8)}, r"has shape \(24, 6\)"),
        ({"images": np.zeros((COUNT, 6, 6, 4), np.uint8)}, "1 or 3"),
        ({"images": np.zeros((0, 6, 6), np.uint8)}, "none of them 0"),
        ({"images": None}, "and no 'images'"),
        ({"class": None}, "has the arrays .*images.* and no 'class'"),
        ({"class": np.zeros(23, int)}, "'class' of .* has 23 entries for 24"),
        ({"class": np.zeros(COUNT)}, "'class' of .* is float64"),
        ({"class": np.zeros((COUNT, 1), int)}, r"of shape \(24, 1\)"),
        ({"class": np.full(COUNT, None)}, "'class' of .* is object"),
        ({"splits": np.zeros(COUNT, int)}, "'splits' that nothing reads"),
        ({"split": np.full(COUNT, "val")}, "'split' of .* holds 'val'"),
        ({"split": np.full(3, "test")}, "'split' of .* has 3 entries"),
    ],
)
def test_wrong_arrays_are_named(save, changes, text):
  with pytest.raises(ValueError, match=text):
    npz.listing(save(**changes))


CLASS = np.arange(COUNT) // 4
COARSE = CLASS // 2


@pytest.mark.parametrize(
    "arrays,levels",
    [
        ({"class": CLASS}, "class/image"),
        ({"class": CLASS, "group": COARSE}, "group/class/image"),
        ({"class": COARSE, "group": CLASS}, "group/class/image"),
        ({"fine": CLASS, "coarse": COARSE}, "coarse/fine/image"),
        ({"coarse": COARSE, "fine": CLASS}, "coarse/fine/image"),
        ({"class": CLASS, "person": COARSE}, "person/class/image"),
        ({"class": COARSE, "person": CLASS}, "class/person/image"),
        # Neither lies in the other.
        ({"class": np.arange(COUNT) % 4, "who": CLASS}, "who/class/image"),
    ],
)
def test_the_levels_that_are_there_can_be_typed(save, arrays, levels):
  path = save(**{"class": None} | arrays)
  with pytest.raises(ValueError, match="and no 'patient': add it, or") as e:
    npz.listing(path, ("patient", "label", "image"))
  assert str(e.value).endswith(f" --config=own_data:levels={levels}")
  npz.listing(path, levels.split("/"))


@pytest.mark.parametrize(
    "arrays", [{}, {"a b": CLASS}, {"x": FLOAT}, dict.fromkeys("abc", CLASS)]
)
def test_levels_that_cannot_be_typed_are_not_proposed(save, arrays):
  with pytest.raises(ValueError, match="'class': add it$"):
    npz.listing(save(**{"class": None} | arrays))


def test_levels_need_two_names(save):
  with pytest.raises(ValueError, match="needs two names or more"):
    npz.listing(save(), ("image",))


def test_files_that_are_no_npz(save, tmp_path):
  path = tmp_path / "own.npz"
  for content in (b"", b"text", save().read_bytes()[:200]):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="own.npz cannot be read as an .npz"):
      npz.listing(path)
  with path.open("wb") as f:
    np.save(f, np.zeros(3))
  with pytest.raises(ValueError, match="it is one array"):
    npz.listing(path)


def test_damaged_images_are_said_when_they_are_read(save):
  path = save(images=np.zeros((COUNT, 64, 64), np.uint8))
  content = bytearray(path.read_bytes())
  content[50_000] ^= 255  # Among the pixels: header and labels are whole.
  path.write_bytes(content)
  read = npz.listing(path).reader
  with pytest.raises(ValueError, match="'images' of .* cannot be read"):
    read()




def test_declared_units_are_there_without_an_image(save):
  found = npz.listing(save(units=np.arange(8)))
  assert found.declared and not npz.listing(save()).declared
  assert [(c.path, len(c.records)) for c in found.classes] == [
      *(((k,), 4) for k in range(6)), ((6,), 0), ((7,), 0)
  ]


def test_declared_groups_may_be_without_a_class(save):
  label = own_images.arrays()["class"]
  units = [["x", k] for k in range(6)] + [["x", "6"], ["y", "0"], ["z", ""]]
  found = npz.listing(save(group=np.full(COUNT, "x"), units=np.asarray(units)))
  # Written as text among the units, and as numbers beside the images.
  assert label.dtype.kind == "i"
  assert [c.path for c in found.classes] == [
      *(("x", k) for k in range(7)), ("y", 0), ("z",)
  ]


def test_declared_units_have_parts_where_the_images_have(save):
  split = np.asarray(["train", "validation", "test"])[
      np.minimum(own_images.arrays()["class"], 2)
  ]
  parts = ["train", "validation", *["test"] * 4, "train"]
  units = dict(split=split, units=np.arange(7))
  found = npz.listing(save(**units, units_split=np.asarray(parts)))
  assert [c.part for c in found.classes] == parts
  with pytest.raises(ValueError, match="add an array 'units_split'"):
    npz.listing(save(**units))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"units": np.arange(5)}, "rows of '5', which is not among"),
        ({"units": np.zeros((6, 2), int)}, r"'units' of .* of shape \(6, 2\)"),
        ({"units": np.asarray(6)}, r"'units' of .* of shape \(\)"),
        ({"units": np.zeros(6)}, "'units' of .* is float64"),
        ({"units": np.asarray(["a"])}, "holds labels that are no int64"),
        ({"units": np.asarray(["0", ""])}, r"has the row \('',\)"),
        (
            {"units": np.asarray([["", "1"]]), "group": np.full(COUNT, "x")},
            "only labels at its end may be empty",
        ),
    ],
)
def test_wrong_units_are_named(save, changes, text):
  with pytest.raises(ValueError, match=text):
    npz.listing(save(**changes))


def test_a_file_of_another_kind_is_said_without_advice_to_trust_it(tmp_path):
  path = tmp_path / "other.npz"
  path.write_bytes(b"no arrays " * 20)
  with pytest.raises(ValueError, match="holds no arrays of NumPy's") as e:
    npz.listing(path)
  assert "pickle" not in str(e.value) and "trust" not in str(e.value)
