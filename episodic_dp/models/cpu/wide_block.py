"""A block of many channels on many images, by the tiles of `winograd`."""

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import normalization
from episodic_dp.models.cpu import phases as phases_lib
from episodic_dp.models.cpu import winograd

# From here on tiles are quicker than a plain convolution. For the few images of
# a support set they are slower, and many times slower in second order; for
# small images they gain little and take as long to compile.
_CHANNELS, _IMAGES, _PIXELS = 64, 32, 100


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Whether `apply` takes these shapes, and is the quicker way."""
  kh, kw, channels, features = kernel_shape
  return (
      (kh, kw) == (3, 3)
      and x_shape[0] >= _IMAGES
      and x_shape[1] * x_shape[2] >= _PIXELS
      and min(channels, features) >= _CHANNELS
  )


def apply(
    x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array
) -> jax.Array:
  """3x3 convolution, batch normalisation, 2x2 max-pool.

  Equal to `max_pool(batch_norm(convolve(x, kernel), scale, bias))` up to
  rounding; the largest of four outputs is chosen first and normalised then.
  Reverse mode of any order only.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].
    scale: [Cout].
    bias: [Cout].

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  n, height, width, _ = x.shape
  phases = winograd.convolve(x, kernel)
  count = n * height * width
  mean = sum(p.sum((0, 1, 2)) for p in phases) / count
  squares = sum(jnp.square(p - mean).sum((0, 1, 2)) for p in phases)
  factor = scale * lax.rsqrt(squares / count + normalization.EPSILON)
  whole = tuple(p[:, : height // 2, : width // 2] for p in phases)
  which = phases_lib.first_largest(tuple(p * factor for p in whole))
  return (phases_lib.choose(whole, which) - mean) * factor + bias
