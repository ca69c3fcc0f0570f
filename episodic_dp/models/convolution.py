"""Convolution as one matrix product: patches times kernel.

After one inner step every task has weights of its own, and `vmap` turns a
convolution with per-task kernels into a grouped convolution, which is slow on
every backend (and its second-order gradients slower still). Written as a
product of patches `[n H W, kh kw Cin]` and a kernel `[kh kw Cin, Cout]`, the
same `vmap` gives a batched matrix product. Every operation here is a slice, a
concatenation, a pad or a product, so it can be differentiated any number of
times, in either mode.
"""

from collections.abc import Sequence
import functools
import math
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp


def patches(
    images: jax.Array,
    window: tuple[int, int] = (3, 3),
    padding: Sequence[tuple[int, int]] | None = None,
) -> jax.Array:
  """Every window of the zero-padded images, laid out along the channels.

  Args:
    images: [n, H, W, C].
    window: (kh, kw), its height and width.
    padding: rows added (above, below) and columns added (left, right); None
      keeps the size ("SAME").

  Returns:
    [n, H', W', kh * kw * C], ordered like a reshaped kernel [kh, kw, C, ...].
  """
  kh, kw = window
  if padding is None:
    padding = [((k - 1) // 2, k // 2) for k in window]
  padded = jnp.pad(images, ((0, 0), *padding, (0, 0)))
  height = padded.shape[1] - kh + 1
  width = padded.shape[2] - kw + 1
  shifted = [
      padded[:, i : i + height, j : j + width]
      for i in range(kh)
      for j in range(kw)
  ]
  return jnp.concatenate(shifted, axis=-1) if len(shifted) > 1 else shifted[0]


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    padding: Sequence[tuple[int, int]] | None = None,
    precision: Any = None,
) -> jax.Array:
  """The stride-1 convolution of images with a kernel.

  Args:
    images: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout].
    padding: as in `patches`.
    precision: of the matrix product, as in `jax.lax.dot`.

  Returns:
    [n, H', W', Cout]; equal to `lax.conv_general_dilated` up to rounding.

  Raises:
    ValueError: the kernel's input channels differ from the images'.
  """
  kh, kw, channels, features = kernel.shape
  if images.ndim != 4 or images.shape[-1] != channels:
    raise ValueError(
        f"images of shape {images.shape} do not fit a kernel of shape"
        f" {kernel.shape}: give [n, H, W, {channels}]"
    )
  windows = patches(images, (kh, kw), padding)
  product = jnp.dot(
      windows.reshape(-1, kh * kw * channels),
      kernel.reshape(kh * kw * channels, features),
      precision=precision,
  )
  return product.reshape(*windows.shape[:3], features)


@jax.custom_vjp
def same(images: jax.Array, kernel: jax.Array) -> jax.Array:
  """`convolve` for odd windows and the same size, with quicker gradients.

  The gradient of the images is again such a convolution, of the flipped
  kernel, and that of the kernel one product of patches that are there already:
  every pass ends in a matrix product, of any order of differentiation. Reverse
  mode only.

  Args:
    images: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout], kh and kw odd.

  Returns:
    [n, H, W, Cout].
  """
  return convolve(images, kernel)


def flipped(kernel: jax.Array) -> jax.Array:
  """The kernel whose convolution is the gradient of the images."""
  return jnp.swapaxes(kernel[::-1, ::-1], 2, 3)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def correlate(
    images: jax.Array, slope: jax.Array, window: tuple[int, int]
) -> jax.Array:
  """The gradient of `same`'s kernel.

  Args:
    images: [n, H, W, Cin].
    slope: [n, H, W, Cout], of the output.
    window: (kh, kw).

  Returns:
    [kh, kw, Cin, Cout].
  """
  channels, features = images.shape[-1], slope.shape[-1]
  rows = patches(images, window).reshape(-1, math.prod(window) * channels)
  # [Cout, entries]: the other way round the product is slow on a CPU.
  product = slope.reshape(-1, features).T @ rows
  return jnp.moveaxis(product.reshape(features, *window, channels), 0, -1)


def tie(same: Any, correlate: Any) -> None:
  """Make each of a pair such as `same` and `correlate` the other's gradient.

  Both are linear in two arguments, so that the gradients of every order are
  made of the two.

  Args:
    same: a `jax.custom_vjp` of (images, kernel).
    correlate: one of (images, slope, window), the last not differentiated.
  """
  same.defvjp(
      lambda images, kernel: (same(images, kernel), (images, kernel)),
      lambda saved, slope: (
          same(slope, flipped(saved[1])),
          correlate(saved[0], slope, saved[1].shape[:2]),
      ),
  )
  correlate.defvjp(
      lambda images, slope, window: (
          correlate(images, slope, window),
          (images, slope),
      ),
      lambda window, saved, kernel: (
          same(saved[1], flipped(kernel)),
          same(saved[0], kernel),
      ),
  )


tie(same, correlate)


def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
  """A stand-in for `jax.lax.conv_general_dilated`.

  Pass it to the stock layer: `nn.Conv(..., conv_general_dilated=this)`. A
  two-dimensional NHWC convolution of stride 1 without dilation or groups
  becomes a matrix product; everything else goes to `lax` unchanged.
  """
  numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
  plain = (
      lhs.ndim == 4
      and numbers.lhs_spec == (0, 3, 1, 2)
      and numbers.rhs_spec == (3, 2, 0, 1)
      and numbers.out_spec == (0, 3, 1, 2)
      and tuple(window_strides) == (1, 1)
      and all(d == 1 for d in (*(lhs_dilation or ()), *(rhs_dilation or ())))
      and feature_group_count == batch_group_count == 1
      and preferred_element_type is None
  )
  if not plain:
    return lax.conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision,
        preferred_element_type,
    )
  if isinstance(padding, str):
    padding = lax.padtype_to_pads(
        lhs.shape[1:3], rhs.shape[:2], (1, 1), padding
    )
  return convolve(lhs, rhs, padding, precision)
