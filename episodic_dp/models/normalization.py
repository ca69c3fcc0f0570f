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

EPSILON = 1e-5
MAX_GROUPS = 8


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Mean 0 and variance 1 per channel over all other axes, then affine.

  Ioffe and Szegedy, "Batch Normalization" (2015), eq. of Algorithm 1, with the
  current batch's (biased) variance.

  Args:
    x: [n, ..., C], such as [n, H, W, C] or [n, features].
    scale: [C].
    bias: [C].
  """
  others = tuple(range(x.ndim - 1))
  mean = x.mean(others)
  centred = x - mean
  variance = jnp.square(centred).mean(others)
  return centred * (scale * lax.rsqrt(variance + EPSILON)) + bias


def num_groups(channels: int) -> int:
  """The largest number of groups up to 8 that divides the channels."""
  return math.gcd(channels, MAX_GROUPS)


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Mean 0 and variance 1 per example and group of channels, then affine.

  Wu and He, "Group Normalization" (2018). Examples are not mixed.

  Args:
    x: [n, ..., C]; `num_groups(C)` groups of consecutive channels.
    scale: [C].
    bias: [C].
  """
  n, channels = x.shape[0], x.shape[-1]
  space = tuple(range(1, x.ndim - 1))

  def mean(x):
    # Over space first: what is left is small, and a CPU adds whole rows.
    members = x.mean(space).reshape(n, num_groups(channels), -1)
    shared = jnp.broadcast_to(members.mean(-1, keepdims=True), members.shape)
    return shared.reshape(n, *(1 for _ in space), channels)

  centred = x - mean(x)
  variance = mean(jnp.square(centred))
  return centred * (scale * lax.rsqrt(variance + EPSILON)) + bias
