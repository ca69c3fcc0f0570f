"""The first block of a network, on images of few channels.

Their patches have few entries (9 for one channel): the statistics of the
convolution's output follow from the patches' covariance, so that the *kernel*
is normalised and not the output, which then has no gradient but through the
pool. What every 2x2 pool compares lies in four arrays ("phases"), one product
each, so that the pool is elementwise. The patches and their covariance depend
on the images alone and are the same in all inner steps.

Products and pool go through a few images at a time: the four phases stay in the
cache of a core, and all that is written is the largest and which it was. With
that chosen, what is left is linear in the patches, in the kernel and in the
slopes of the output; the gradients of every order are its three partial sums.
Reverse mode only.
"""

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import normalization
from episodic_dp.models.cpu import cache
from episodic_dp.models.cpu import phases as phases_lib

_ENTRIES = 1000  # Of a pooled phase, at most: the four stay in the cache.


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
  best = _largest(phases, weights) + offset
  return best.reshape(n, height // 2, width // 2, features)


def _patches(x):
  """[blocks, 4, 9 * Cin, entries]: the patches of each pool entry."""
  n, height, width, channels = x.shape
  size = height * width // 4
  images = cache.images_at_once(n, size, _ENTRIES)
  x = jnp.pad(jnp.moveaxis(x, 3, 1), ((0, 0), (0, 0), (1, 1), (1, 1)))

  def phase(p, q):
    rows = [
        x[:, :, i + p : i + p + height : 2, j + q : j + q + width : 2]
        for i in range(3)
        for j in range(3)
    ]
    return jnp.stack(rows)

  phases = jnp.stack([phase(p, q) for p in range(2) for q in range(2)])
  # [4, 9, blocks, images, Cin, entries of an image]
  phases = phases.reshape(4, 9, n // images, images, channels, size)
  phases = phases.transpose(2, 0, 1, 4, 3, 5)
  return phases.reshape(n // images, 4, 9 * channels, images * size)


def _normalised(phases, weights, scale, bias):
  """Weights [entries, Cout] and an offset [Cout] after which it is normal."""
  count = 4 * phases.shape[0] * phases.shape[3]
  mean = phases.sum((0, 1, 3)) / count
  centred = phases - mean[:, None]
  wide = jnp.moveaxis(centred, 2, 0).reshape(mean.shape[0], -1)
  covariance = wide @ wide.T / count
  # Rounding may take a variance of nearly zero below it.
  variance = jnp.maximum(jnp.sum(weights * (covariance @ weights), axis=0), 0)
  weights = weights * (scale * lax.rsqrt(variance + normalization.EPSILON))
  return weights, bias - mean @ weights


@jax.custom_vjp
def _largest(phases, weights):
  """The largest of the four products: [blocks, entries, Cout]."""
  return _largest_and_which(phases, weights)[0]


def _largest_and_which(phases, weights):
  def block(phases):
    products = tuple(p.T @ weights for p in phases)
    which = phases_lib.first_largest(products)
    return phases_lib.choose(products, which), which

  return lax.map(block, phases)


def _largest_backward(saved, slopes):
  phases, weights, which = saved
  return (
      _of_phases(weights, slopes, which),
      _of_weights(phases, slopes, which),
  )


def _largest_forward(phases, weights):
  best, which = _largest_and_which(phases, weights)
  return best, (phases, weights, which)


_largest.defvjp(_largest_forward, _largest_backward)


# sum(phases[which].T @ weights * slopes) is linear in phases, in weights and in
# slopes: the functions below are its gradients, and each other's.


@jax.custom_vjp
def _of_slopes(phases, weights, which):
  """[blocks, entries, Cout], like the slopes."""
  def block(both):
    phases, which = both
    return phases_lib.choose(tuple(p.T @ weights for p in phases), which)

  return lax.map(block, (phases, which))


@jax.custom_vjp
def _of_weights(phases, slopes, which):
  """[9 * Cin, Cout], like the weights."""
  def block(total, three):
    phases, slopes, which = three
    spread = phases_lib.spread(slopes, which)
    return total + sum(p @ s for p, s in zip(phases, spread)), None

  zeros = jnp.zeros((phases.shape[2], slopes.shape[2]), slopes.dtype)
  return lax.scan(block, zeros, (phases, slopes, which))[0]


@jax.custom_vjp
def _of_phases(weights, slopes, which):
  """[blocks, 4, 9 * Cin, entries], like the phases."""
  def block(both):
    spread = phases_lib.spread(*both)
    return jnp.stack([weights @ s.T for s in spread])

  return lax.map(block, (slopes, which))


def _keep(function):
  return lambda *arguments: (function(*arguments), arguments)


_of_slopes.defvjp(
    _keep(_of_slopes),
    lambda saved, slopes: (
        _of_phases(saved[1], slopes, saved[2]),
        _of_weights(saved[0], slopes, saved[2]),
        None,
    ),
)
_of_weights.defvjp(
    _keep(_of_weights),
    lambda saved, weights: (
        _of_phases(weights, saved[1], saved[2]),
        _of_slopes(saved[0], weights, saved[2]),
        None,
    ),
)
_of_phases.defvjp(
    _keep(_of_phases),
    lambda saved, phases: (
        _of_weights(phases, saved[1], saved[2]),
        _of_slopes(phases, saved[0], saved[2]),
        None,
    ),
)
