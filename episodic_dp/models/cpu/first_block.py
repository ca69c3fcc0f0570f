"""The first block of a network, on images of few channels.

Their patches have few entries (9 for one channel): the statistics of the
convolution's output follow from the patches' covariance, so that the *kernel*
is normalised and not the output, which then has no gradient but through the
pool. The covariance depends on the images alone and is the same in all inner
steps.

Convolution and pool go through a few images at a time, whose outputs stay in
the cache of a core, and all that is written is the largest of a pool and which
it was. With that chosen, what is left is linear in the images, in the kernel
and in the slopes of the output; the gradients of every order are its three
partial sums. Reverse mode only.
"""

import math

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import convolution
from episodic_dp.models import normalization
from episodic_dp.models.cpu import cache
from episodic_dp.models.cpu import direct
from episodic_dp.models.cpu import phases as phases_lib

_CHANNELS = 3  # At most, of an image.
_NUMBERS = 2**17  # At most, of the outputs that stay in the cache.
_WINDOW = (3, 3)


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Whether `apply` takes these shapes, and is the quicker way."""
  _, height, width, _ = x_shape
  return (
      kernel_shape[:2] == _WINDOW
      and kernel_shape[2] <= _CHANNELS
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
  kernel, offset = _normalised(x, kernel, scale, bias)
  return _largest(x, kernel) + offset


def _normalised(x, kernel, scale, bias):
  """A kernel and an offset [Cout] after which the output is normal."""
  mean, covariance = _statistics(x)
  flat = kernel.reshape(-1, kernel.shape[-1])
  # Rounding may take a variance of nearly zero below it.
  variance = jnp.maximum(jnp.sum(flat * (covariance @ flat), axis=0), 0)
  factor = scale * lax.rsqrt(variance + normalization.EPSILON)
  return kernel * factor, bias - (mean @ flat) * factor


def _statistics(x):
  """Mean [9 * Cin] and covariance of all 3x3 patches of the images.

  The patches of a 2x2 pool lie in one 4x4 window: there are a quarter as many
  windows, whose entries hold all products of two entries of a patch.
  """
  n, height, width, channels = x.shape
  x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
  x = x.reshape(n, height // 2 + 1, 2, width // 2 + 1, 2, channels)
  x = x.transpose(0, 1, 3, 2, 4, 5)
  x = x.reshape(n, height // 2 + 1, width // 2 + 1, 4 * channels)
  windows = jnp.concatenate(
      [x[:, :-1, :-1], x[:, :-1, 1:], x[:, 1:, :-1], x[:, 1:, 1:]], -1
  ).reshape(-1, 16 * channels)
  means = windows.mean(0)
  centred = windows - means
  products = centred.T @ centred / centred.shape[0]
  # From (row of 2x2, column, row in it, column in it) to (row, column).
  shape = (2, 2, 2, 2, channels)
  means = means.reshape(shape).transpose(0, 2, 1, 3, 4)
  means = means.reshape(4, 4, channels)
  products = products.reshape(*shape, *shape)
  products = products.transpose(0, 2, 1, 3, 4, 5, 7, 6, 8, 9)
  products = products.reshape(4, 4, channels, 4, 4, channels)
  places = [
      (slice(p, p + 3), slice(q, q + 3)) for p in range(2) for q in range(2)
  ]
  own = jnp.stack([means[place].ravel() for place in places])
  mean = own.mean(0)
  inside = sum(
      products[(*place, slice(None), *place)].reshape(2 * mean.shape)
      for place in places
  )
  return mean, inside / 4 + (own - mean).T @ (own - mean) / 4


@jax.custom_vjp
def _largest(x, kernel):
  """The largest of each 2x2 outputs: [n, H // 2, W // 2, Cout]."""
  return _largest_and_which(x, kernel)[0]


def _largest_and_which(x, kernel):
  def block(x):
    phases = _phases(direct.same(x, kernel))
    which = phases_lib.first_largest(phases)
    return phases_lib.choose(phases, which), which

  return _by_blocks(block, _outputs(x, kernel), x)


def _largest_backward(saved, slopes):
  x, kernel, which = saved
  return _of_images(kernel, slopes, which), _of_kernel(x, slopes, which)


def _largest_forward(x, kernel):
  best, which = _largest_and_which(x, kernel)
  return best, (x, kernel, which)


_largest.defvjp(_largest_forward, _largest_backward)


# sum(convolve(x, kernel)[which] * slopes) is linear in x, in the kernel and in
# the slopes: the functions below are its gradients, and each other's.


@jax.custom_vjp
def _of_slopes(x, kernel, which):
  """[n, H // 2, W // 2, Cout], like the slopes."""
  def block(x, which):
    return phases_lib.choose(_phases(direct.same(x, kernel)), which)

  return _by_blocks(block, _outputs(x, kernel), x, which)


@jax.custom_vjp
def _of_kernel(x, slopes, which):
  """[3, 3, Cin, Cout], like the kernel."""
  count, parts = _blocks(_outputs(x, slopes), x, slopes, which)

  def block(total, part):
    x, slopes, which = part
    return total + direct.correlate(x, _spread(slopes, which), _WINDOW), None

  zeros = jnp.zeros((*_WINDOW, x.shape[3], slopes.shape[3]), slopes.dtype)
  if count == 1:
    return block(zeros, [a[0] for a in parts])[0]
  return lax.scan(block, zeros, parts)[0]


@jax.custom_vjp
def _of_images(kernel, slopes, which):
  """[n, H, W, Cin], like the images."""
  def block(slopes, which):
    return direct.same(_spread(slopes, which), convolution.flipped(kernel))

  outputs = 4 * math.prod(slopes.shape[1:])
  return _by_blocks(block, outputs, slopes, which)


def _keep(function):
  return lambda *arguments: (function(*arguments), arguments)


_of_slopes.defvjp(
    _keep(_of_slopes),
    lambda saved, slopes: (
        _of_images(saved[1], slopes, saved[2]),
        _of_kernel(saved[0], slopes, saved[2]),
        None,
    ),
)
_of_kernel.defvjp(
    _keep(_of_kernel),
    lambda saved, kernel: (
        _of_images(kernel, saved[1], saved[2]),
        _of_slopes(saved[0], kernel, saved[2]),
        None,
    ),
)
_of_images.defvjp(
    _keep(_of_images),
    lambda saved, images: (
        _of_kernel(images, saved[1], saved[2]),
        _of_slopes(images, saved[0], saved[2]),
        None,
    ),
)


def _phases(outputs):
  """The four entries of every 2x2 pool of [n, H, W, C], see `phases`."""
  n, height, width, channels = outputs.shape
  pools = outputs.reshape(n, height // 2, 2, width // 2, 2, channels)
  return tuple(pools[:, :, p, :, q] for p in range(2) for q in range(2))


def _spread(slopes, which):
  """[n, H, W, C]: the slopes where the largest was, zeros elsewhere."""
  n, height, width, channels = slopes.shape
  place = jnp.arange(4, dtype=which.dtype).reshape(2, 1, 2, 1)
  slopes, which = (a[:, :, None, :, None] for a in (slopes, which))
  spread = jnp.where(which == place, slopes, 0)
  return spread.reshape(n, 2 * height, 2 * width, channels)


def _outputs(x, features):
  """Of the convolution of one image, where the last axis holds features."""
  return math.prod(x.shape[1:3]) * features.shape[-1]


def _blocks(outputs, *arrays):
  """How many blocks, and arrays [n, ...] as [blocks, images, ...]."""
  images = cache.images_at_once(arrays[0].shape[0], outputs, _NUMBERS)
  parts = [a.reshape(-1, images, *a.shape[1:]) for a in arrays]
  return parts[0].shape[0], parts


def _by_blocks(function, outputs, *arrays):
  """The function of a few images at a time, its results put together."""
  count, parts = _blocks(outputs, *arrays)
  if count == 1:
    return function(*arrays)
  found = lax.map(lambda part: function(*part), parts)
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)
