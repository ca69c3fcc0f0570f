"""Numbers of .npy and text tables, as they are, or one sentence."""

import io
import struct

import numpy as np
import pytest

from episodic_dp.data.own_data.readers import formats


@pytest.fixture
def saved(tmp_path):
  def saved(values, name="a.npy"):
    np.save(tmp_path / name, values, allow_pickle=True)
    return tmp_path / name

  return saved


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-3, 3, 5),
        np.arange(6, dtype=np.int16).reshape(2, 3) - 4,
        np.ones((2, 3, 4), np.float16),
    ],
)
def test_numbers_are_features(saved, values):
  found = formats.read(saved(values))
  assert not found.image and found.values.dtype == np.float32
  np.testing.assert_array_equal(found.values, values.astype(np.float32))


def test_bytes_are_an_image(saved):
  values = np.arange(6, dtype=np.uint8).reshape(2, 3)
  found = formats.read(saved(values))
  assert found.image
  np.testing.assert_array_equal(found.values[..., 0], values)


@pytest.mark.parametrize(
    "values,text",
    [
        (np.asarray([0.0, np.nan]), r"a.npy holds nan as float32 at \[1\]"),
        (np.asarray([[0.0], [1e300]]), r"holds inf as float32 at \[1, 0\]"),
        (np.float64(3), r"has shape \(\)"),
        (np.zeros((2, 0)), r"has shape \(2, 0\)"),
        (np.zeros((1, 1, 1, 1)), r"has shape \(1, 1, 1, 1\)"),
        (np.asarray(["a"]), "a.npy is <U1: save whole numbers"),
        (np.zeros(3, np.uint8), "uint8 is an image"),
        (np.asarray([None]), "cannot be read as an .npy"),
    ],
)
def test_wrong_arrays_are_named(saved, values, text):
  with pytest.raises(ValueError, match=text):
    formats.read(saved(values))


def test_a_header_that_claims_too_much(saved):
  path = saved(np.zeros(4))
  buffer = io.BytesIO()
  np.lib.format.write_array_header_1_0(
      buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
  )
  path.write_bytes(buffer.getvalue() + struct.pack("<4d", 1, 2, 3, 4))
  with pytest.raises(ValueError, match="cannot be read as an .npy"):
    formats.read(path)


@pytest.mark.parametrize(
    "text,expected",
    [
        ("1,2\n3,4\n5,6", [[1, 2], [3, 4], [5, 6]]),
        ("\ufefftime,x\r\n0,1.5\r\n1,-2e1\r\n", [[0, 1.5], [1, -20]]),
        ("1;2\n3;4\n", [[1, 2], [3, 4]]),
        ("1\t2\n3\t4\n", [[1, 2], [3, 4]]),
        ("1\n2\n\n3", [[1], [2], [3]]),
        ("a,b,c\n7,8,9\n", [7, 8, 9]),
    ],
)
def test_tables(tmp_path, text, expected):
  path = tmp_path / "a.csv"
  path.write_text(text, encoding="utf-8", newline="")
  found = formats.read(path)
  assert not found.image
  np.testing.assert_array_equal(found.values, expected)


@pytest.mark.parametrize(
    "content,text",
    [
        (b"", "a.csv holds no numbers"),
        (b"x,y\n", "a.csv holds no numbers"),
        (b"1,2\n3\n", "line 2 of .*a.csv is no row .*1 numbers after .* of 2"),
        (b"1,2\n3,x\n", "line 2 of .*a.csv.*'x'"),
        (b"1,2\n3,\n", "line 2 of .*a.csv"),
        (b"1,2\n3,nan\n", r"a.csv holds nan as float32 at \[1, 1\]"),
        (b"\xff\xfe1", "cannot be read as text"),
    ],
)
def test_wrong_tables_are_named(tmp_path, content, text):
  path = tmp_path / "a.csv"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=text):
    formats.read(path)


def test_other_files_are_of_no_format(tmp_path):
  path = tmp_path / "notes.txt"
  path.write_text("1,2")
  with pytest.raises(ValueError, match="notes.txt is of no format"):
    formats.read(path)
