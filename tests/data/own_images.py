"""Small trees of images and NPZ files, as someone might have them."""

import pathlib

import numpy as np
from PIL import Image


def pixels(number: int, side: int = 6) -> np.ndarray:
  """uint8[side, side], another for every number."""
  rng = np.random.default_rng(number)
  return rng.integers(0, 256, (side, side), np.uint8)


def write(path: pathlib.Path, number: int = 0, side: int = 6) -> pathlib.Path:
  """Writes one grey image, and the folders above it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(pixels(number, side)).save(path)
  return path


def tree(root: pathlib.Path, classes: dict[str, int]) -> pathlib.Path:
  """Folders with so many images each; image i of class k is k * 100 + i."""
  for k, (name, count) in enumerate(classes.items()):
    for i in range(count):
      write(root / name / f"{i:03d}.png", 100 * k + i)
  return root


def arrays(classes: int = 6, each: int = 4) -> dict[str, np.ndarray]:
  """Images and labels of an NPZ, in no order."""
  rows = classes * each
  order = np.random.default_rng(0).permutation(rows)
  images = np.stack([pixels(i) for i in order])
  return {"images": images, "class": order // each}
