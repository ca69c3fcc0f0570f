"""Single files become examples and rows, or end in one sentence."""

import io
import os
import struct
import sys
import tracemalloc
import zlib

import numpy as np
from PIL import EpsImagePlugin
from PIL import Image
import pydicom
import pytest

from episodic_dp import data
from episodic_dp.data import mini_imagenet
from episodic_dp.data import omniglot
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from tests.data import own_images
from tests.refusals import assert_refused

GREY, COLOR = (4, 4, 1), (4, 4, 3)
RAMP = (np.arange(16).reshape(4, 4) * 16).astype(np.uint8)
STORED = np.asarray([[0, 1000], [2000, 4095]], np.uint16)
DEEP16 = (np.arange(16).reshape(4, 4) + 40_000).astype(np.uint16)


def saved(tmp_path, image, name="image.png", **options):
  image.save(tmp_path / name, **options)
  found = readers.read(tmp_path / name)
  assert found.image and found.values.ndim == 3
  return found.values


def test_pictures_keep_their_colours(tmp_path):
  grey = saved(tmp_path, Image.fromarray(RAMP))
  np.testing.assert_array_equal(grey[..., 0], RAMP)
  assert (rows.resized(grey, COLOR) == RAMP[..., None]).all()
  red = saved(tmp_path, Image.new("RGB", (4, 4), (255, 0, 0)))
  assert (rows.resized(red, GREY) == 76).all()  # ITU-R 601: 0.299 * 255.
  bits = saved(tmp_path, Image.fromarray(RAMP > 100))
  assert np.unique(bits).tolist() == [0, 255]
  palette = Image.new("RGB", (4, 4), (0, 255, 0)).convert("P")
  assert (saved(tmp_path, palette) == (0, 255, 0)).all()
  clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
  assert (saved(tmp_path, clear) == 255).all()  # Laid on white.
  exif = Image.Exif()
  exif[0x0112] = 6  # Orientation: turn by 90 degrees, clockwise.
  for name in ("a.tif", "a.png"):
    turned = saved(tmp_path, Image.fromarray(RAMP[::2]), name, exif=exif)
    np.testing.assert_array_equal(turned[..., 0], np.rot90(RAMP[::2], -1))
    with Image.open(tmp_path / name) as opened:
      given = readers.picture_of(opened, "it").values
      assert opened.filename
    np.testing.assert_array_equal(given, turned)


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_are_kept_at_any_size(tmp_path, name):
  found = saved(tmp_path, Image.fromarray(DEEP16), name)
  assert found.dtype == np.float32
  np.testing.assert_allclose(found[..., 0] * 65535, DEEP16, rtol=1e-6)
  half = rows.resized(found, (2, 2, 1))
  assert 40_000 < half.min() * 65535 < half.max() * 65535 < 40_016
  assert (rows.resized(found, COLOR) == found).all()


def test_sides_are_scaled_with_an_average():
  board = np.indices((8, 16)).sum(0)[..., None] % 2 * np.uint8(255)
  found = rows.resized(board.astype(np.uint8), GREY)
  assert found.shape == GREY
  assert abs(found[1:3, 1:3].astype(int) - 127).max() <= 2


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
  """A program that Pillow would start; returns whether it was."""
  (tmp_path / "bin").mkdir()
  program, started = tmp_path / "bin" / "gs", tmp_path / "started"
  program.write_text(f"#!/bin/sh\ntouch {started}\n")
  program.chmod(0o755)
  monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
  monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
  return started.exists


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n"


@pytest.mark.parametrize(
    "content",
    [
        POSTSCRIPT,
        b"\xc5\xd0\xd3\xc6\x1e" + bytes(25) + POSTSCRIPT,
        b"%PDF-1.7\n",
        b"\xd7\xcd\xc6\x9a" + bytes(40),
    ],
    ids=["postscript", "postscript of DOS", "PDF", "metafile"],
)
@pytest.mark.parametrize("name", ["x.png", "x.jpg", "x.tif"])
def test_a_file_that_needs_another_program_is_refused(
    ghostscript, tmp_path, name, content
):
  path = tmp_path / name
  path.write_bytes(content)
  assert_read_refused(f"{name} .*not begin as one of", path)
  assert not ghostscript()


def test_an_open_file_that_needs_another_program_is_refused(ghostscript):
  picture = Image.open(io.BytesIO(POSTSCRIPT))
  with pytest.raises(DataError, match="number 3 .*format EPS"):
    readers.picture_of(picture, "number 3")
  assert not ghostscript()


@pytest.mark.parametrize("read", [omniglot.decode, mini_imagenet.decode])
def test_published_images_need_no_other_program(ghostscript, read):
  assert_refused(DataError, "not begin as one of", read, POSTSCRIPT)
  assert not ghostscript()


def assert_read_refused(match, given):
  """Require one sentence that says what is wrong, and return it."""
  return assert_refused(DataError, match, readers.read, given)


