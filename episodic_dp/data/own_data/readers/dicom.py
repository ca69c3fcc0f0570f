"""DICOM images, scaled by what their own heads say.

Rescale slope and intercept (or the modality table) come first, then the file's
first window (or its table of interest), and MONOCHROME1 is turned round. Where
a file names no window, the whole range of its stored bits becomes 0 to 1. All
this is read from the head of one file: no pixel of another one, and none of its
own, decides how it is scaled.
"""

from collections.abc import Sequence
import os
import pathlib
from typing import Any

import numpy as np

from episodic_dp.data.own_data.readers import example

_GREY = ("MONOCHROME1", "MONOCHROME2")


def has_magic(path: str) -> bool:
  """Whether a file begins as DICOM does; an index of a medium is left out."""
  if os.path.basename(path).upper() == "DICOMDIR":
    return False
  try:
    with open(path, "rb") as f:
      return f.read(132)[128:] == b"DICM"
  except OSError:
    return False


def pages(path: str) -> Sequence[int]:
  """The frames of a file, by its head.

  Raises:
    ValueError: it cannot be read, or pydicom is missing; one sentence.
  """
  pydicom = _pydicom()
  try:
    head = pydicom.dcmread(
        path, stop_before_pixels=True, specific_tags=["NumberOfFrames"]
    )
    frames = max(1, int(head.get("NumberOfFrames") or 1))
    if frames > os.stat(path).st_size:  # Before there is a number for each.
      raise ValueError(f"its head claims {frames} frames")
    return range(frames)
  except Exception as e:  # Whatever a parser of damaged files may raise.
    raise _unreadable(path, e) from e


def read(path: pathlib.Path, page: int = 0) -> example.Example:
  """One frame as float32[H, W, 1 or 3], 0 to 1.

  Raises:
    ValueError: it cannot be read, or pydicom is missing; one sentence.
  """
  pydicom = _pydicom()
  try:
    head = pydicom.dcmread(path)
    values = _scaled(pydicom, head, page)
    if values.ndim == 2:
      values = values[..., None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or not values.size:
      raise ValueError(f"a frame has shape {values.shape}")
  except Exception as e:  # Whatever a parser of damaged files may raise.
    raise _unreadable(path, e) from e
  values = np.clip(values, 0.0, 1.0).astype(np.float32)
  if not np.isfinite(values).all():
    raise _unreadable(path, ValueError("its scale gives values that are NaN"))
  return example.Example(values, image=True)


def _scaled(pydicom: Any, head: Any, page: int) -> np.ndarray:
  """A frame as float64, 0 to 1 or close to it."""
  frames = max(1, int(head.get("NumberOfFrames") or 1))
  pixels = pydicom.pixels.pixel_array(
      head, index=page if frames > 1 else None
  )
  kind = head.PhotometricInterpretation
  if kind == "PALETTE COLOR":
    colors = pydicom.pixels.apply_color_lut(pixels, head)[..., :3]
    return colors / (2.0 ** (8 * colors.dtype.itemsize) - 1)
  if kind not in _GREY:
    return pixels / (2.0 ** int(head.BitsStored) - 1)
  values = pydicom.pixels.apply_modality_lut(pixels, head)
  low, high = _range(head)
  if "WindowCenter" in head and "WindowWidth" in head:
    values = pydicom.pixels.apply_windowing(values, head)
  elif head.get("VOILUTSequence"):
    values = pydicom.pixels.apply_voi(values, head)
    low, high = 0.0, 2.0 ** int(head.VOILUTSequence[0].LUTDescriptor[2]) - 1
  else:
    low, high = min(low, high), max(low, high)
  values = (values - low) / (high - low)
  return 1 - values if kind == "MONOCHROME1" else values


def _range(head: Any) -> tuple[float, float]:
  """What the least and the largest stored value become, by the head alone."""
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


def _pydicom() -> Any:
  """The package, with its submodule `pixels`."""
  try:
    # Lazy import: an extra that only DICOM needs.
    import pydicom
    import pydicom.pixels
  except ImportError as e:
    raise ValueError(
        "DICOM files need the package pydicom: pip install"
        " 'episodic_dp[dicom]'"
    ) from e
  return pydicom


def _unreadable(path: str | pathlib.Path, error: Exception) -> ValueError:
  text = example.reason(error, path)
  remedy = "repair it or remove it"
  if "plugin" in text or "decod" in text:
    remedy = (
        "pip install pylibjpeg pylibjpeg-libjpeg pylibjpeg-openjpeg reads"
        " compressed DICOM, or save it uncompressed"
    )
  return ValueError(f"{path} cannot be read as DICOM ({text}): {remedy}")
