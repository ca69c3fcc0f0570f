"""The library's networks, in Flax Linen, as Models.

Normalisation carries nothing from task to task, which would not be sound. Batch
normalisation has two forms. With the statistics of the current batch (one
task's support or query set) it mixes the examples of a task, which is sound if
the task is the clip unit. With given moments it treats every example alone, and
a prediction depends on nothing but its example: see `model.Model.alone`.
"""

import math
import typing
from typing import Any, Literal

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp import options
from episodic_dp.models import convolution
from episodic_dp.models import model as model_lib

Norm = Literal["batch", "group", "none"]
BLOCKS = 4
GLOROT = nn.initializers.glorot_uniform()
MAX_GROUPS = 8
MOMENTS = "moments"  # Collection of given or recorded moments.
EPSILON = 1e-5  # Added to a variance before normalisation.
# The first block on a CPU: channels of an image, and outputs that stay in
# cache.
_FEW_CHANNELS, _CACHED = 3, 2**17
RESIDUAL_SLOPE = 0.1
TEMPERATURE = 10.0  # Of `Features` with cosine distances, at first.
LENGTH = 10.0  # Of the features of `Directions`.
# Twice the channels of the four blocks, relative to the first one's.
_HALVES = (2, 5, 10, 20)


# Layers -----------------------------------------------------------------------


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
  centred = x - x.mean(others, keepdims=True)
  variance = jnp.square(centred).mean(others)
  return _scaled(centred, scale, variance, bias)


def _scaled(
    centred: jax.Array, scale: jax.Array, variance: jax.Array, bias: jax.Array
) -> jax.Array:
  """Divide by the deviation, then scale and shift each channel."""
  factor = lax.broadcast_to_rank(scale, variance.ndim)
  factor = factor * lax.rsqrt(variance + EPSILON)
  factor, bias = (
      lax.broadcast_to_rank(a, centred.ndim) for a in (factor, bias)
  )
  return centred * factor + bias


def moments(
    x: jax.Array, weights: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Return the mean and the (biased) variance of each channel, [C] both.

  Args:
    x: [n, ..., C].
    weights: [n], of the examples; None for equal ones.
  """
  others = tuple(range(x.ndim - 1))
  if weights is None:
    mean = x.mean(others)
    centred = x - lax.broadcast_to_rank(mean, x.ndim)
    return mean, jnp.square(centred).mean(others)
  share = weights / weights.sum()
  mean = share @ x.mean(others[1:])
  centred = x - lax.broadcast_to_rank(mean, x.ndim)
  return mean, share @ jnp.square(centred).mean(others[1:])


def norm_by_moments(
    x: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    own: float = 0.0,
) -> jax.Array:
  """Normalise by given moments, then scale and shift; examples are not mixed.

  With a share of its own, each example is normalised by the mixture of the
  given distribution and of its own values in space: Bronskill et al.,
  "TaskNorm" (ICML 2020), section 4, with a fixed share.

  Args:
    x: [n, ..., C].
    scale: [C].
    bias: [C].
    mean: [C].
    variance: [C].
    own: the share of an example's own moments, from 0 to 1.
  """
  mean, variance = (
      lax.broadcast_to_rank(a, x.ndim) for a in (mean, variance)
  )
  if own:
    space = tuple(range(1, x.ndim - 1))
    own_mean = x.mean(space, keepdims=True)
    own_variance = jnp.square(x - own_mean).mean(space, keepdims=True)
    between = own * (1 - own) * jnp.square(own_mean - mean)
    variance = (1 - own) * variance + own * own_variance + between
    mean = (1 - own) * mean + own * own_mean
  return _scaled(x - mean, scale, variance, bias)


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Normalise each example and group of channels, then scale and shift.

  Wu and He, "Group Normalization" (2018). Examples are not mixed.

  Args:
    x: [n, ..., C]; groups are consecutive channels, and their number is the
      largest up to 8 that divides C.
    scale: [C].
    bias: [C].
  """
  n, channels = x.shape[0], x.shape[-1]
  space = tuple(range(1, x.ndim - 1))

  def mean(x):
    # Over space first: the rest is small, and a CPU adds whole rows.
    members = x.mean(space).reshape(n, math.gcd(channels, MAX_GROUPS), -1)
    shared = jnp.broadcast_to(members.mean(-1, keepdims=True), members.shape)
    return shared.reshape(n, *[1] * len(space), channels)

  centred = x - mean(x)
  variance = mean(jnp.square(centred))
  return _scaled(centred, scale, variance, bias)


def max_pool(x: jax.Array) -> jax.Array:
  """Pool 2x2 with stride 2 by the maximum; odd edges are dropped ("VALID").

  Pairs of rows, then of columns, are compared and the larger is chosen. The
  gradient goes to the first largest entry, and derivatives of any order are
  selections, in reverse mode only. `lax.reduce_window`, the usual pool, has a
  slow second derivative.

  Args:
    x: [n, H, W, C].

  Returns:
    [n, H // 2, W // 2, C].
  """
  return _max_pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2])


