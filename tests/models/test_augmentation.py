"""Augmentation: what it does to an image, and that training alone sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models.augmentation import augment

KEYS = jax.random.split(jax.random.key(0), 64)


def images_of(image, **options):
  augmentation = models.Augmentation(**options)
  found = jax.vmap(lambda k: augment(augmentation, k, jnp.asarray(image)))(KEYS)
  return np.asarray(found)


def test_a_shift_moves_the_image_and_repeats_its_border():
  image = np.arange(30, dtype=np.float32).reshape(5, 6, 1)
  padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), "edge")
  expected = {
      padded[i : i + 5, j : j + 6].tobytes() for i in range(5) for j in range(5)
  }
  found = {a.tobytes() for a in images_of(image, shift=2)}
  assert found <= expected and len(found) > 15


def test_a_flip_mirrors_about_half_of_the_images():
  image = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
  found = images_of(image, flip=True)
  mirrored = [np.array_equal(a, image[:, ::-1]) for a in found]
  same = [np.array_equal(a, image) for a in found]
  assert all(m or s for m, s in zip(mirrored, same))
  assert 16 < sum(mirrored) < 48


def test_colour_scales_brightness_and_contrast():
  image = np.random.default_rng(0).random((4, 4, 3), np.float32)
  for found in images_of(image, colour=0.4):
    brightness = found.mean() / image.mean()
    contrast = found.std() / image.std()
    assert 0.6 - 1e-5 <= brightness <= 1.4 + 1e-5
    assert 0.6 - 1e-5 <= contrast <= 1.4 + 1e-5
    np.testing.assert_allclose(
        found - found.mean(), contrast * (image - image.mean()), atol=1e-5
    )


def linear():
  return models.Model(
      init=lambda key: jnp.zeros(()),
      apply=lambda params, images: images.sum((2, 3)) + params,
      mixes_examples=False,
      input_shape=(4, 4, 1),
  )


def test_only_a_network_that_draws_sees_it():
  model = models.augmented(linear(), models.Augmentation(shift=1, flip=True))
  images = jax.random.uniform(jax.random.key(1), (3, 4, 4, 1))
  plain = linear().apply(0.0, images)
  np.testing.assert_array_equal(model.apply(0.0, images), plain)
  drawn = [model.drawing(k).apply(0.0, images) for k in KEYS[:8]]
  assert any(not np.array_equal(d, plain) for d in drawn)
  np.testing.assert_array_equal(
      drawn[0], model.drawing(KEYS[0]).apply(0.0, images)
  )
  # Support and query of one task are drawn apart.
  passes = model.drawing(KEYS[0])
  assert not np.array_equal(passes.in_pass(0).apply(0.0, images), drawn[0])


def test_nothing_to_do_leaves_the_network():
  model = linear()
  assert models.augmented(model, models.Augmentation()) is model


@pytest.mark.parametrize(
    "options",
    [dict(shift=-1), dict(colour=1.5), dict(flip=True, draws=0), dict(draws=2)],
)
def test_what_cannot_be_is_refused(options):
  with pytest.raises(ValueError, match="augmentation"):
    models.Augmentation(**options)


def test_features_are_not_moved():
  model = linear()._replace(input_shape=(7,))
  with pytest.raises(ValueError, match="leave it out"):
    models.augmented(model, models.Augmentation(flip=True))
