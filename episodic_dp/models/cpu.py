"""Convolutions that exist only because a CPU is slow at the plain ones.

`layers` chooses among them; nothing else calls them. Each is equal to the plain
form up to rounding, and stays only while it gives 15 % on a benchmark
(docs/decisions/speed.md). Reverse mode of any order only.

The convolution of a CPU's own library (`same`) lays out no patches, which fall
out of the cache where they are many, and a program that calls it compiles
sooner. It comes near to the rate of a product of matrices, but for three
things, which are avoided here (jaxlib 0.10.2):

- separate kernels for every entry of a batch (groups), which go by products of
  patches here as well;
- few output channels, which are many times slower: several neighbouring outputs
  of a row are computed together, as channels of one wider kernel that holds
  zeros where an output does not look (`_widened`);
- a kernel's gradient in any but the usual order of axes, which the compiler
  would turn into plain loops, of an odd number of images, or of so many that
  they fall out of the cache (`_correlated`).

The first block of a network (`first_block`) has images of few channels. Their
patches have few entries (9 for one channel): the statistics of the
convolution's output follow from the patches' covariance, so that the *kernel*
is normalised and not the output, which then has no gradient but through the
pool. The covariance depends on the images alone and is the same in all inner
steps. Convolution and pool go through a few images at a time, whose outputs
stay in the cache of a core, and only the largest of a pool and its place are
written. With that chosen, the rest is linear in the images, in the kernel and
in the slopes of the output; the gradients of every order are its three partial
sums.
"""

import functools
import math

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models import convolution

EPSILON = 1e-5  # Of a normalised variance.
_AXES = ("NHWC", "HWIO", "NHWC")
# Output channels from which on the library is quick, with an odd number of
# input channels above 1 and otherwise.
_MANY_IF_ODD, _MANY = 33, 17
_POSITIONS = 1600  # At most, of images whose kernel's gradient is one call.
_CHANNELS = 3  # At most, of an image of the first block.
_NUMBERS = 2**17  # At most, of the outputs that stay in the cache.
_WINDOW = (3, 3)


def fits(x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
  """Return whether `same` takes these shapes, and is quicker."""
  kh, kw, _, features = kernel_shape
  if kh % 2 == 0 or kw % 2 == 0:
    return False
  return features >= _MANY or _together(x_shape, kernel_shape) > 1


@jax.custom_vjp
def same(images: jax.Array, kernel: jax.Array) -> jax.Array:
  """Compute `convolution.same`, up to rounding.

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
  """Compute `convolution.correlate`, the gradient of the kernel.

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
  """Return the number of outputs of a row that are computed together.

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


# The first block --------------------------------------------------------------


def fits_first_block(
    x_shape: tuple[int, ...], kernel_shape: tuple[int, ...]
) -> bool:
  """Return whether `first_block` takes these shapes, and is quicker."""
  _, height, width, _ = x_shape
  return (
      kernel_shape[:2] == _WINDOW
      and kernel_shape[2] <= _CHANNELS
      and height % 2 == width % 2 == 0
  )


def first_block(
    x: jax.Array, kernel: jax.Array, scale: jax.Array, bias: jax.Array
) -> jax.Array:
  """Convolve 3x3, normalise by the batch and pool 2x2 by the maximum.

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
  factor = scale * lax.rsqrt(variance + EPSILON)
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
    phases = _phases(same(x, kernel))
    which = _first_largest(phases)
    return _choose(phases, which), which

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
    return _choose(_phases(same(x, kernel)), which)

  return _by_blocks(block, _outputs(x, kernel), x, which)


@jax.custom_vjp
def _of_kernel(x, slopes, which):
  """[3, 3, Cin, Cout], like the kernel."""
  count, parts = _blocks(_outputs(x, slopes), x, slopes, which)

  def block(total, part):
    x, slopes, which = part
    return total + correlate(x, _spread(slopes, which), _WINDOW), None

  zeros = jnp.zeros((*_WINDOW, x.shape[3], slopes.shape[3]), slopes.dtype)
  if count == 1:
    return block(zeros, [a[0] for a in parts])[0]
  return lax.scan(block, zeros, parts)[0]


@jax.custom_vjp
def _of_images(kernel, slopes, which):
  """[n, H, W, Cin], like the images."""
  def block(slopes, which):
    return same(_spread(slopes, which), convolution.flipped(kernel))

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
  """Count the outputs of the convolution of one image."""
  return math.prod(x.shape[1:3]) * features.shape[-1]


def _images_at_once(images, outputs):
  """Return the largest divisor of `images` whose outputs stay in the cache."""
  count = max(1, min(images, _NUMBERS // outputs))
  while images % count:
    count -= 1
  return count


def _blocks(outputs, *arrays):
  """Return the number of blocks, and arrays [blocks, images, ...]."""
  images = _images_at_once(arrays[0].shape[0], outputs)
  parts = [a.reshape(-1, images, *a.shape[1:]) for a in arrays]
  return parts[0].shape[0], parts


def _by_blocks(function, outputs, *arrays):
  """The function of a few images at a time, its results put together."""
  count, parts = _blocks(outputs, *arrays)
  if count == 1:
    return function(*arrays)
  found = lax.map(lambda part: function(*part), parts)
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)


def _first_largest(phases):
  """int8, like the phases: which is the largest; no gradient goes through.

  Of equal entries the one that `pooling.max_pool` takes.
  """
  a, b, c, d = (lax.stop_gradient(p) for p in phases)
  zero, one, two, three = (jnp.int8(i) for i in range(4))
  left, right = jnp.where(a >= c, a, c), jnp.where(b >= d, b, d)
  return jnp.where(
      left >= right,
      jnp.where(a >= c, zero, two),
      jnp.where(b >= d, one, three),
  )


def _choose(phases, which):
  """`phases[which]`, entry by entry."""
  a, b, c, d = phases
  left = jnp.where(which == 0, a, b)
  right = jnp.where(which == 2, c, d)
  return jnp.where(which < 2, left, right)
