"""Small trees of images and NPZ files of own data."""

import pathlib
from typing import Any

import numpy as np
from PIL import Image
import pydicom
import pydicom.uid


def pixels(number: int, side: int = 6) -> np.ndarray:
  """uint8[side, side], another for every number."""
  rng = np.random.default_rng(number)
  return rng.integers(0, 256, (side, side), np.uint8)


def save(path: pathlib.Path, values: np.ndarray, **options: Any) -> None:
  """Write values as an image or as .npy, and the folders above it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.suffix == ".npy":
    np.save(path, values)
  else:
    Image.fromarray(values).save(path, **options)


def write(path: pathlib.Path, number: int = 0, side: int = 6) -> pathlib.Path:
  """Write one grey image, and the folders above it."""
  save(path, pixels(number, side))
  return path


def tree(root: pathlib.Path, classes: dict[str, int]) -> pathlib.Path:
  """Write folders of images; image i of class k is k * 100 + i."""
  for k, (name, count) in enumerate(classes.items()):
    for i in range(count):
      write(root / name / f"{i:03d}.png", 100 * k + i)
  return root


def arrays(classes: int = 6, each: int = 4) -> dict[str, np.ndarray]:
  """Return images and labels of an NPZ, in no order."""
  rows = classes * each
  order = np.random.default_rng(0).permutation(rows)
  images = np.stack([pixels(i) for i in order])
  return {"images": images, "class": order // each}


def dicom(
    path: pathlib.Path, values: np.ndarray, **tags: Any
) -> pathlib.Path:
  """Write unsigned or signed values of 12 bits, [H, W], as DICOM."""
  meta = pydicom.dataset.FileMetaDataset()
  meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
  signed = values.dtype.kind == "i"
  stored = values.astype("<i2" if signed else "<u2")
  file = pydicom.dataset.FileDataset(
      str(path), {}, file_meta=meta, preamble=bytes(128)
  )
  head = dict(
      SOPClassUID=pydicom.uid.SecondaryCaptureImageStorage,
      SOPInstanceUID=pydicom.uid.generate_uid(),
      Rows=values.shape[-2], Columns=values.shape[-1], SamplesPerPixel=1,
      PhotometricInterpretation="MONOCHROME2", BitsAllocated=16, BitsStored=12,
      HighBit=11, PixelRepresentation=int(signed), PixelData=stored.tobytes(),
  )
  for name, value in (head | tags).items():
    setattr(file, name, value)
  file.save_as(path, enforce_file_format=True)
  return path
