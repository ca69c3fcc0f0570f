"""DICOM is scaled by its own head, and a missing package is one sentence."""

import builtins

import numpy as np
import pytest

from episodic_dp.data.own_data.readers import dicom
from episodic_dp.data.own_data.readers import formats
from tests.data.own_data.readers import dicom_files

STORED = np.asarray([[0, 1000], [2000, 4095]], np.uint16)


@pytest.fixture
def read(tmp_path):
  def read(pixels=STORED, **tags):
    path = dicom_files.write(tmp_path / "a.dcm", pixels, **tags)
    found = formats.read(path)
    assert found.image and found.values.dtype == np.float32
    return found.values[..., 0]

  return read


def test_the_whole_range_of_stored_bits_without_a_window(read):
  np.testing.assert_allclose(read(), STORED / 4095, rtol=1e-6)
  signed = np.asarray([[-2048, 0], [1000, 2047]], np.int16)
  np.testing.assert_allclose(read(signed), (signed + 2048.0) / 4095, rtol=1e-6)
  rescaled = dict(RescaleSlope=2, RescaleIntercept=-1000)
  np.testing.assert_allclose(read(**rescaled), STORED / 4095, rtol=1e-6)


def test_a_window_of_rescaled_values(read):
  """PS3.3 C.11.2.1.2: LINEAR, of values after slope and intercept."""
  tags = dict(
      RescaleSlope=2,
      RescaleIntercept=-1000,
      WindowCenter=1000,
      WindowWidth=4001,
  )
  values = 2.0 * STORED - 1000
  expected = np.clip((values - 999.5) / 4000 + 0.5, 0, 1)
  np.testing.assert_allclose(read(**tags), expected, rtol=1e-5)
  # The first of several windows.
  several = tags | dict(WindowCenter=[1000, 5], WindowWidth=[4001, 7])
  np.testing.assert_array_equal(read(**several), read(**tags))
  falling = read(RescaleSlope=-1, RescaleIntercept=4095, WindowCenter=2048,
                 WindowWidth=4096)
  assert falling[0, 0] == 1 and falling[1, 1] == 0


def test_monochrome_1_is_turned_round(read):
  window = dict(WindowCenter=1500, WindowWidth=1000)
  found = read(**window, PhotometricInterpretation="MONOCHROME1")
  np.testing.assert_allclose(found, 1 - read(**window), rtol=1e-5)
  assert found[0, 0] == 1 and found[1, 1] == 0


def test_colour(tmp_path):
  pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
  path = dicom_files.write(
      tmp_path / "a.dcm", STORED,
      PhotometricInterpretation="RGB", SamplesPerPixel=3, BitsAllocated=8,
      BitsStored=8, HighBit=7, PlanarConfiguration=0,
      PixelData=pixels.tobytes(),
  )
  found = formats.read(path).values
  np.testing.assert_allclose(found, pixels / 255, rtol=1e-6)


def test_frames_and_files_without_a_suffix(tmp_path):
  frames = np.stack([STORED, STORED // 2])
  path = dicom_files.write(tmp_path / "1.2.840.5", frames)
  assert list(formats.pages(path)) == [0, 1]
  for k in formats.pages(path):
    np.testing.assert_allclose(
        formats.read(path, k).values[..., 0], frames[k] / 4095, rtol=1e-6
    )
  assert formats.format_of(path.rename(tmp_path / "DICOMDIR")) is None


@pytest.mark.parametrize(
    "tags,text",
    [
        ({"WindowCenter": 5, "WindowWidth": 0}, "Window Width"),
        ({"PixelData": b"\0\0"}, "a.dcm cannot be read as DICOM"),
        ({"Rows": 0}, "a.dcm cannot be read as DICOM"),
    ],
)
def test_heads_that_contradict_themselves(read, tags, text):
  with pytest.raises(ValueError, match=text):
    read(**tags)


def test_damaged_files_and_a_missing_package(tmp_path, monkeypatch):
  path = tmp_path / "a.dcm"
  path.write_bytes(b"text")
  for call in (formats.pages, formats.read):
    with pytest.raises(ValueError, match="a.dcm cannot be read as DICOM"):
      call(path)
  dicom_files.write(path, STORED, NumberOfFrames=10**9)
  with pytest.raises(ValueError, match="claims 1000000000 frames"):
    formats.pages(path)
  load = builtins.__import__

  def without(name, *args, **kwargs):
    if name.startswith("pydicom"):
      raise ImportError(name)
    return load(name, *args, **kwargs)

  monkeypatch.setattr(builtins, "__import__", without)
  for call in (dicom.pages, dicom.read):
    with pytest.raises(ValueError, match=r"pip install 'episodic_dp\[dicom\]'"):
      call(path)
