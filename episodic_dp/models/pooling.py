"""Max-pooling whose derivatives of every order are selections.

`lax.reduce_window`, the usual pool, has a slow second derivative.
"""

import jax
import jax.numpy as jnp


def max_pool(x: jax.Array) -> jax.Array:
  """The 2x2 max-pool with stride 2, odd edges dropped ("VALID").

  Pairs of rows, then of columns, are compared and the larger chosen: the
  gradient goes to the first largest entry and is a selection of any order.

  Args:
    x: [n, H, W, C].

  Returns:
    [n, H // 2, W // 2, C].
  """
  n, height, width, channels = x.shape
  height, width = height // 2, width // 2
  x = x[:, : 2 * height, : 2 * width]
  x = x.reshape(n, height, 2, width, 2, channels)
  top, bottom = x[:, :, 0], x[:, :, 1]
  rows = jnp.where(top >= bottom, top, bottom)
  left, right = rows[:, :, :, 0], rows[:, :, :, 1]
  return jnp.where(left >= right, left, right)


def max_pool_pairs(x: jax.Array) -> jax.Array:
  """The same along one axis: pairs of columns alone, [n, H, W // 2, C]."""
  n, height, width, channels = x.shape
  width = width // 2
  x = x[:, :, : 2 * width].reshape(n, height, width, 2, channels)
  left, right = x[:, :, :, 0], x[:, :, :, 1]
  return jnp.where(left >= right, left, right)
