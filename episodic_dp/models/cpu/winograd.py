"""The 3x3 convolution with 16 products for every 2x2 outputs instead of 36.

Winograd's minimal filtering F(2x2, 3x3): Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks" (CVPR 2016), section 4.1. Every 2x2 tile of the
output comes from a 4x4 window of the input: both are transformed by additions
alone, the kernel by additions and halves, and what is left are 16 matrix
products over the channels. The outputs of a tile are the four entries of a 2x2
pool, and are given as the four arrays that `phases` compares.

The gradients of all orders are made of two functions, which go through a few
images at a time, so that what their tiles hold stays in the cache of a core.
Reverse mode only.
"""

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.models.cpu import cache
from episodic_dp.models.cpu import phases as phases_lib

_ROWS = 400  # At most, of a matrix product: what its tiles hold stays in cache.


def convolve(x: jax.Array, kernel: jax.Array) -> phases_lib.Phases:
  """The 3x3 convolution of the same size, by tiles.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].

  Returns:
    Outputs at even rows and even columns, even and odd, odd and even, odd and
    odd: [n, ceil or floor of H / 2, of W / 2, Cout].
  """
  _, height, width, _ = x.shape
  phases = _convolve(x, kernel)
  return tuple(
      phases[2 * p + q][:, : (height + 1 - p) // 2, : (width + 1 - q) // 2]
      for p in range(2)
      for q in range(2)
  )


@jax.custom_vjp
def _convolve(x, kernel):
  """Four phases of ceil(H / 2) by ceil(W / 2), zero-padded images beyond."""
  weights = _weights(kernel)

  def block(x):
    return _outputs([t @ w for t, w in zip(_tiles(x), weights)])

  return _joined(lax.map(block, _blocked(x)))


@jax.custom_vjp
def _gradients(x, kernel, slopes):
  """Of `_convolve` at (x, kernel), pulled back from slopes of its phases.

  The first is linear in the kernel and the slopes, the second in x and the
  slopes, so that the gradient of this function is made of the same two.
  """
  weights = [w.T for w in _weights(kernel)]
  size = x.shape[1:3]

  def block(total, both):
    x, slopes = both
    slopes = _spread(slopes)
    total = [
        s + lax.dot_general(_rows(a), _rows(b), (((0,), (0,)), ((), ())))
        for s, a, b in zip(total, _tiles(x), slopes)
    ]
    return total, _untiled([s @ w for s, w in zip(slopes, weights)], size)

  zeros = [jnp.zeros(kernel.shape[2:], kernel.dtype)] * 16
  slopes = tuple(_blocked(s, x.shape) for s in slopes)
  total, images = lax.scan(block, zeros, (_blocked(x), slopes))
  (gradient,) = jax.linear_transpose(_weights, kernel)(total)
  return _joined(images), gradient


_convolve.defvjp(
    lambda x, kernel: (_convolve(x, kernel), (x, kernel)),
    lambda saved, slopes: _gradients(*saved, slopes),
)


def _gradients_backward(saved, pulled):
  x, kernel, slopes = saved
  images, weights = pulled
  both = zip(_convolve(images, kernel), _convolve(x, weights))
  return *_gradients(images, weights, slopes), tuple(a + b for a, b in both)


_gradients.defvjp(
    lambda *arguments: (_gradients(*arguments), arguments), _gradients_backward
)


def _blocked(x, shape=None):
  """[n, ...] -> [blocks, n / blocks, ...], by the image shape [n, H, W, C]."""
  n, height, width, _ = shape or x.shape
  tiles = -(-height // 2) * -(-width // 2)
  images = cache.images_at_once(n, tiles, _ROWS)
  return x.reshape(n // images, images, *x.shape[1:])


def _rows(x):
  return x.reshape(-1, x.shape[-1])


def _joined(tree):
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def _grid(transform, items, rows, columns):
  """Applies a one-dimensional transform to rows, then to columns."""
  rowed = [
      transform(*(items[i * columns + j] for i in range(rows)))
      for j in range(columns)
  ]  # [column][row of the result]
  count = len(rowed[0])
  return [
      entry
      for i in range(count)
      for entry in transform(*(rowed[j][i] for j in range(columns)))
  ]


def _weights(kernel):
  """G g G^T: 16 matrices [Cin, Cout]."""
  def transform(a, b, c):
    return a, (a + b + c) / 2, (a - b + c) / 2, c
  return _grid(transform, list(kernel.reshape(9, *kernel.shape[2:])), 3, 3)


def _outputs(products):
  """A^T m A: 4 arrays."""
  def transform(a, b, c, d):
    return a + b + c, b - c - d
  return tuple(_grid(transform, products, 4, 4))


def _spread(slopes):
  """The transpose of `_outputs`: 16 arrays."""
  def transform(a, b):
    return a, a + b, a - b, -b
  return _grid(transform, slopes, 2, 2)


def _tiles(x):
  """B^T d B of all 4x4 windows at distance 2: 16 arrays [n, T, S, C]."""
  _, height, width, _ = x.shape
  rows, columns = (height + 1) // 2, (width + 1) // 2
  below, right = 2 * rows + 1 - height, 2 * columns + 1 - width
  x = jnp.pad(x, ((0, 0), (1, below), (1, right), (0, 0)))
  windows = [
      x[:, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2]
      for i in range(4)
      for j in range(4)
  ]
  def transform(a, b, c, d):
    return a - c, b + c, c - b, b - d
  return _grid(transform, windows, 4, 4)


def _untiled(tiles, size):
  """The transpose of `_tiles`: [n, *size, C]."""
  def transform(a, b, c, d):
    return a, b - c + d, b + c - a, -d
  windows = _grid(transform, tiles, 4, 4)
  def shifted(x, axis, by):
    x = jnp.pad(x, [(int(a == axis),) * 2 for a in range(4)])
    start = 1 - by
    return lax.slice_in_dim(x, start, start + x.shape[axis] - 2, axis=axis)

  # Row i of window t is row 2 t + i - 1 of the image: an even row is row 1 of
  # one window and row 3 of that above, an odd one row 2, and row 0 of the next.
  def overlapped(axis, a, b, c, d):
    return b + shifted(d, axis, 1), c + shifted(a, axis, -1)

  rowed = [overlapped(1, *windows[j::4]) for j in range(4)]
  even = overlapped(2, *(r[0] for r in rowed))
  odd = overlapped(2, *(r[1] for r in rowed))
  n, rows, columns, channels = windows[0].shape
  x = jnp.stack([jnp.stack(even, 3), jnp.stack(odd, 3)], 2)
  x = x.reshape(n, 2 * rows, 2 * columns, channels)
  return x[:, : size[0], : size[1]]