@pytest.mark.parametrize("side", [9000, 20_000])
def test_large_pictures_are_refused_before_their_pixels(tmp_path, side):
  head = struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)
  chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(10**6)))]
  content = b"".join(
      struct.pack(">I", len(data)) + kind + data
      + struct.pack(">I", zlib.crc32(kind + data))
      for kind, data in chunks
  )
  (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
  assert_read_refused("x.png .* pixels.*: make it|exceeds", tmp_path / "x.png")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"text", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "cut", ".tif",
        ".gif", ".webp",
    ],
)
def test_files_that_are_no_picture(tmp_path, content):
  path = tmp_path / "image.png"
  if content == "cut":
    Image.fromarray(RAMP).resize((64, 64)).save(path)
    content = path.read_bytes()[:-30]
  elif isinstance(content, str):
    path = path.with_suffix(content)
    pages = [Image.fromarray(RAMP), Image.fromarray(255 - RAMP)]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    content = path.read_bytes()
  path.write_bytes(content)
  said = assert_read_refused("cannot be read as an image", path)
  assert said.count(str(path)) == 1


def test_the_preview_of_a_camera_is_no_second_picture(tmp_path):
  path, picture = tmp_path / "a.jpg", Image.fromarray(RAMP)
  picture.save(path, "MPO", save_all=True, append_images=[picture])
  assert readers.read(path).values.shape[:2] == RAMP.shape


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-3, 3, 5),
        np.arange(6, dtype=np.int16).reshape(2, 3) - 4,
        np.ones((2, 3, 4), np.float16),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
    ],
)
def test_arrays_are_features_and_bytes_an_image(tmp_path, values):
  np.save(tmp_path / "a.npy", values)
  found = readers.read(tmp_path / "a.npy")
  assert found.image == (values.dtype == np.uint8)
  flat = found.values[..., 0] if found.image else found.values
  np.testing.assert_array_equal(flat, values.astype(np.float32))


