"""The first block of a network, on images of few channels.

Their patches have few entries (9 for one channel): the statistics of the
convolution's output follow from the patches' covariance, so that the *kernel*
is normalised and not the output, which then has no gradient but through the
pool. What every 2x2 pool compares lies in four arrays ("phases"), one product
each, so that the pool is elementwise. The patches and their covariance depend
on the images alone and are the same in all inner steps.
"""

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import normalization
from episodic_dp.models import pooling


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Whether `apply` takes these shapes, and is the quicker way."""
  kh, kw, channels, features = kernel_shape
  _, height, width, _ = x_shape
  return (
      (kh, kw) == (3, 3)
      and 9 * channels <= features
      and height % 2 == width % 2 == 0
  )


def apply(
    x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array
) -> jax.Array:
  """3x3 convolution, batch normalisation, 2x2 max-pool.

  Equal to `max_pool(batch_norm(convolve(x, kernel), scale, bias))` up to
  rounding. Reverse mode of any order only.

  Args:
    x: [n, H, W, Cin], H and W even.
    kernel: [3, 3, Cin, Cout].
    scale: [Cout].
    bias: [Cout].

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  n, height, width, _ = x.shape
  features = kernel.shape[-1]
  phases = _patches(x)
  weights, offset = _normalised(
      phases, kernel.reshape(-1, features), scale, bias
  )
  best = pooling.max_of_phases(tuple(p.T @ weights for p in phases))
  best = best + offset
  return best.reshape(n, height // 2, width // 2, features)


def _patches(x):
  """Four arrays [9 * Cin, n * H/2 * W/2]: the patches of each pool entry."""
  n, height, width, channels = x.shape
  x = jnp.pad(jnp.moveaxis(x, 3, 0), ((0, 0), (0, 0), (1, 1), (1, 1)))

  def phase(p, q):
    rows = [
        x[:, :, i + p : i + p + height : 2, j + q : j + q + width : 2]
        for i in range(3)
        for j in range(3)
    ]
    return jnp.stack(rows).reshape(9 * channels, -1)

  return [phase(p, q) for p in range(2) for q in range(2)]


def _normalised(phases, weights, scale, bias):
  """Weights [entries, Cout] and an offset [Cout] after which it is normal."""
  count = 4 * phases[0].shape[1]
  mean = sum(p.sum(1) for p in phases) / count
  centred = [p - mean[:, None] for p in phases]
  covariance = sum(p @ p.T for p in centred) / count
  # Rounding may take a variance of nearly zero below it.
  variance = jnp.maximum(jnp.sum(weights * (covariance @ weights), axis=0), 0)
  weights = weights * (scale * lax.rsqrt(variance + normalization.EPSILON))
  return weights, bias - mean @ weights
