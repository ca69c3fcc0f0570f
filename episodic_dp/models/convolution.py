"""Convolution as one matrix product, and JAX's own convolution on a CPU.

After one inner step every task has separate weights. `vmap` then turns a
convolution with per-task kernels into a grouped convolution, which is slow on
every backend (and its second-order gradients are slower still). As a product of
patches `[n H W, kh kw Cin]` and a kernel `[kh kw Cin, Cout]`, the same `vmap`
gives a batched matrix product. `convolve` consists of slices, concatenations,
pads and products, so it can be differentiated any number of times, in either
mode. `same` chooses the form for the backend.
"""

from collections.abc import Sequence
import functools
import math
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends


def patches(
    images: jax.Array,
    window: tuple[int, int] = (3, 3),
    padding: Sequence[tuple[int, int]] | None = None,
) -> jax.Array:
  """Lay out every window of the zero-padded images along the channels.

  Args:
    images: [n, H, W, C].
    window: (kh, kw), its height and width.
    padding: rows to add (above, below) and columns to add (left, right); None
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
  shifted = []
  for i in range(kh):
    for j in range(kw):
      shifted.append(padded[:, i : i + height, j : j + width])
  if len(shifted) == 1:
    return shifted[0]
  return jnp.concatenate(shifted, axis=-1)


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    padding: Sequence[tuple[int, int]] | None = None,
    precision: lax.PrecisionLike = None,
) -> jax.Array:
  """Convolve images with a kernel, with stride 1.

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
  """Convolve to the same size, in the fastest form of the backend.

  The gradients of every order consist of this function and `correlate`, since
  both are linear in their two arguments. Reverse mode only.

  Args:
    images: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout], kh and kw odd.

  Returns:
    [n, H, W, Cout].
  """
  if kernel.shape[3] >= backends.choices().least_channels:
    return _library(images, kernel)
  return convolve(images, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def correlate(
    images: jax.Array, slope: jax.Array, window: tuple[int, int]
) -> jax.Array:
  """Compute the gradient of the kernel of `same`.

  Args:
    images: [n, H, W, Cin].
    slope: [n, H, W, Cout], the gradient of the output.
    window: (kh, kw).

  Returns:
    [kh, kw, Cin, Cout].
  """
  chosen = backends.choices()
  if chosen.own_forms and slope.shape[3] >= chosen.least_channels:
    return _library_correlate(images, slope, window)
  return _patch_correlate(images, slope, window)


def _flipped(kernel: jax.Array) -> jax.Array:
  """Return the kernel whose convolution is the gradient of the images."""
  return jnp.swapaxes(kernel[::-1, ::-1], 2, 3)


# The barriers keep JAX 0.10 from treating saved arguments as inputs of a loop:
# it confused them in the second derivative through `lax.map`.
same.defvjp(
    lambda images, kernel: (
        same(images, kernel),
        lax.optimization_barrier((images, kernel)),
    ),
    lambda saved, slope: (
        same(slope, _flipped(saved[1])),
        correlate(saved[0], slope, saved[1].shape[:2]),
    ),
)
correlate.defvjp(
    lambda images, slope, window: (
        correlate(images, slope, window),
        lax.optimization_barrier((images, slope)),
    ),
    lambda window, saved, kernel: (
        same(saved[1], _flipped(kernel)),
        same(saved[0], kernel),
    ),
)


def _patch_correlate(
    images: jax.Array, slope: jax.Array, window: tuple[int, int]
) -> jax.Array:
  """Compute `correlate` as one product of patches."""
  channels, features = images.shape[-1], slope.shape[-1]
  rows = patches(images, window).reshape(-1, math.prod(window) * channels)
  # [Cout, entries]: its transpose is a slow product on a CPU.
  product = slope.reshape(-1, features).T @ rows
  return jnp.moveaxis(product.reshape(features, *window, channels), 0, -1)


def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    precision: lax.PrecisionLike = None,
    **others: Any,
) -> jax.Array:
  """Replace `jax.lax.conv_general_dilated` in a layer.

  Pass it to the stock layer: `nn.Conv(..., conv_general_dilated=this)`. A
  two-dimensional NHWC convolution of stride 1 without dilation or groups
  becomes a matrix product; everything else goes to `lax` unchanged.
  """
  numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
  settings = (window_strides, *others.values())  # Numbers, or one an axis.
  if (
      numbers != ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
      or not all(np.all(np.equal(s, 1)) for s in settings if s is not None)
  ):
    return lax.conv_general_dilated(
        lhs, rhs, window_strides, padding, dimension_numbers=dimension_numbers,
        precision=precision, **others,
    )
  if isinstance(padding, str):
    padding = lax.padtype_to_pads(
        lhs.shape[1:3], rhs.shape[:2], (1, 1), padding
    )
  return convolve(lhs, rhs, padding, precision)


