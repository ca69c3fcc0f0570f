"""Scenes: a class is a law of images, from a key alone."""

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.data import scenes

_CLASSES, _IMAGES = 6, 8


def drawn(seed):
  draw = jax.jit(scenes.scenes, static_argnums=(1, 2))
  return np.asarray(draw(jax.random.key(seed), _CLASSES, _IMAGES))


def test_images_follow_from_the_key_alone(monkeypatch):
  images = drawn(0)
  np.testing.assert_array_equal(drawn(0), images)
  assert (drawn(1) != images).mean() > 0.9

  def refused(*arguments, **options):
    raise AssertionError(f"read {arguments}")

  monkeypatch.setattr("builtins.open", refused)
  monkeypatch.setattr("io.open", refused)
  key = jax.random.key(0)
  found = jax.eval_shape(lambda key: scenes.scenes(key, 2, 3), key)
  assert (found.shape, found.dtype) == ((2, 3, 32, 32, 3), jnp.uint8)


def test_images_of_a_law_are_alike_and_none_is_drawn_twice():
  images = drawn(2)
  rows = images.reshape(_CLASSES * _IMAGES, -1).astype(float)
  assert len(np.unique(rows, axis=0)) == len(rows)
  # The nearest mean of the other images of a class, by pixels alone.
  by_class = rows.reshape(_CLASSES, _IMAGES, -1)
  others = by_class.sum(1, keepdims=True) - by_class
  means = others.swapaxes(0, 1) / (_IMAGES - 1)  # [without, class, pixels]
  distances = ((by_class[:, :, None] - means) ** 2).sum(-1)
  right = distances.argmin(-1) == np.arange(_CLASSES)[:, None]
  assert right.mean() > 2.5 / _CLASSES
  # Yet the images of a class differ widely.
  within, between = by_class.std(1).mean(), rows.std(0).mean()
  assert 0.5 * between < within < between


def test_brightness_and_colours_spread_as_in_photographs():
  images = drawn(3)
  assert images.min() == 0 and images.max() == 255
  assert 80 < images.mean() < 170 and 35 < images.std() < 90
  # Channels go together.
  channels = np.corrcoef(images.reshape(-1, 3).T)
  assert channels.min() > 0.5
