"""Augmentation as a network's first, random layer.

It draws for every example anew while a task is trained on, and for nothing
else: validation, test and what leaves the project see the images as they are.
All of it happens inside a task, before its gradient is clipped, so that it
costs no privacy; gradients of several draws of one task can be averaged there
too (De et al., "Unlocking High-Accuracy Differentially Private Image
Classification through Scale", 2022, section 3: augmentation multiplicity).
"""

import functools

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import options
from episodic_dp.models import model as model_lib


def augment(
    augmentation: options.Augmentation, key: jax.Array, image: jax.Array
) -> jax.Array:
  """Return an image [H, W, C] with random changes, of the same dtype."""
  shift_key, flip_key, colour_key = jax.random.split(key, 3)
  if augmentation.shift:
    margin = ((augmentation.shift, augmentation.shift),) * 2 + ((0, 0),)
    starts = jax.random.randint(shift_key, (2,), 0, 2 * augmentation.shift + 1)
    image = lax.dynamic_slice(
        jnp.pad(image, margin, "edge"), (*starts, 0), image.shape
    )
  if augmentation.flip:
    mirrored = jax.random.bernoulli(flip_key)
    image = jnp.where(mirrored, image[:, ::-1], image)
  if augmentation.colour:
    low, high = 1 - augmentation.colour, 1 + augmentation.colour
    brightness, contrast = jax.random.uniform(
        colour_key, (2,), image.dtype, low, high
    )
    mean = image.mean()
    image = brightness * mean + contrast * (image - mean)
  return image


def augmented(
    model: model_lib.Model, augmentation: options.Augmentation
) -> model_lib.Model:
  """The network that sees its images so while it is trained.

  Args:
    model: of images [n, H, W, C].
    augmentation: what happens to them; the network itself if nothing does.

  Raises:
    ValueError: its examples are no images.
  """
  if not augmentation.changes:
    return model
  shape = model.input_shape
  if shape is not None and len(shape) != 3:
    raise ValueError(
        f"augmentation moves and mirrors images, and an example has the shape"
        f" {shape}: leave it out"
    )

  def random(
      params: model_lib.Params, images: jax.Array, key: jax.Array
  ) -> jax.Array:
    own, inner = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
    keys = jax.random.split(own, images.shape[0])
    changed = functools.partial(augment, augmentation)
    images = jax.vmap(changed)(keys, images)
    if model.random is None:
      return model.apply(params, images)
    return model.random(params, images, inner)

  return model._replace(random=random, draws=augmentation.draws)
