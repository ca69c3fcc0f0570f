"""Layers that networks are made of: norms, pools, blocks, and their forms.

Normalisation uses the statistics at hand and carries nothing. Batch
normalisation uses the current batch (one task's support or query set): it mixes
the examples of a task, which is sound where the task is the clip unit.
Statistics carried from task to task are not sound and have no place here.
"""

import math
from typing import Literal

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp.models import convolution
from episodic_dp.models import cpu

Norm = Literal["batch", "group", "none"]
NEGATIVE_SLOPE = 0.01
BLOCKS = 4
GLOROT = nn.initializers.glorot_uniform()
_MAX_GROUPS = 8
EPSILON = cpu.EPSILON


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Normalise each channel over all other axes, then scale and shift.

  Ioffe and Szegedy, "Batch Normalization" (2015), eq. of Algorithm 1, with the
  current batch's (biased) variance.

  Args:
    x: [n, ..., C], such as [n, H, W, C] or [n, features].
    scale: [C].
    bias: [C].
  """
  others = tuple(range(x.ndim - 1))
  centred = x - x.mean(others)
  variance = jnp.square(centred).mean(others)
  return centred * (scale * lax.rsqrt(variance + EPSILON)) + bias


def num_groups(channels: int) -> int:
  """Return the largest number of groups up to 8 that divides the channels."""
  return math.gcd(channels, _MAX_GROUPS)


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Normalise each example and group of channels, then scale and shift.

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


def max_pool(x: jax.Array) -> jax.Array:
  """Pool 2x2 with stride 2 by the maximum, odd edges dropped ("VALID").

  Pairs of rows, then of columns, are compared and the larger chosen: the
  gradient goes to the first largest entry and is a selection of any order.
  `lax.reduce_window`, the usual pool, has a slow second derivative.

  Args:
    x: [n, H, W, C].

  Returns:
    [n, H // 2, W // 2, C].
  """
  return max_pool_pairs(max_pool_pairs(x, 1), 2)


def max_pool_pairs(x: jax.Array, axis: int = 2) -> jax.Array:
  """Pool pairs along one axis alone: [n, H, W // 2, C] for axis 2."""
  half = x.shape[axis] // 2
  x = lax.slice_in_dim(x, 0, 2 * half, axis=axis)
  x = x.reshape(*x.shape[:axis], half, 2, *x.shape[axis + 1 :])
  first, second = (lax.index_in_dim(x, i, axis + 1, False) for i in range(2))
  return jnp.where(first >= second, first, second)


def leaky_relu(x: jax.Array, slope: float = NEGATIVE_SLOPE) -> jax.Array:
  """Return x where it is not negative, elsewhere slope * x."""
  return jnp.where(x >= 0, x, slope * x)


def check(
    width: int, norm: str, spatial: tuple[int, ...], *, after: int = 0
) -> None:
  """Raise ValueError unless a network of four pooled blocks exists.

  Args:
    width: the least channels of a block.
    norm: see `networks.Conv4`.
    spatial: (H, W) of an image, or the length of a series.
    after: blocks after the last of the four poolings.
  """
  _validate.one_of("norm", norm, ("batch", "group", "none"))
  _validate.count("width", width, 1)
  least = 2**BLOCKS
  if min(spatial) < least:
    raise _validate.refusal(
        "input_shape", spatial,
        f"at least {least} along each axis, for {BLOCKS} poolings by 2",
    )
  alone = all(length // least == 1 for length in spatial)
  if norm == "group" and after and alone and num_groups(width) == width:
    # Single numbers are normalised: nothing would be left of them.
    raise _validate.refusal(
        "width", width, f"at least {2 * _MAX_GROUPS} with norm='group'"
    )


def convolved(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array,
    norm: Norm,
) -> jax.Array:
  """Convolve to the same size, then normalise.

  Args:
    x: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout], kh and kw odd.
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `networks.Conv4`.

  Returns:
    [n, H, W, Cout].
  """
  if backends.choices().own_forms and cpu.fits(x.shape, kernel.shape):
    x = cpu.same(x, kernel)
  else:
    x = convolution.same(x, kernel)
  if scale is None:
    return x + bias
  return (batch_norm if norm == "batch" else group_norm)(x, scale, bias)


def block(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array,
    norm: Norm,
) -> jax.Array:
  """Convolve 3x3, normalise, pool 2x2 and apply the LeakyReLU 0.01.

  The pooling goes first and the LeakyReLU, which is increasing, after it: the
  values are the same and there are four times fewer of them. On a CPU a first
  block has its own form, equal up to rounding. Reverse mode of any order only.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `networks.Conv4`.

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  own = norm == "batch" and backends.choices().own_forms
  own = own and cpu.fits_first_block(x.shape, kernel.shape)
  if own and scale is not None:
    return leaky_relu(cpu.first_block(x, kernel, scale, bias))
  return leaky_relu(max_pool(convolved(x, kernel, scale, bias, norm)))


class Convolution(nn.Module):
  """Convolution of the same size and norm, or a whole pooled block.

  Attributes:
    width: its channels.
    norm: see `networks.Conv4`.
    window: its height and width, odd.
    pooled: whether it is a `block`.
  """

  width: int
  norm: Norm
  window: tuple[int, int] = (3, 3)
  pooled: bool = False

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Map [n, H, W, C] to [n, H, W, width], or half of H and W if pooled."""
    shape = (*self.window, x.shape[-1], self.width)
    kernel = self.param("kernel", GLOROT, shape)
    scale = None
    if self.norm != "none":
      scale = self.param("scale", nn.initializers.ones, (self.width,))
    bias = self.param("bias", nn.initializers.zeros, (self.width,))
    apply = block if self.pooled else convolved
    return apply(x, kernel, scale, bias, self.norm)


def head(way: int | None, features: jax.Array) -> jax.Array:
  """Apply a linear layer "head" to features [n, d]; none for way None.

  Called within the `__call__` of a module.
  """
  if way is None:
    return features
  return nn.Dense(way, kernel_init=GLOROT, name="head")(features)