@jax.custom_vjp
def _max_pool(x):
  return max_pool_pairs(max_pool_pairs(x, 1), 2)


def _max_pool_forward(x):
  """Save the place of the maximum in its window: 0, 1 or, below, 2, 3."""
  above, below = _pairs(x, 1)
  lower = ~(above >= below)
  left, right = _pairs(jnp.where(lower, below, above), 2)
  second = ~(left >= right)
  lower_left, lower_right = _pairs(lower, 2)
  # The place from truth values: choices of numbers become arrays of constants,
  # which XLA loads in every turn of a loop.
  return (
      jnp.where(second, right, left),
      2 * jnp.where(second, lower_right, lower_left).astype(jnp.int8)
      + second.astype(jnp.int8),
  )


def _max_pool_backward(place, slope):
  window = (1, 1, 2, 1, 2, 1)
  row = lax.broadcasted_iota(jnp.int8, window, 2)
  column = lax.broadcasted_iota(jnp.int8, window, 4)
  place, slope = (a[:, :, None, :, None] for a in (place, slope))
  # One selection: the sum of four padded arrays takes several times as long.
  found = jnp.where(place == 2 * row + column, slope, 0)
  n, height, _, width, _, channels = found.shape
  return (found.reshape(n, 2 * height, 2 * width, channels),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def max_pool_pairs(x: jax.Array, axis: int = 2) -> jax.Array:
  """Pool pairs along one axis only: [n, H, W // 2, C] for axis 2."""
  first, second = _pairs(x, axis)
  return jnp.where(first >= second, first, second)


def _pairs(x, axis):
  half = x.shape[axis] // 2
  x = lax.slice_in_dim(x, 0, 2 * half, axis=axis)
  x = x.reshape(*x.shape[:axis], half, 2, *x.shape[axis + 1 :])
  return [lax.index_in_dim(x, i, axis + 1, False) for i in range(2)]


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
    norm: see `Conv4`.

  Returns:
    [n, H, W, Cout].
  """
  x = convolution.same(x, kernel)
  if scale is None:
    return x + lax.broadcast_to_rank(bias, x.ndim)
  if norm == "batch":
    return batch_norm(x, scale, bias)
  return group_norm(x, scale, bias)


def block(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array,
    norm: Norm,
) -> jax.Array:
  """Convolve 3x3, normalise, pool 2x2 and apply LeakyReLU 0.01.

  Pooling comes before the LeakyReLU. The LeakyReLU is increasing, so the values
  are the same, and there are four times fewer of them. On a CPU a first block
  has a separate form, equal up to rounding. Reverse mode of any order only.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `Conv4`.

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  if norm == "batch" and scale is not None and _has_own_form(x):
    mean, variance = _first_moments(x, kernel)
    found = _folded(x, kernel, scale, bias, mean, variance, True)
    return nn.leaky_relu(found)
  return nn.leaky_relu(max_pool(convolved(x, kernel, scale, bias, norm)))


def _first_moments(x, kernel):
  """Return the moments of a convolution's output without computing it.

  Images of few channels have short windows. The moments of the output follow
  from the windows' covariance, which depends on the images only and is the same
  in all inner steps.
  """
  features = kernel.shape[3]
  rows = _windows(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))
  # One kernel of a window for each of the four outputs of a pool.
  kernels, edges = [], ((0, 1), (1, 0))
  for rows_around in edges:
    for columns_around in edges:
      padding = ((0, 0), rows_around, columns_around, (0, 0))
      kernels.append(jnp.pad(kernel.transpose(3, 0, 1, 2), padding))
  flat = _windows(jnp.concatenate(kernels))
  mean = rows.mean(0)
  centred = rows - mean[None]
  covariance = centred.T @ centred / len(rows)
  means = (flat @ mean).reshape(4, features)
  variances = jnp.sum(flat * (flat @ covariance), axis=1).reshape(4, features)
  # Rounding may make a variance near zero negative.
  return means.mean(0), jnp.maximum(variances.mean(0) + means.var(0), 0)