@pytest.mark.parametrize(
    "values,text",
    [
        (np.asarray([0.0, np.nan]), r"a.npy holds nan as float32 at \[1\]"),
        (np.asarray([[0.0], [1e300]]), r"holds inf as float32 at \[1, 0\]"),
        (np.float64(3), r"has shape \(\)"),
        (np.zeros((2, 0)), r"has shape \(2, 0\)"),
        (np.zeros((1, 1, 1, 1)), r"has shape \(1, 1, 1, 1\)"),
        (np.asarray(["a"]), "a.npy is <U1: give whole numbers"),
        (np.zeros(3, np.uint8), "uint8 is an image"),
        (np.zeros((1, 9, 9), np.uint8), r"a.npy has .* channels first: give"),
        (np.asarray([None]), "cannot be read as an .npy"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, values, text):
  np.save(tmp_path / "a.npy", values, allow_pickle=True)
  assert_read_refused(text, tmp_path / "a.npy")


def test_headers_that_claim_too_much_and_other_files(tmp_path):
  path, buffer = tmp_path / "a.npy", io.BytesIO()
  np.lib.format.write_array_header_1_0(
      buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
  )
  path.write_bytes(buffer.getvalue() + struct.pack("<4d", 1, 2, 3, 4))
  assert_read_refused("cannot be read as an .npy", path)
  path = tmp_path / "notes.txt"
  path.write_text("1,2")
  assert_read_refused("notes.txt has no supported format", path)
  with pytest.raises(DataError, match="mode F of Pillow.*no known scale"):
    saved(tmp_path, Image.fromarray(RAMP.astype(np.float32)), "float.tiff")


# DICOM ------------------------------------------------------------------------


@pytest.fixture
def dicom(tmp_path):
  def read(values=STORED, **tags):
    path = own_images.dicom(tmp_path / "a.dcm", values, **tags)
    found = readers.read(path)
    assert found.image and found.values.dtype == np.float32
    return found.values[..., 0]

  return read


def test_dicom_is_scaled_by_its_own_head(dicom):
  np.testing.assert_allclose(dicom(), STORED / 4095, rtol=1e-6)
  signed = np.asarray([[-2048, 0], [1000, 2047]], np.int16)
  np.testing.assert_allclose(dicom(signed), (signed + 2048.0) / 4095, rtol=1e-6)
  rescaled = dict(RescaleSlope=2, RescaleIntercept=-1000)
  np.testing.assert_allclose(dicom(**rescaled), STORED / 4095, rtol=1e-6)
  # PS3.3 C.11.2.1.2: LINEAR, of values after slope and intercept.
  window = rescaled | dict(WindowCenter=[1000, 5], WindowWidth=[4001, 7])
  expected = np.clip((2.0 * STORED - 1000 - 999.5) / 4000 + 0.5, 0, 1)
  np.testing.assert_allclose(dicom(**window), expected, rtol=1e-5)
  inverted = dicom(**window, PhotometricInterpretation="MONOCHROME1")
  np.testing.assert_allclose(inverted, 1 - expected, rtol=1e-5)


def test_dicom_in_colour_and_without_a_suffix(tmp_path):
  pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
  path = own_images.dicom(
      tmp_path / "1.2.840.5", STORED, PhotometricInterpretation="RGB",
      SamplesPerPixel=3, BitsAllocated=8, BitsStored=8, HighBit=7,
      PlanarConfiguration=0, PixelData=pixels.tobytes(),
  )
  np.testing.assert_allclose(readers.read(path).values, pixels / 255, rtol=1e-6)
  assert readers.reader_of(path.rename(tmp_path / "DICOMDIR")) is None


@pytest.mark.parametrize(
    "tags,text",
    [
        ({"WindowCenter": 5, "WindowWidth": 0}, "Window Width"),
        ({"PixelData": b"\0\0"}, "a.dcm cannot be read as DICOM"),
        ({"Rows": 0}, "a.dcm cannot be read as DICOM"),
        ({"NumberOfFrames": 10**9}, "holds 1000000000 frames"),
        ({"Rows": 60_000, "Columns": 50_000}, "60000 x 50000 pixels"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
    ],
)
def test_heads_that_contradict_themselves(dicom, tags, text):
  assert_refused(DataError, text, dicom, **tags)


def test_a_deflated_file_of_dicom_is_not_inflated(dicom, tmp_path):
  dicom()
  held = pydicom.dcmread(tmp_path / "a.dcm")
  held.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
  held.PixelData = bytes(2**27)
  held.save_as(tmp_path / "a.dcm")
  assert (tmp_path / "a.dcm").stat().st_size < 2**20
  tracemalloc.start()
  assert_read_refused("a.dcm .* deflated: save it in", tmp_path / "a.dcm")
  assert tracemalloc.get_traced_memory()[1] < 2**22
  tracemalloc.stop()


def test_dicom_needs_its_package(dicom, tmp_path, monkeypatch):
  dicom()
  monkeypatch.setitem(sys.modules, "pydicom", None)
  assert_read_refused(r"pip install 'episodic_dp\[dicom\]'", tmp_path / "a.dcm")


# Rows -------------------------------------------------------------------------

DARK = readers.image_of(np.full((4, 4, 1), 51, np.uint8), "dark")
DEEP = readers.Example(np.full((4, 4, 1), 0.25, np.float32), True, "deep")
NUMBERS = readers.features_of(np.float32([[1, 2], [3, 4], [5, 6]]), "numbers")


def row(first, *others, **options):
  form = rows.form_of(first, data.read_options("own_data", options))
  found = [form.row(example) for example in (first, *others)]
  assert all(f.shape == form.shape and f.dtype == form.dtype for f in found)
  return found[-1]


def test_pictures_of_pillow_are_read_whole(tmp_path):
  premultiplied = Image.fromarray(RAMP).convert("LA").convert("La")
  found = readers.picture_of(premultiplied, "it").values[..., 0]
  np.testing.assert_array_equal(found, RAMP)
  path = tmp_path / "cut.bmp"
  Image.fromarray(RAMP).save(path)
  path.write_bytes(path.read_bytes()[:-8])
  with Image.open(path) as cut, pytest.raises(DataError, match="row 3 cannot"):
    readers.picture_of(cut, "row 3")


def test_images_take_size_colour_and_depth():
  assert row(DARK).shape == (28, 28, 1)
  assert row(DARK, size=3, color=True).shape == (3, 3, 3)
  assert row(DEEP).dtype == np.float32
  np.testing.assert_allclose(row(DEEP, DARK, depth=16), 0.2, rtol=1e-6)
  assert (row(DARK, DEEP, depth=8) == 64).all()


@pytest.mark.parametrize(
    "examples",
    [
        (DARK, DEEP), (DEEP, DARK), (DARK, NUMBERS), (NUMBERS, DARK),
        (NUMBERS, NUMBERS._replace(values=NUMBERS.values[:2], name="short")),
    ],
)
def test_an_example_that_differs_is_refused(examples):
  first, other = examples
  with pytest.raises(DataError, match=f"^{other.name} .* and {first.name} "):
    row(*examples)


@pytest.mark.parametrize(
    "example,options,text",
    [
        (NUMBERS, {"size": 3}, "are for images"),
        (DARK, {"depth": 12}, "depth=12: expected one of 8, 16"),
        (DARK, {"seed": -1}, "seed=-1"),
        (DARK, {"shares": (1, 0, 1)}, r"shares\[1\]=0.0: expected a finite"),
        (DARK, {"shares": (1, 1)}, "shares=.*a list of 3"),
        (DARK, {"levels": "class"}, "levels='class': expected a list"),
        (DARK, {"levels": ("image",)}, "levels=.*two different names"),
        (DARK, {"size": 8193}, "size=8193: expected at most 8192"),
    ],
)
def test_wrong_options_are_named(example, options, text):
  assert_refused((PlanError, DataError), text, row, example, **options)
