"""Coloured blobs: generated images for the public start `scenes`.

A class is a law: the outlines, places, colours and textures of up to three
parts, and the colours and texture of a background. An image is a draw from it:
another pose, light and background, other noise, outlines and places that differ
a little. Colours spread as those of photographs do: much lightness, little hue.
"""

from typing import Any

import jax
from jax import image as jax_image
import jax.numpy as jnp

SIZE = 32
_PARTS, _WAVES, _OCTAVES = 3, 8, 4
_CHANGE = 2.0  # From one image of a class to another.
_FREQUENCY = jnp.tile(jnp.arange(1, _WAVES + 1), 2)  # Of cosines, then sines.
_Y, _X = jnp.meshgrid(*[jnp.linspace(-1, 1, SIZE)] * 2, indexing="ij")
# Lightness, blue to yellow, green to magenta; and their standard deviations.
_AXES = jnp.asarray(
    [[0.577, 0.577, 0.577], [0.707, 0.0, -0.707], [0.408, -0.816, 0.408]]
)
_SPREAD = jnp.asarray([0.38, 0.13, 0.05])

_normal, _uniform = jax.random.normal, jax.random.uniform


def draw(key: jax.Array, classes: int, count: int) -> jax.Array:
  """Draw scenes, float32[classes, count, 32, 32, 3] from 0 to 1.

  Args:
    key: public.
    classes: number of laws.
    count: images of each.
  """
  of_class, of_image = jax.random.split(key)
  laws = jax.vmap(_law)(jax.random.split(of_class, classes))
  keys = jax.random.split(of_image, (classes, count))
  return jax.vmap(jax.vmap(_image, in_axes=(0, None)))(keys, laws)


def _law(key: jax.Array) -> dict[str, Any]:
  """Return the numbers of a class; the last texture is the background's."""
  keys = jax.random.split(key, 9)
  place = jnp.asarray([0.08, 0.35, 0.45])[:, None]
  size = jnp.asarray([0.62, 0.34, 0.26])
  outline = _normal(keys[0], (_PARTS, 2 * _WAVES))
  return dict(
      outline=0.45 * outline / _FREQUENCY**1.2,
      place=place * _normal(keys[1], (_PARTS, 2)),
      size=size * jnp.exp(0.3 * _normal(keys[2], (_PARTS,))),
      stretch=0.3 * _normal(keys[3], (_PARTS,)),
      color=_normal(keys[4], (_PARTS, 3)),
      ground=_normal(keys[5], (2, 3)),
      contrast=0.8 * _uniform(keys[6], (_PARTS + 1,)),
      rough=_uniform(keys[7], (_PARTS + 1,), minval=0.3, maxval=1.6),
      # Parts that are there, and how much of the background is the image's own.
      shares=_uniform(keys[8], (2,)),
  )


def _image(key: jax.Array, law: dict[str, Any]) -> jax.Array:
  """Draw one image of a class, float32[32, 32, 3]."""
  keys = jax.random.split(key, 8)
  pose = _CHANGE * jnp.asarray([0.25, 0.22, 0.1, 0.1]) * _normal(keys[0], (4,))
  y, x = _posed(pose, jax.random.bernoulli(keys[1]))
  change = _CHANGE * _normal(keys[2], (_PARTS, 6 + 2 * _WAVES))
  textures = jax.vmap(_texture)(
      jax.random.split(keys[3], _PARTS + 1), law["rough"], law["contrast"]
  )
  light = _normal(keys[4], (5,))
  own = 0.3 + 0.7 * law["shares"][0]
  mixed = jnp.sqrt(1 - own**2) * law["ground"]
  mixed += own * _normal(keys[5], (2, 3))
  share = 4 * (light[0] * _Y + light[1] * _X) - 2 * light[2]
  share = jax.nn.sigmoid(share)[..., None]
  found = share * mixed[0] + (1 - share) * mixed[1] + textures[-1]
  shade = jnp.asarray([0.35, 0.0, 0.0])
  shade = shade * (light[3] * _Y + light[4] * _X)[..., None]
  for p in range(_PARTS):
    shift, color, waves = jnp.split(change[p], [3, 6])
    at = law["place"][p] + 0.06 * shift[:2]
    inside = _blob(
        law["outline"][p] + 0.1 * waves / _FREQUENCY,
        law["size"][p],
        y - at[0],
        x - at[1],
        law["stretch"][p] + 0.1 * shift[2],
    )
    inside *= p <= _PARTS * law["shares"][1]
    color = 0.35 * jnp.asarray([1.0, 0.6, 0.5]) * color + law["color"][p]
    part = color + textures[p] + shade
    found = found * (1 - inside) + part * inside
  exposure = _normal(keys[6], (5,))
  pixels = (0.47 + (found * _SPREAD) @ _AXES - 0.5) * jnp.exp(0.2 * exposure[0])
  pixels += 0.5 + 0.08 * exposure[1] + 0.03 * exposure[2:]
  return jnp.clip(pixels, 0, 1)


def _posed(pose: jax.Array, mirrored: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Return the plane [32, 32] as turned, scaled, shifted and mirrored."""
  turn, zoom, down, right = pose
  y = (_Y - down) * jnp.exp(-zoom)
  x = (jnp.where(mirrored, -_X, _X) - right) * jnp.exp(-zoom)
  cos, sin = jnp.cos(turn), jnp.sin(turn)
  return cos * y - sin * x, sin * y + cos * x


def _texture(
    key: jax.Array, rough: jax.Array, contrast: jax.Array
) -> jax.Array:
  """Return noise [32, 32, 3] of four octaves, each `rough` times the last."""
  total = jnp.zeros((SIZE, SIZE, 3))
  for octave, own in enumerate(jax.random.split(key, _OCTAVES)):
    side = 4 * 2**octave
    noise = _normal(own, (side, side, 3))
    noise = jax_image.resize(noise, total.shape, "linear")
    total += rough**octave * noise
  powers = rough ** (2.0 * jnp.arange(_OCTAVES))
  return contrast * total / jnp.sqrt(powers.sum())


def _blob(
    outline: jax.Array,
    size: jax.Array,
    y: jax.Array,
    x: jax.Array,
    stretch: jax.Array,
) -> jax.Array:
  """Return a soft mask [32, 32, 1] whose radius is a sum of waves."""
  x, y = x * jnp.exp(stretch), y * jnp.exp(-stretch)
  angles = _FREQUENCY[:, None, None] * jnp.arctan2(y, x)
  waves = jnp.concatenate([jnp.cos(angles[:_WAVES]), jnp.sin(angles[_WAVES:])])
  radius = 1 + jnp.tensordot(outline, waves, 1)
  radius = size * jnp.clip(radius, 0.15, 2.2)
  return jax.nn.sigmoid((radius - jnp.hypot(x, y)) / 0.05)[..., None]
