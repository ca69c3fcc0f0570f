"""Normalisation by the statistics of what is at hand; nothing is carried.

Batch normalisation uses the current batch (one task's support or query set):
it mixes the examples of a task, which is sound where the task is the clip
unit. Statistics carried from task to task are not sound and have no place
here.
"""

import math

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import convolution
from episodic_dp.models import pooling
from episodic_dp.models import winograd

EPSILON = 1e-5
MAX_GROUPS = 8


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Mean 0 and variance 1 per channel over batch and space, then affine.

  Ioffe and Szegedy, "Batch Normalization" (2015), eq. of Algorithm 1, with the
  current batch's (biased) variance.

  Args:
    x: [n, H, W, C].
    scale: [C].
    bias: [C].
  """
  mean = x.mean((0, 1, 2))
  centred = x - mean
  variance = jnp.square(centred).mean((0, 1, 2))
  return centred * (scale * lax.rsqrt(variance + EPSILON)) + bias


def num_groups(channels: int) -> int:
  """The largest number of groups up to 8 that divides the channels."""
  return math.gcd(channels, MAX_GROUPS)


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Mean 0 and variance 1 per example and group of channels, then affine.

  Wu and He, "Group Normalization" (2018). Examples are not mixed.

  Args:
    x: [n, H, W, C]; `num_groups(C)` groups of consecutive channels.
    scale: [C].
    bias: [C].
  """
  n, height, width, channels = x.shape
  groups = num_groups(channels)
  y = x.reshape(n, height, width, groups, channels // groups)
  mean = y.mean((1, 2, 4), keepdims=True)
  centred = y - mean
  variance = jnp.square(centred).mean((1, 2, 4), keepdims=True)
  y = centred * lax.rsqrt(variance + EPSILON)
  return y.reshape(x.shape) * scale + bias


def convolve_batch_norm(
    x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array
) -> jax.Array:
  """`batch_norm(convolve(x, kernel), scale, bias)`, cheaper for few channels.

  A convolution is linear in its patches, so that the mean and variance of its
  output follow from the mean and covariance of the patches. Where a patch has
  no more entries than the output has channels (the first layer: 9 entries for
  1 input channel) the *kernel* is normalised instead of the output, which
  saves every pass over it; and the covariance of the images is the same in all
  inner steps. Elsewhere it is the plain composition.

  Args:
    x: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout].
    scale: [Cout].
    bias: [Cout].

  Returns:
    [n, H, W, Cout].
  """
  kh, kw, channels, features = kernel.shape
  entries = kh * kw * channels
  if entries > features:
    return batch_norm(convolution.same(x, kernel), scale, bias)
  windows = convolution.patches(x, (kh, kw))
  rows = windows.reshape(-1, entries)
  mean = rows.mean(0)
  centred = rows - mean
  covariance = centred.T @ centred / rows.shape[0]
  weights = kernel.reshape(entries, features)
  # Rounding may take a variance of nearly zero below it.
  variance = jnp.maximum(jnp.sum(weights * (covariance @ weights), axis=0), 0)
  weights = weights * (scale * lax.rsqrt(variance + EPSILON))
  output = rows @ weights + (bias - mean @ weights)
  return output.reshape(*windows.shape[:3], features)


def convolve_batch_norm_pool(
    x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array
) -> jax.Array:
  """`max_pool(batch_norm(convolve(x, kernel), scale, bias))` by tiles.

  The largest of four outputs is chosen first and normalised then.

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
  factor = scale * lax.rsqrt(squares / count + EPSILON)
  whole = tuple(p[:, : height // 2, : width // 2] for p in phases)
  which = pooling.first_largest(tuple(p * factor for p in whole))
  return (pooling.choose(whole, which) - mean) * factor + bias