# JAX's convolution on a CPU ---------------------------------------------------
#
# It makes no patches, which exceed the cache when there are many, and it
# compiles faster. It is slow (jaxlib 0.10.2) with separate kernels for the
# entries of a batch, with few output channels, and for a kernel's gradient of
# an odd number of images, of many images, or in any but the usual order of
# axes. With few output channels, neighbouring outputs of a row are computed
# together, as channels of a wider kernel. docs/decisions/speed.md has the
# measurements.

_AXES = ("NHWC", "HWIO", "NHWC")
# Output channels that are enough, with an odd number of input channels above 1
# and otherwise.
_ENOUGH_IF_ODD, _ENOUGH = 33, 17
_POSITIONS = 1600  # Most positions in one call of a kernel's gradient.


def _together(features, channels, window, images):
  """Return the number of neighbouring outputs to compute together."""
  enough = _ENOUGH
  if channels % 2 and channels > 1:
    enough = _ENOUGH_IF_ODD
  count = -(-enough // features)
  # With a kernel larger than the image the compiler swaps the two.
  fits = window[0] * (window[1] + count - 1) <= math.prod(images.shape[1:3])
  if fits and backends.choices().own_forms:
    return count
  return 1


@jax.custom_batching.custom_vmap
def _library(images, kernel):
  *window, channels, features = kernel.shape
  count = _together(features, channels, window, images)
  shifted = [
      jnp.pad(kernel, ((0, 0), (i, count - 1 - i), (0, 0), (0, 0)))
      for i in range(count)
  ]
  wide, unused = jnp.concatenate(shifted, -1), -images.shape[2] % count
  found = _library_padded(images, wide, window, unused, (1, count))
  found = found.reshape(*found.shape[:2], -1, features)
  return found[:, :, : images.shape[2]]


@_library.def_vmap
def _library_batch(size, batched, images, kernel):
  """Convolve more images if all have one kernel; else use patches."""
  if batched[1]:
    return jax.vmap(convolve, _in_axes(batched))(images, kernel), True
  found = _library(images.reshape(-1, *images.shape[2:]), kernel)
  return found.reshape(size, -1, *found.shape[1:]), True


def _in_axes(batched):
  return [0 if one else None for one in batched]


def _library_padded(images, kernel, window, unused, strides, dilation=(1, 1)):
  """Convolve with rows and columns of zeros around the images."""
  # Kept apart, or the compiler would fuse them and change the order of axes.
  images, kernel = lax.optimization_barrier((images, kernel))
  rows, columns = (k // 2 for k in window)
  padding = [(rows, rows), (columns, columns + unused)]
  return lax.conv_general_dilated(
      images, kernel, strides, padding, rhs_dilation=dilation,
      dimension_numbers=_AXES,
  )


def _library_correlate(images, slope, window):
  """Compute `correlate` of a few images at a time."""

  @jax.custom_batching.custom_vmap
  def correlated(images, slope):
    n, height, width, _ = images.shape
    at_once = min(max(1, _POSITIONS // (height * width)), n)
    if at_once > 1:
      at_once += at_once % 2
    missing = ((0, -n % at_once), (0, 0), (0, 0), (0, 0))
    parts = [
        jnp.pad(a, missing).reshape(-1, at_once, *a.shape[1:])
        for a in (images, slope)
    ]
    return lax.map(block, parts).sum(0)

  def block(part):
    images, slope = part
    n, height, width, features = slope.shape
    count = _together(features, 1, window, images)
    unused = -width % count
    slope = jnp.pad(slope, ((0, 0), (0, 0), (0, unused), (0, 0)))
    slope = slope.reshape(n, height, -1, count * features)
    # The images' channels are the batch, the images the sum's index.
    found = _library_padded(
        images.transpose(3, 1, 2, 0), slope.transpose(1, 2, 0, 3), window,
        unused, (1, 1), (1, count),
    )
    found = lax.optimization_barrier(found).transpose(1, 2, 0, 3)
    # Back from the wider kernel.
    shifted = jnp.split(found, count, axis=-1)
    return sum(a[:, i : i + window[1]] for i, a in enumerate(shifted))

  @correlated.def_vmap
  def batch(size, batched, images, slope):
    patched = functools.partial(_patch_correlate, window=window)
    return jax.vmap(patched, _in_axes(batched))(images, slope), True

  return correlated(images, slope)
