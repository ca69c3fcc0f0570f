"""Augmentation drawn per task: whole classes turned by quarter turns."""

import jax
import jax.numpy as jnp


def rotate_classes(key: jax.Array, images: jax.Array) -> jax.Array:
  """Turn each class of a task by 0, 90, 180 or 270 degrees, equally likely.

  All images of a class are turned alike, support and query, so that a turned
  class is a class of its own (Santoro et al., 2016, for Omniglot). The turn
  depends on the key alone, never on the images.

  Args:
    key: the task's key for rotations.
    images: [way, n, H, W, C] with H = W, any dtype.

  Returns:
    The turned images, same shape and dtype.

  Raises:
    ValueError: images are not square or not of five dimensions.
  """
  if images.ndim != 5:
    raise ValueError(
        f"images of shape {images.shape} cannot be rotated by class: give"
        " [way, n, height, width, channels]"
    )
  if images.shape[2] != images.shape[3]:
    raise ValueError(
        f"images of {images.shape[2]} by {images.shape[3]} pixels cannot be"
        " turned by 90 degrees: use square images or rotate=False"
    )
  bits = jax.random.bits(key, (images.shape[0],), jnp.uint32)
  bits = bits.reshape(-1, 1, 1, 1, 1)
  half, quarter = (bits & 2).astype(bool), (bits & 1).astype(bool)
  images = jnp.where(half, jnp.flip(images, (2, 3)), images)
  return jnp.where(quarter, jnp.rot90(images, axes=(2, 3)), images)