def _folded(x, kernel, scale, bias, mean, variance, pooled):
  """Normalise the kernel by given moments instead of the output."""
  factor = scale * lax.rsqrt(variance + EPSILON)
  kernel = kernel * lax.broadcast_to_rank(factor, kernel.ndim)
  x = _pooled(x, kernel) if pooled else convolution.same(x, kernel)
  bias, shift = (
      lax.broadcast_to_rank(a, x.ndim) for a in (bias, mean * factor)
  )
  return x + bias - shift


def _pooled(x, kernel):
  """Convolve and pool; where channels are few, a few images at a time.

  The output has a gradient only through the pool. For a few images at a time,
  the outputs stay in a core's cache.
  """
  if not _has_own_form(x):
    return max_pool(convolution.same(x, kernel))
  most = max(1, _CACHED // (x.shape[1] * x.shape[2] * kernel.shape[3]))
  at_once = max(k for k in range(1, most + 1) if len(x) % k == 0)
  found = lax.map(
      lambda x: max_pool(convolution.same(x, kernel)),
      x.reshape(-1, at_once, *x.shape[1:]),
  )
  return found.reshape(-1, *found.shape[2:])


def _has_own_form(x):
  """Return whether images take the form of a first block on a CPU."""
  own = backends.choices().own_forms and x.shape[-1] <= _FEW_CHANNELS
  return own and x.shape[1] % 2 == x.shape[2] % 2 == 0


def _windows(x):
  """Return the 4x4 windows of images at every second pixel, one in each row."""
  n, height, width, channels = x.shape
  x = x.reshape(n, height // 2, 2, width // 2, 2, channels)
  x = x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // 2, width // 2, -1)
  squares = convolution.patches(x, (2, 2), ((0, 0), (0, 0)))
  return squares.reshape(-1, squares.shape[-1])


class Convolution(nn.Module):
  """A convolution of the same size with a norm, or a whole pooled block.

  Batch normalisation takes its moments from the collection "moments" if the
  call has it, and records those of its input there if it is mutable.

  Attributes:
    width: number of channels.
    norm: see `Conv4`.
    window: height and width of the kernel, odd.
    pooled: whether it is a `block`.
  """

  width: int
  norm: Norm
  window: tuple[int, int] = (3, 3)
  pooled: bool = False

  @nn.compact
  def __call__(
      self, x: jax.Array, weights: jax.Array | None = None, own: float = 0.0
  ) -> jax.Array:
    """Map [n, H, W, C] to [n, H, W, width], or half of H and W if pooled.

    Args:
      x: the input.
      weights: [n], of the examples in moments that are recorded.
      own: see `norm_by_moments`.
    """
    shape = (*self.window, x.shape[-1], self.width)
    kernel = self.param("kernel", GLOROT, shape)
    scale = None
    if self.norm != "none":
      scale = self.param("scale", nn.initializers.ones, (self.width,))
    bias = self.param("bias", nn.initializers.zeros, (self.width,))
    records = self.is_mutable_collection(MOMENTS) and not self.is_initializing()
    if self.norm != "batch" or not (
        records or self.has_variable(MOMENTS, "mean")
    ):
      apply = block if self.pooled else convolved
      return apply(x, kernel, scale, bias, self.norm)
    assert scale is not None  # Batch normalisation has one.
    short = self.pooled and weights is None and _has_own_form(x)
    if not records:
      mean: jax.Array = self.get_variable(MOMENTS, "mean")
      variance: jax.Array = self.get_variable(MOMENTS, "variance")
    elif short:
      mean, variance = _first_moments(x, kernel)
    else:
      mean, variance = moments(convolution.same(x, kernel), weights)
    if records:
      self.put_variable(MOMENTS, "mean", mean)
      self.put_variable(MOMENTS, "variance", variance)
    if own or (records and not short):
      x = convolution.same(x, kernel)
      x = norm_by_moments(x, scale, bias, mean, variance, own)
      if self.pooled:
        x = max_pool(x)
    else:
      x = _folded(x, kernel, scale, bias, mean, variance, self.pooled)
    if self.pooled:
      x = nn.leaky_relu(x)
    return x


def head(way: int | None, features: jax.Array) -> jax.Array:
  """Apply a linear layer "head" to features [n, d]; way=None returns them.

  Call it within the `__call__` of a module.
  """
  if way is None:
    return features
  return nn.Dense(way, kernel_init=GLOROT, name="head")(features)


# Networks ---------------------------------------------------------------------


class MLP(nn.Module):
  """Hidden layers with ReLU, and a linear layer "head".

  The network of sinusoid regression in Finn, Abbeel and Levine, "Model-Agnostic
  Meta-Learning" (ICML 2017), section 5.1: two hidden layers of 40.

  Attributes:
    outputs: number of outputs.
    widths: widths of the hidden layers.
  """

  outputs: int
  widths: tuple[int, ...] = (40, 40)

  @nn.compact
  def __call__(self, examples: jax.Array) -> jax.Array:
    """Map [n, ...], flattened, to [n, outputs]."""
    x = examples.reshape(examples.shape[0], -1)
    for i, width in enumerate(self.widths):
      x = nn.relu(nn.Dense(width, name=f"hidden_{i}")(x))
    return nn.Dense(self.outputs, name="head")(x)


class Features(nn.Module):
  """Given features, times a learned scale for each, 1 at first.

  All are divided by the root of their number d, so that squared distances of
  features of about 1 are, too; or, for cosine distances, by their length, and
  multiplied by the root of a learned temperature. The logarithms of the scales
  and of the temperature are learned, so that both stay positive under any
  noise.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out, so that
      a metric learner begins as the nearest class mean of the given features.
    linear: whether a learned square matrix is applied before, at first the
      identity.
    cosine: whether all examples have features of one length: a squared distance
      is then the temperature times twice the cosine distance.
  """

  way: int | None
  linear: bool = True
  cosine: bool = False

  @nn.compact
  def __call__(self, examples: jax.Array) -> jax.Array:
    """Map [n, ...], d numbers each, to logits [n, way] or features [n, d]."""
    x = examples.reshape(examples.shape[0], -1)
    size = x.shape[1]
    if self.linear:
      x = x @ self.param("kernel", lambda key: jnp.eye(size))
    if not self.cosine:
      scale = self.param("scale", nn.initializers.ones, (size,))
      return head(self.way, x * scale[None] / math.sqrt(size))
    scale = self.param("log_scale", nn.initializers.zeros, (size,))
    x = x * jnp.exp(scale)[None]
    start = nn.initializers.constant(math.log(TEMPERATURE))
    root = jnp.exp(self.param("log_temperature", start, (1,)) / 2)
    return head(self.way, unit(x) * root[None])


def unit(x: jax.Array) -> jax.Array:
  """Divide rows [n, d] by their lengths; zeros stay, and all stays finite."""
  return x / jnp.sqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-12)


class Directions(nn.Module):
  """Subtract the mean from features, and give all one length.

  Their squared distances are cosine distances. Features end in a LeakyReLU and
  share a large part, which the mean takes away: that of the examples, or of the
  collection "moments" if the call has it, as in `Convolution`.

  Attributes:
    centred: whether a mean is subtracted, which mixes the examples of a task.
  """

  centred: bool

  @nn.compact
  def __call__(
      self, x: jax.Array, weights: jax.Array | None = None
  ) -> jax.Array:
    """Map [n, d] to [n, d]; see `Convolution` for the weights."""
    if self.centred:
      records = self.is_mutable_collection(MOMENTS)
      if self.has_variable(MOMENTS, "mean") and not records:
        mean: jax.Array = self.get_variable(MOMENTS, "mean")
      else:
        mean, _ = moments(x, weights)
      if records and not self.is_initializing():
        self.put_variable(MOMENTS, "mean", mean)
      x = x - mean[None]
    return LENGTH * unit(x)


class _Convolutional(nn.Module):
  """Features of a convolutional network, and a linear head; see `Conv4`."""

  way: int | None
  width: int = 64
  norm: Norm = "batch"
  cosine: bool = False

  @nn.compact
  def __call__(
      self,
      examples: jax.Array,
      weights: jax.Array | None = None,
      own: float = 0.0,
  ) -> jax.Array:
    """Map examples [n, ...] to logits [n, way], or features [n, d]."""
    x = self.features(examples, weights, own)
    if self.cosine and self.way is None:
      centred = self.norm == "batch"
      x = Directions(centred, name="directions")(x, weights)
    return head(self.way, x)

  def features(
      self, x: jax.Array, weights: jax.Array | None, own: float
  ) -> jax.Array:
    """Map examples [n, ...] to features [n, d]."""
    raise NotImplementedError


class Conv4(_Convolutional):
  """Four convolutional blocks and a linear head; see `conv4`.

  Attributes:
    way: number of classes, and of logits; None omits the head.
    width: channels of every block.
    norm: "batch" uses statistics of the current batch over examples and space,
      with a learnable scale and bias, and carries nothing; it mixes the
      examples of a task. "group" uses the largest number of groups up to 8 that
      divides the width. "none" has a bias only. The last two treat every
      example separately.
    cosine: whether features without a head are `Directions`.
  """

  def features(
      self, x: jax.Array, weights: jax.Array | None, own: float
  ) -> jax.Array:
    """Map images [n, H, W, C] to [n, (H // 16) (W // 16) width]."""
    for i in range(BLOCKS):
      layer = Convolution(
          self.width, self.norm, pooled=True, name=f"block_{i}"
      )
      x = layer(x, weights, own)
    return x.reshape(x.shape[0], -1)


class Conv1D(_Convolutional):
  """Four blocks of convolution over 5 steps, norm, LeakyReLU and max-pool 2.

  Convolutions along time, norms and the mean over time before a linear head:
  Wang, Yan and Oates, "Time Series Classification from Scratch with Deep Neural
  Networks" (IJCNN 2017), section 2.2, with the four poolings of Conv4. A series
  is an image of one row, so the convolutions are those of images.

  Attributes:
    way: number of classes, and of logits; None omits the head.
    width: channels of every block.
    norm: see `Conv4`.
    cosine: see `Conv4`.
  """

  def features(
      self, x: jax.Array, weights: jax.Array | None, own: float
  ) -> jax.Array:
    """Map series [n, time, C] to [n, width]."""
    x = x[:, None]
    for i in range(BLOCKS):
      layer = Convolution(self.width, self.norm, (1, 5), name=f"block_{i}")
      x = nn.leaky_relu(max_pool_pairs(layer(x, weights, own)))
    return x.mean((1, 2))


class Residual(nn.Module):
  """Three 3x3 convolutions and a shortcut of 1x1, their sum pooled.

  Attributes:
    width: number of channels.
    norm: see `Conv4`.
  """

  width: int
  norm: Norm

  @nn.compact
  def __call__(
      self, x: jax.Array, weights: jax.Array | None = None, own: float = 0.0
  ) -> jax.Array:
    """Map [n, H, W, C] to [n, H // 2, W // 2, width]."""
    shortcut = Convolution(
        self.width, self.norm, (1, 1), name="shortcut"
    )(x, weights, own)
    for i in range(3):
      if i:
        x = nn.leaky_relu(x, RESIDUAL_SLOPE)
      layer = Convolution(self.width, self.norm, name=f"conv_{i}")
      x = layer(x, weights, own)
    # The LeakyReLU is increasing, so it can follow the pool: fewer numbers.
    return nn.leaky_relu(max_pool(x + shortcut), RESIDUAL_SLOPE)


class ResNet12(_Convolutional):
  """Four residual blocks, the mean over space, and a linear head.

  See `resnet12`.

  Attributes:
    way: number of classes, and of logits; None omits the head.
    width: channels of the first block; the others have 2.5, 5 and 10 times as
      many (64, 160, 320 and 640 in the literature).
    norm: see `Conv4`.
    cosine: see `Conv4`.
  """

  def features(
      self, x: jax.Array, weights: jax.Array | None, own: float
  ) -> jax.Array:
    """Map images [n, H, W, C] to [n, 10 width]."""
    for i, halves in enumerate(_HALVES):
      layer = Residual(self.width * halves // 2, self.norm, name=f"block_{i}")
      x = layer(x, weights, own)
    return x.mean((1, 2))


# Builders ---------------------------------------------------------------------


def mlp(
    outputs: int,
    widths: tuple[int, ...] = (40, 40),
    input_shape: tuple[int, ...] = (1, 1, 1),
) -> model_lib.Model:
  """Build an `MLP`, which consists of matrix products only.

  Args:
    outputs: number of classes, or of targets.
    widths: widths of the hidden layers.
    input_shape: shape of one example, with one to three axes; it is flattened.

  Returns:
    The network, `Model`, with outputs float32 [n, outputs].

  Examples:
    >>> import jax
    >>> from episodic_dp import models
    >>> network = models.mlp(5, (8,), (28, 28, 1))
    >>> params = jax.eval_shape(network.init, jax.random.key(0))
    >>> images = jax.ShapeDtypeStruct((3, 28, 28, 1), jax.numpy.float32)
    >>> jax.eval_shape(network.apply, params, images).shape
    (3, 5)
  """
  _check_sizes(
      outputs=outputs, **{f"widths[{i}]": w for i, w in enumerate(widths)}
  )
  module = MLP(outputs=outputs, widths=tuple(widths))
  return model_lib.from_flax(module, input_shape)._replace(mixes_examples=False)


def features(
    way: int | None,
    linear: bool = True,
    input_shape: tuple[int, ...] = (128,),
    cosine: bool = False,
) -> model_lib.Model:
  """Build a `Features`, for embeddings of a network that learned elsewhere.

  Args:
    way: the number of classes; None for no head.
    linear: whether it has a square matrix.
    input_shape: of an example, of any one to three axes: it is flattened.
    cosine: whether the features of all examples have one length.
  """
  _check_sizes(way=way)
  network = Features(way, linear, cosine)
  return model_lib.from_flax(network, input_shape)._replace(
      mixes_examples=False
  )


def conv4(
    way: int | None,
    width: int = 64,
    norm: Norm = "batch",
    input_shape: tuple[int, ...] = (28, 28, 1),
    cosine: bool = False,
) -> model_lib.Model:
  """Build a `Conv4` of any width.

  Blocks of 3x3 convolution, norm, LeakyReLU 0.01 and 2x2 max-pool: Vinyals et
  al., "Matching Networks" (2016), with the LeakyReLU of Antoniou et al., "How
  to train your MAML" (2019).

  Args:
    way: number of classes; None omits the head: the outputs are the features
      [n, d] that metric learners compare, d = (H // 16) (W // 16) width.
    width: channels of every block (64 in the literature).
    norm: "batch", "group" or "none".
    input_shape: (H, W, C), at least 16x16 pixels.
    cosine: whether features are `Directions`.

  Returns:
    The network, `Model`, with outputs float32 [n, way] or [n, d].

  Raises:
    RunError: an unknown norm, or images that are too small.
  """
  return _convolutional(Conv4(way, width, norm, cosine), input_shape)


def resnet12(
    way: int | None,
    width: int = 64,
    norm: Norm = "batch",
    input_shape: tuple[int, ...] = (84, 84, 3),
    cosine: bool = False,
) -> model_lib.Model:
  """Build a `ResNet12`.

  Oreshkin, Rodriguez and Lacoste, "TADAM" (NeurIPS 2018), with the channels and
  the LeakyReLU 0.1 of Lee et al., "Meta-Learning with Differentiable Convex
  Optimization" (MetaOptNet, CVPR 2019), section 4.1. Their dropout, DropBlock
  and weight decay are left out: here the noise regularises.

  Args:
    way: number of classes; None omits the head: features [n, 10 width].
    width: channels of the first block (64 in the literature).
    norm: "batch", "group" or "none".
    input_shape: (H, W, C), at least 16x16 pixels.
    cosine: whether features are `Directions`.

  Returns:
    The network, `Model`, with outputs float32 [n, way] or [n, 10 width].

  Raises:
    RunError: an unknown norm, or images that are too small.
  """
  return _convolutional(ResNet12(way, width, norm, cosine), input_shape)


def conv1d(
    way: int | None,
    width: int = 64,
    norm: Norm = "batch",
    input_shape: tuple[int, ...] = (128, 1),
    cosine: bool = False,
) -> model_lib.Model:
  """Build a `Conv1D`, with convolutions along time.

  Args:
    way: number of classes; None omits the head: features [n, width].
    width: channels of every block.
    norm: "batch", "group" or "none".
    input_shape: (time, channels), at least 16 steps.
    cosine: whether features are `Directions`.

  Returns:
    The network, `Model`, with outputs float32 [n, way] or [n, width].

  Raises:
    RunError: an unknown norm, or series that are too short.
  """
  return _convolutional(Conv1D(way, width, norm, cosine), input_shape, axes=2)


def _check_sizes(**sizes: int | None) -> None:
  """Raise PlanError unless all are None or whole numbers of at least 1."""
  for name, size in sizes.items():
    if size is not None:
      _validate.count(name, size, 1)


def _convolutional(
    module: Any, input_shape: tuple[int, ...], axes: int = 3
) -> model_lib.Model:
  """Return the Model of a module, or raise RunError."""
  _validate.one_of("norm", module.norm, typing.get_args(Norm))
  _check_sizes(way=module.way, width=module.width)
  least = 2**BLOCKS
  if len(input_shape) != axes or min(input_shape[:-1]) < least:
    expected = "(height, width, channels)"
    if axes == 2:
      expected = "(time, channels)"
    raise _validate.refusal(
        "input_shape", input_shape,
        f"{expected}, at least {least} along each axis but the last, for"
        f" {BLOCKS} poolings by 2; mlp and features take any example, as in"
        " network='features' (in a command --config.model.name=features)",
    )
  # mixes_examples is known here, so testing it would waste a second.
  model = model_lib.from_flax(module, input_shape)
  if module.norm != "batch":
    return model._replace(mixes_examples=False)

  def recorded(
      params: model_lib.Params,
      images: jax.Array,
      weights: jax.Array | None = None,
  ) -> model_lib.Moments:
    _, found = module.apply(
        {"params": params}, images, weights, mutable=[MOMENTS]
    )
    return found[MOMENTS]

  def by_moments(
      params: model_lib.Params,
      images: jax.Array,
      given: model_lib.Moments,
      own: float,
  ) -> jax.Array:
    variables = {"params": params, MOMENTS: given}
    return module.apply(variables, images, own=own)

  return model._replace(moments=recorded, by_moments=by_moments)


_CONVOLUTIONS = {
    "conv4": conv4,
    "resnet12": resnet12,
    "conv1d": conv1d,
}


def by_name(
    network: options.Network,
    outputs: int | None,
    input_shape: tuple[int, ...],
) -> model_lib.Model:
  """Build a network of the library.

  Args:
    network: its options.
    outputs: number of logits; None for features, of an mlp as many as its last
      hidden layer has.
    input_shape: shape of one example.

  Raises:
    RunError: a shape that the network cannot take.
  """
  if network.name == "mlp":
    return mlp(outputs or network.widths[-1], network.widths, input_shape)
  if network.name == "features":
    return features(outputs, network.linear, input_shape, network.cosine)
  return _CONVOLUTIONS[network.name](
      outputs, network.width, network.norm, input_shape, network.cosine
  )
