"""Strips of images: pixels that are whole multiples, in grey or colour."""

import numpy as np

from episodic_dp.output import strips

RNG = np.random.default_rng(0)


def pixels(image):
  return np.asarray(image.convert("RGB"))


def test_strips_hold_every_pixel():
  images = RNG.integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
  found = pixels(strips.strip(images))
  assert found.shape == (6, 4 * 5 + 3, 3)
  for i, image in enumerate(images):
    assert (found[:, 6 * i : 6 * i + 5] == image).all()
  large = pixels(strips.strip(images[:1], scale=3))
  assert (large[::3, ::3] == images[0]).all() and large.shape == (18, 15, 3)
  assert (large[2::3, 1::3] == images[0]).all()


def test_grey_images_and_those_of_other_channels():
  grey = RNG.integers(0, 256, (2, 4, 4, 1)).astype(np.uint8)
  assert (pixels(strips.strip(grey))[:, :4] == grey[0]).all()
  many = RNG.integers(0, 256, (1, 4, 4, 5)).astype(np.uint8)
  assert (pixels(strips.strip(many)) == many[0][..., :1]).all()
