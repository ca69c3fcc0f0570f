"""Pictures of every kind keep their bits and colours, or give one sentence."""

import numpy as np
from PIL import Image
import pytest

from episodic_dp.data.own_data import rows
from episodic_dp.data.own_data.readers import formats
from episodic_dp.data.own_data.readers import pictures

GREY, COLOR = (4, 4, 1), (4, 4, 3)


def saved(tmp_path, image, name="image.png", **options):
  image.save(tmp_path / name, **options)
  found = pictures.read(tmp_path / name)
  assert found.image and found.values.ndim == 3
  return found.values


def ramp(dtype=np.uint8):
  return np.arange(16).reshape(4, 4).astype(dtype) * 16


def test_grey_and_color(tmp_path):
  grey = saved(tmp_path, Image.fromarray(ramp()))
  np.testing.assert_array_equal(rows.resized(grey, GREY)[..., 0], ramp())
  assert (rows.resized(grey, COLOR) == ramp()[..., None]).all()
  red = np.asarray(Image.new("RGB", (4, 4), (255, 0, 0)))
  assert (rows.resized(red, COLOR) == (255, 0, 0)).all()
  assert (rows.resized(red, GREY) == 76).all()  # ITU-R 601: 0.299 * 255.


def test_one_bit_and_palettes_span_the_range(tmp_path):
  bits = Image.fromarray(ramp() > 100)
  assert bits.mode == "1"
  found = rows.resized(saved(tmp_path, bits), GREY)
  assert np.unique(found).tolist() == [0, 255]
  palette = Image.new("RGB", (4, 4), (0, 255, 0)).convert("P")
  assert (rows.resized(saved(tmp_path, palette), COLOR) == (0, 255, 0)).all()


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_are_all_kept(tmp_path, name):
  values = (np.arange(16).reshape(4, 4) + 40_000).astype(np.uint16)
  found = saved(tmp_path, Image.fromarray(values), name)
  assert found.dtype == np.float32
  np.testing.assert_allclose(found[..., 0] * 65535, values, rtol=1e-6)
  # Scaled to another size, they keep them too.
  half = rows.resized(np.float32(found), (2, 2, 1))
  assert 40_000 < half.min() * 65535 < half.max() * 65535 < 40_016
  assert (rows.resized(found, COLOR) == found).all()


def test_pages_of_a_tiff(tmp_path):
  path = tmp_path / "stack.tif"
  pages = [Image.fromarray(ramp() + k) for k in range(3)]
  pages[0].save(path, save_all=True, append_images=pages[1:])
  assert formats.pages(path) == (0, 1, 2)
  for k in formats.pages(path):
    np.testing.assert_array_equal(
        formats.read(path, k).values[..., 0], ramp() + k
    )
  pages[0].save(
      path,
      save_all=True,
      append_images=[Image.new("L", (2, 2))],
      tiffinfo={254: 0},
  )
  assert formats.pages(path) == (0, 1)


def test_transparent_is_white(tmp_path):
  clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
  assert (rows.resized(saved(tmp_path, clear), GREY) == 255).all()


def test_turned_as_the_camera_says(tmp_path):
  exif = Image.Exif()
  exif[0x0112] = 6  # Orientation: turn by 90 degrees, clockwise.
  found = saved(tmp_path, Image.fromarray(ramp()), "a.png", exif=exif)
  np.testing.assert_array_equal(
      rows.resized(found, GREY)[..., 0], np.rot90(ramp(), -1)
  )


def test_sides_are_scaled_with_an_average():
  board = np.indices((8, 16)).sum(0)[..., None] % 2 * np.uint8(255)
  found = rows.resized(board.astype(np.uint8), GREY)
  assert found.shape == GREY
  assert abs(found[1:3, 1:3].astype(int) - 127).max() <= 2


def test_arrays_of_the_shape_are_kept():
  array = ramp()[..., None]
  assert rows.resized(array, GREY) is array
  assert rows.resized(np.zeros((9, 5, 3), np.uint8), GREY).shape == GREY


@pytest.mark.parametrize(
    "content,text",
    [
        (b"", "cannot be read as an image"),
        (b"text", "cannot be read as an image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "cannot be read as an image"),
    ],
)
def test_files_that_are_no_images(tmp_path, content, text):
  path = tmp_path / "image.png"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=f"image.png {text}") as caught:
    pictures.read(path)
  assert str(caught.value).count(str(path)) == 1


def test_cut_off_and_unscaled_files(tmp_path):
  path = tmp_path / "image.png"
  Image.fromarray(ramp()).resize((64, 64)).save(path)
  path.write_bytes(path.read_bytes()[:-30])
  with pytest.raises(ValueError, match="image.png cannot be read"):
    pictures.read(path)
  with pytest.raises(ValueError, match="mode F of Pillow.*no known scale"):
    saved(tmp_path, Image.fromarray(ramp(np.float32)), "float.tiff")
