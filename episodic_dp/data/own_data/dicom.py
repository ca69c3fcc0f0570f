"""Pixels of DICOM files, scaled by the values of their own heads.

Rescale slope and intercept come first, then the file's first window, and
MONOCHROME1 is inverted. Where a file names no window, the whole range of its
stored bits becomes 0 to 1. All this is read from the head of one file: neither
a pixel of another file nor its own pixels decide how it is scaled.
"""

import os
import pathlib
from typing import Any

import numpy as np

_GREY = ("MONOCHROME1", "MONOCHROME2")


def has_magic(path: str) -> bool:
  """Return whether a file begins as DICOM does; an index does not count."""
  if os.path.basename(path).upper() == "DICOMDIR":
    return False
  try:
    with open(path, "rb") as f:
      return f.read(132)[128:] == b"DICM"
  except (OSError, ValueError):
    return False


def pixels(path: pathlib.Path) -> np.ndarray:
  """Return the one frame of a file as float64[H, W] or [H, W, 3], 0 to 1.

  Raises:
    Exception: of any type, where the file is damaged.
    ValueError: pydicom is missing, or the file holds several frames.
  """
  try:
    # Lazy import: an extra that only DICOM needs.
    import pydicom
    import pydicom.pixels
  except ImportError as e:
    raise ValueError(
        "DICOM files need the package pydicom: pip install"
        " 'episodic_dp[dicom]'"
    ) from e
  head = pydicom.dcmread(path)
  frames = int(head.get("NumberOfFrames") or 1)
  if frames > 1:
    raise ValueError(f"it holds {frames} frames: save each as a file")
  values = pydicom.pixels.pixel_array(head)
  kind = head.PhotometricInterpretation
  if kind not in (*_GREY, "RGB") and not kind.startswith("YBR"):
    raise ValueError(f"its colours are {kind}: save it as grey or RGB")
  if kind not in _GREY:
    return values / (2.0 ** int(head.BitsStored) - 1)
  values = pydicom.pixels.apply_modality_lut(values, head)
  low, high = _range(head)
  if "WindowCenter" in head and "WindowWidth" in head:
    values = pydicom.pixels.apply_windowing(values, head)
  else:
    low, high = min(low, high), max(low, high)
  values = (values - low) / (high - low)
  return 1 - values if kind == "MONOCHROME1" else values


def _range(head: Any) -> tuple[float, float]:
  """Return the rescaled least and largest stored value, by the head alone."""
  if head.get("ModalityLUTSequence"):
    bits = int(head.ModalityLUTSequence[0].LUTDescriptor[2])
    return 0.0, 2.0**bits - 1
  bits, signed = int(head.BitsStored), int(head.PixelRepresentation)
  low = -(2.0 ** (bits - 1)) if signed else 0.0
  high = low + 2.0**bits - 1
  if "RescaleSlope" not in head or "RescaleIntercept" not in head:
    return low, high
  slope, intercept = float(head.RescaleSlope), float(head.RescaleIntercept)
  return low * slope + intercept, high * slope + intercept
