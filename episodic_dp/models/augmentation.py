"""Augmentation as a network's first, random layer.

It draws for every example anew while a task is trained on, and for nothing
else: validation, test and what leaves the project see the images as they are.
All of it happens inside a task, before its gradient is clipped, so that it
costs no privacy; gradients of several draws of one task can be averaged there
too (De et al., "Unlocking High-Accuracy Differentially Private Image
Classification through Scale", 2022, section 3: augmentation multiplicity).
"""

import dataclasses

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import model as model_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
  """What may happen to an image [H, W, C].

  Attributes:
    shift: it is moved by up to so many pixels along each axis, equally likely;
      its border is repeated where it leaves a gap.
    flip: it is mirrored left to right, in one of two cases.
    colour: its brightness and its contrast are multiplied by factors between
      1 - colour and 1 + colour, at least 0 and at most 1.
    draws: of a task, whose gradients are averaged before they are clipped; the
      time of a step grows with them.
  """

  shift: int = 0
  flip: bool = False
  colour: float = 0.0
  draws: int = 1

  def __post_init__(self) -> None:
    if self.shift < 0 or self.draws < 1 or not 0 <= self.colour <= 1:
      raise ValueError(
          f"augmentation shift={self.shift}, colour={self.colour} and"
          f" draws={self.draws}: give a shift of at least 0 pixels, a colour"
          " between 0 and 1 and at least 1 draw"
      )
    if self.draws > 1 and not self.changes:
      raise ValueError(
          f"augmentation draws={self.draws} would give one image so many times:"
          " set shift, flip or colour too, or draws=1"
      )

  @property
  def changes(self) -> bool:
    """Whether any image is changed at all."""
    return bool(self.shift or self.flip or self.colour)

  def image(self, key: jax.Array, image: jax.Array) -> jax.Array:
    """One image [H, W, C], as the key has it; the same shape and dtype."""
    shift_key, flip_key, colour_key = jax.random.split(key, 3)
    if self.shift:
      margin = ((self.shift, self.shift),) * 2 + ((0, 0),)
      starts = jax.random.randint(shift_key, (2,), 0, 2 * self.shift + 1)
      image = lax.dynamic_slice(
          jnp.pad(image, margin, "edge"), (*starts, 0), image.shape
      )
    if self.flip:
      mirrored = jax.random.bernoulli(flip_key)
      image = jnp.where(mirrored, image[:, ::-1], image)
    if self.colour:
      low, high = 1 - self.colour, 1 + self.colour
      brightness, contrast = jax.random.uniform(
          colour_key, (2,), image.dtype, low, high
      )
      mean = image.mean()
      image = brightness * mean + contrast * (image - mean)
    return image


def augmented(
    model: model_lib.Model, augmentation: Augmentation
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
    images = jax.vmap(augmentation.image)(keys, images)
    if model.random is None:
      return model.apply(params, images)
    return model.random(params, images, inner)

  return model._replace(random=random, draws=augmentation.draws)
