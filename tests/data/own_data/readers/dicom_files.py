"""DICOM files, written by pydicom."""

import pathlib
from typing import Any

import numpy as np
import pydicom
from pydicom import uid


def write(
    path: pathlib.Path, pixels: np.ndarray, **tags: Any
) -> pathlib.Path:
  """Writes unsigned or signed values of 12 bits, [H, W] or [frames, H, W]."""
  meta = pydicom.dataset.FileMetaDataset()
  meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
  meta.MediaStorageSOPClassUID = uid.SecondaryCaptureImageStorage
  meta.MediaStorageSOPInstanceUID = uid.generate_uid()
  file = pydicom.dataset.FileDataset(
      str(path), {}, file_meta=meta, preamble=bytes(128)
  )
  file.SOPClassUID = meta.MediaStorageSOPClassUID
  file.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
  file.Rows, file.Columns = pixels.shape[-2:]
  file.SamplesPerPixel = 1
  file.PhotometricInterpretation = "MONOCHROME2"
  file.BitsAllocated, file.BitsStored, file.HighBit = 16, 12, 11
  signed = pixels.dtype.kind == "i"
  file.PixelRepresentation = int(signed)
  if pixels.ndim == 3:
    file.NumberOfFrames = len(pixels)
  file.PixelData = pixels.astype("<i2" if signed else "<u2").tobytes()
  for name, value in tags.items():
    setattr(file, name, value)
  path.parent.mkdir(parents=True, exist_ok=True)
  file.save_as(path, enforce_file_format=True)
  return path
