"""The convolution of a CPU's own library, for wide or many images.

It lays out no patches, which fall out of the cache where they are many, and a
program that calls it compiles sooner. Two things make it slow, and are avoided:
kernels of their own for every entry of a batch (groups), which go by products
of patches here as well, and a kernel's gradient in any but the usual order of
axes, which the compiler would turn into plain loops (jaxlib 0.10.2). Reverse
mode of any order only.
"""

import functools

import jax
from jax import lax

from episodic_dp.models import convolution

_AXES = ("NHWC", "HWIO", "NHWC")
# From so many channels on, or so many entries of all patches.
_CHANNELS, _ENTRIES = 64, 500_000


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Whether `same` takes these shapes, and is the quicker way."""
  n, height, width, _ = x_shape
  kh, kw, channels, features = kernel_shape
  if kh % 2 == 0 or kw % 2 == 0:
    return False
  entries = n * height * width * kh * kw * channels
  return min(channels, features) >= _CHANNELS or entries >= _ENTRIES


@jax.custom_vjp
def same(images: jax.Array, kernel: jax.Array) -> jax.Array:
  """`convolution.same`, up to rounding.

  Args:
    images: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout], kh and kw odd.

  Returns:
    [n, H, W, Cout].
  """
  return _convolved(images, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _correlate(images, slope, window):
  """The gradient of the kernel: [*window, Cin, Cout]."""
  return _correlated(images, slope, window)


convolution.tie(same, _correlate)


@jax.custom_batching.custom_vmap
def _convolved(images, kernel):
  return lax.conv_general_dilated(
      images, kernel, (1, 1), "SAME", dimension_numbers=_AXES
  )


@_convolved.def_vmap
def _convolved_batch(size, batched, images, kernel):
  """With one kernel for all, a larger number of images."""
  if batched[1]:
    return _each(convolution.same, batched, images, kernel), True
  found = _convolved(images.reshape(-1, *images.shape[2:]), kernel)
  return found.reshape(size, -1, *found.shape[1:]), True


def _correlated(images, slope, window):
  padding = [(k // 2, k // 2) for k in window]

  @jax.custom_batching.custom_vmap
  def correlated(images, slope):
    # The images' channels are the batch, the images what is summed over. Kept
    # apart, or the compiler would take the transposes for an order of axes.
    images = lax.optimization_barrier(images.transpose(3, 1, 2, 0))
    slope = lax.optimization_barrier(slope.transpose(1, 2, 0, 3))
    found = lax.conv_general_dilated(
        images, slope, (1, 1), padding, dimension_numbers=_AXES
    )
    return lax.optimization_barrier(found).transpose(1, 2, 0, 3)

  @correlated.def_vmap
  def batch(size, batched, images, slope):
    del size
    patched = functools.partial(convolution.correlate, window=window)
    return _each(patched, batched, images, slope), True

  return correlated(images, slope)


def _each(function, batched, *arguments):
  in_axes = [0 if one else None for one in batched]
  return jax.vmap(function, in_axes)(*arguments)
