"""The convolution of a CPU's own library.

It lays out no patches, which fall out of the cache where they are many, and a
program that calls it compiles sooner. It comes near to the rate of a product
of matrices, but for three things, which are avoided here (jaxlib 0.10.2; the
measurements are in docs/decisions/cpu_tricks.md):

- kernels of their own for every entry of a batch (groups), which go by products
  of patches here as well;
- few output channels, which are many times slower: several neighbouring outputs
  of a row are computed together, as channels of one wider kernel that holds
  zeros where an output does not look (`_widened`);
- a kernel's gradient in any but the usual order of axes, which the compiler
  would turn into plain loops, of an odd number of images, or of so many that
  they fall out of the cache (`_correlated`).

Reverse mode of any order only.
"""

import functools

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import convolution

_AXES = ("NHWC", "HWIO", "NHWC")
# Output channels from which on the library is quick, with an odd number of
# input channels above 1 and otherwise.
_MANY_IF_ODD, _MANY = 33, 17
_POSITIONS = 1600  # At most, of images whose kernel's gradient is one call.


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Whether `same` takes these shapes, and is the quicker way."""
  kh, kw, _, features = kernel_shape
  if kh % 2 == 0 or kw % 2 == 0:
    return False
  return features >= _MANY or _together(x_shape, kernel_shape) > 1


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
def correlate(
    images: jax.Array, slope: jax.Array, window: tuple[int, int]
) -> jax.Array:
  """`convolution.correlate`, up to rounding: the gradient of the kernel.

  Args:
    images: [n, H, W, Cin].
    slope: [n, H, W, Cout], of the output.
    window: (kh, kw), both odd.

  Returns:
    [kh, kw, Cin, Cout].
  """
  return _correlated(images, slope, window)


convolution.tie(same, correlate)


@jax.custom_batching.custom_vmap
def _convolved(images, kernel):
  n, height, width, _ = images.shape
  kh, kw, _, features = kernel.shape
  together = _together(images.shape, kernel.shape)
  found = lax.conv_general_dilated(
      images,
      # Kept apart, or the compiler would put it together for every use.
      lax.optimization_barrier(_widened(kernel, together)),
      (1, together),
      ((kh // 2, kh // 2), (kw // 2, kw // 2 + -width % together)),
      dimension_numbers=_AXES,
  )
  return found.reshape(n, height, -1, features)[:, :, :width]


def _together(images, kernel):
  """How many outputs of a row are computed together.

  Args:
    images: [n, H, W, Cin], a shape.
    kernel: [kh, kw, Cin, Cout], a shape.
  """
  kh, kw, channels, features = kernel
  odd = channels % 2 and channels > 1
  count = -(-(_MANY_IF_ODD if odd else _MANY) // features)
  # With a kernel larger than the image the compiler swaps the two.
  return count if kh * (kw + count - 1) <= images[1] * images[2] else 1


def _widened(kernel, together):
  """[kh, kw + together - 1, Cin, together * Cout]: one kernel for all."""
  none = (0, 0)
  return jnp.concatenate(
      [
          jnp.pad(kernel, (none, (i, together - 1 - i), none, none))
          for i in range(together)
      ],
      -1,
  )


@_convolved.def_vmap
def _convolved_batch(size, batched, images, kernel):
  """With one kernel for all, a larger number of images."""
  if batched[1]:
    return _each(convolution.same, batched, images, kernel), True
  found = _convolved(images.reshape(-1, *images.shape[2:]), kernel)
  return found.reshape(size, -1, *found.shape[1:]), True


def _correlated(images, slope, window):

  @jax.custom_batching.custom_vmap
  def correlated(images, slope):
    n, height, width, _ = images.shape
    at_once = min(max(1, _POSITIONS // (height * width)), n)
    if at_once > 1:
      at_once += at_once % 2
    blocks = -(-n // at_once)
    missing = ((0, blocks * at_once - n), (0, 0), (0, 0), (0, 0))
    parts = [
        jnp.pad(a, missing).reshape(blocks, at_once, *a.shape[1:])
        for a in (images, slope)
    ]
    if blocks == 1:
      return _correlated_block(parts[0][0], parts[1][0], window)
    zeros = jnp.zeros((*window, images.shape[3], slope.shape[3]), slope.dtype)
    return lax.scan(
        lambda total, part: (
            total + _correlated_block(part[0], part[1], window),
            None,
        ),
        zeros,
        parts,
    )[0]

  @correlated.def_vmap
  def batch(size, batched, images, slope):
    del size
    patched = functools.partial(convolution.correlate, window=window)
    return _each(patched, batched, images, slope), True

  return correlated(images, slope)


def _correlated_block(images, slope, window):
  """The gradient of the kernel of images that fit into the cache together."""
  (kh, kw), features = window, slope.shape[3]
  # What is summed over, the images, is one or even.
  together = _together(images.shape, (*window, 1, features))
  unused = -images.shape[2] % together
  slope = jnp.pad(slope, ((0, 0), (0, 0), (0, unused), (0, 0)))
  slope = slope.reshape(*slope.shape[:2], -1, together * features)
  # The images' channels are the batch, the images what is summed over. Kept
  # apart, or the compiler would take the transposes for an order of axes.
  found = lax.conv_general_dilated(
      lax.optimization_barrier(images.transpose(3, 1, 2, 0)),
      lax.optimization_barrier(slope.transpose(1, 2, 0, 3)),
      (1, 1),
      ((kh // 2, kh // 2), (kw // 2, kw // 2 + unused)),
      rhs_dilation=(1, together),
      dimension_numbers=_AXES,
  )
  found = lax.optimization_barrier(found).transpose(1, 2, 0, 3)
  # The gradient of `_widened`.
  return sum(
      found[:, i : i + kw, :, i * features : (i + 1) * features]
      for i in range(together)
  )


def _each(function, batched, *arguments):
  in_axes = [0 if one else None for one in batched]
  return jax.vmap(function, in_axes)(*arguments)
