"""Scenes in colour: a class is a law of random images, an image one draw of it.

A scene is a textured background under a few leaves, blobs with an outline and a
texture of their own (dead leaves: Baradad et al., "Learning to See by Looking
at Noise", NeurIPS 2021). Each property of a layer, such as its hue or the decay
of its spectrum, has one part that a class fixes and one that each image draws
anew. How large the first is differs from class to class: some classes agree in
their colours, others in their shapes. Place, size and light are mostly drawn
anew, as they are in photographs.

No image of the world is used.
"""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

SIZE = 32
_LAYERS = 3  # The background and two leaves.
_WAVES = 4  # Of an outline.
# Property -> its numbers, and the logit of the part that a class fixes.
_PROPERTIES = {
    "decay": (1, 1.7),
    "stretch": (1, 1.4),
    "grain": (1, 0.4),
    "brightness": (1, 0.0),
    "hue": (2, 0.6),
    "contrast": (1, 1.0),
    "tint": (3, 0.8),
    "second_tint": (3, 0.8),
    "place": (2, -1.0),
    "aspect": (1, 0.8),
    "turn": (1, -0.8),
    "size": (1, -0.4),
    "shade": (2, -0.8),
    "outline": (2 * _WAVES, 1.7),
}
_COUNTS = np.array([count for count, _ in _PROPERTIES.values()])
_OPPONENT = np.array([[1.0, 0.1, -1.1], [-0.5, 1.0, -0.5]])  # To RGB.


def scenes(key: jax.Array, classes: int, count: int) -> jax.Array:
  """Draw random classes of scenes, and images of each.

  Args:
    key: public.
    classes: number of classes.
    count: images of each.

  Returns:
    uint8[classes, count, 32, 32, 3].
  """
  of_law, of_part, of_image, of_pixels = jax.random.split(key, 4)
  law = (classes, 1, _LAYERS, _COUNTS.sum())
  logits = np.repeat([logit for _, logit in _PROPERTIES.values()], _COUNTS)
  logits = logits[None, None, None]
  fixed = jax.nn.sigmoid(0.8 + logits + jax.random.normal(of_part, law))
  numbers = jnp.sqrt(fixed) * jax.random.normal(of_law, law)
  drawn = jax.random.normal(of_image, (classes, count, *law[2:]))
  numbers = (numbers + jnp.sqrt(1 - fixed) * drawn).reshape(-1, *law[2:])
  keys = jax.random.split(of_pixels, len(numbers))
  images = jax.lax.map(
      lambda drawn: _scene(*drawn), (keys, numbers), batch_size=64
  )
  return images.reshape(classes, count, SIZE, SIZE, 3)


def _scene(key: jax.Array, numbers: jax.Array) -> jax.Array:
  """Return one scene, uint8[32, 32, 3].

  Args:
    key: of its pixels.
    numbers: standard normal, [layers, numbers of a layer].
  """
  parts = jnp.split(numbers.T[..., None, None], np.cumsum(_COUNTS)[:-1])
  of = dict(zip(_PROPERTIES, parts))  # Each [numbers, layers, 1, 1].
  of_texture, of_light, of_flip = jax.random.split(key, 3)
  side = np.linspace(-1, 1, SIZE)
  # Pixels as complex numbers, as seen by each leaf.
  x, y = of["place"]
  grid = jnp.asarray(side + 1j * side[:, None])[None]
  pixels = grid - 0.3 * lax.complex(x, y)
  pixels = pixels * jnp.exp(0.5j * _as_complex(of["turn"][0]))
  longer = jnp.exp(0.4 * of["aspect"][0])
  pixels = _as_complex(pixels.real * longer) + (
      1j * _as_complex(pixels.imag) / _as_complex(longer)
  )
  radius = jnp.abs(pixels) + 1e-3
  around = pixels / _as_complex(radius)
  real, imaginary = jnp.split(of["outline"], 2)
  outline = jnp.exp(0.35 * of["size"][0] - 0.5 + sum(
      0.3 / k**0.7 * (lax.complex(a, -b) * around**k).real
      for k, a, b in zip(range(1, _WAVES + 1), real, imaginary)
  ))
  inside = jax.nn.sigmoid((outline - radius) / 0.05)
  across, down = of["shade"]
  shade = 1 + 0.3 * (across * pixels.real + down * pixels.imag)
  hue = jnp.einsum("hlyx,hc->lyxc", of["hue"], [[0.1], [0.05]] * _OPPONENT)
  tint = jnp.exp(0.5 * of["contrast"] - 2.2) * (1 + 0.2 * of["tint"])
  first, second = _textures(of_texture, of)
  colour = 0.45 + 0.22 * of["brightness"] + first[None] * tint
  colour = colour + 0.04 * second[None] * of["second_tint"]
  layers = (jnp.moveaxis(colour, 0, -1) + hue) * shade[..., None]
  image = layers[0]
  for layer, mask in zip(layers[1:], inside[1:, ..., None]):
    image = image + mask * (layer - image)
  contrast, brightness, *cast = jax.random.normal(of_light, (5,))
  image = 0.45 + (image - 0.45) * jnp.exp(0.2 * contrast) + 0.05 * brightness
  image = image * jnp.exp(0.04 * jnp.stack(cast))[None, None]
  image = jnp.where(jax.random.bernoulli(of_flip), image, image[:, ::-1])
  return jnp.round(255 * jnp.clip(image, 0, 1)).astype(jnp.uint8)


def _textures(key: jax.Array, of: dict[str, jax.Array]) -> jax.Array:
  """Return two fields of each layer, [2, layers, 32, 32], of unit spread.

  They are Gaussian; the amplitude of a wave falls as a power of its frequency,
  at another rate along the grain than across it.
  """
  down, across = np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)
  wave = (across + 1j * down)[None] * jnp.exp(
      -2j * _as_complex(of["grain"][0])
  )
  stretch = jnp.exp(0.7 * of["stretch"][0])
  squared = wave.real**2 * stretch + wave.imag**2 / stretch + 1e-4
  decay = 1 + jax.nn.softplus(0.7 + 0.8 * of["decay"][0])
  amplitude = squared ** (-decay / 2)
  noise = jnp.fft.rfft2(jax.random.normal(key, (2, _LAYERS, SIZE, SIZE)))
  noise = noise * _as_complex(amplitude)[None]
  fields = jnp.fft.irfft2(noise, (SIZE, SIZE))
  fields = fields - fields.mean((2, 3), keepdims=True)
  return fields / (fields.std((2, 3), keepdims=True) + 1e-6)


def _as_complex(x: jax.typing.ArrayLike) -> jax.Array:
  return jnp.asarray(x, jnp.complex64)
