"""The networks that the library brings, in Flax Linen, as Models."""

from typing import Any

from flax import linen as nn
import jax

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp.models import layers
from episodic_dp.models import libraries
from episodic_dp.models.model import Model

_RESIDUAL_SLOPE = 0.1
# Channels of the four blocks over the first one's, times two.
_HALVES = (2, 5, 10, 20)


class MLP(nn.Module):
  """Hidden layers with ReLU, and a linear layer "head".

  The network of sinusoid regression in Finn, Abbeel and Levine, "Model-Agnostic
  Meta-Learning" (ICML 2017), section 5.1: two hidden layers of 40.

  Attributes:
    outputs: numbers of the last layer.
    widths: those of the hidden layers.
  """

  outputs: int
  widths: tuple[int, ...] = (40, 40)

  @nn.compact
  def __call__(self, examples: jax.Array) -> jax.Array:
    """Map [n, ...], taken as one row of numbers each, to [n, outputs]."""
    x = examples.reshape(examples.shape[0], -1)
    for i, width in enumerate(self.widths):
      x = nn.relu(nn.Dense(width, name=f"hidden_{i}")(x))
    return nn.Dense(self.outputs, name="head")(x)


class Conv4(nn.Module):
  """Four blocks and a linear head; Conv6 with two blocks without a pool more.

  Blocks of 3x3 convolution, norm, LeakyReLU 0.01 and 2x2 max-pool: Vinyals et
  al., "Matching Networks" (2016), with the LeakyReLU of Antoniou et al., "How
  to train your MAML" (2019). Conv6: Chen et al., "A Closer Look at Few-shot
  Classification" (ICLR 2019), section 4.3.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: the channels of every block.
    norm: "batch": statistics of the current batch over examples and space,
      with a learnable scale and bias, nothing carried; mixes the examples of a
      task. "group": the largest number of groups up to 8 that divides the
      width; "none": a bias only. The last two treat every example alone.
    after: blocks without a pool after the four: 2 for Conv6.
  """

  way: int | None
  width: int = 64
  norm: layers.Norm = "batch"
  after: int = 0

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """Map images [n, H, W, C] to logits [n, way], or features [n, d]."""
    x = images
    for i in range(layers.BLOCKS + self.after):
      pooled = i < layers.BLOCKS
      x = layers.Convolution(
          self.width, self.norm, pooled=pooled, name=f"block_{i}"
      )(x)
      x = x if pooled else layers.leaky_relu(x)
    return layers.head(self.way, x.reshape(x.shape[0], -1))


class Conv1D(nn.Module):
  """Four blocks of convolution over 5 steps, norm, LeakyReLU and max-pool 2.

  Convolutions along time, norms and the mean over time before a linear head:
  Wang, Yan and Oates, "Time Series Classification from Scratch with Deep Neural
  Networks" (IJCNN 2017), section 2.2, with the four poolings of Conv4. A series
  is an image of one row, so that the convolutions are those of images.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: the channels of every block.
    norm: see `Conv4`.
  """

  way: int | None
  width: int = 64
  norm: layers.Norm = "batch"

  @nn.compact
  def __call__(self, series: jax.Array) -> jax.Array:
    """Map [n, time, C] to logits [n, way], or features [n, width]."""
    x = series[:, None]
    for i in range(layers.BLOCKS):
      convolution = layers.Convolution(
          self.width, self.norm, (1, 5), name=f"block_{i}"
      )
      x = layers.leaky_relu(layers.max_pool_pairs(convolution(x)))
    return layers.head(self.way, x.mean((1, 2)))


class Residual(nn.Module):
  """Three 3x3 convolutions and a shortcut of 1x1, their sum pooled.

  Attributes:
    width: its channels.
    norm: see `Conv4`.
  """

  width: int
  norm: layers.Norm

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Map [n, H, W, C] to [n, H // 2, W // 2, width]."""
    shortcut = layers.Convolution(
        self.width, self.norm, (1, 1), name="shortcut"
    )(x)
    for i in range(3):
      if i:
        x = layers.leaky_relu(x, _RESIDUAL_SLOPE)
      x = layers.Convolution(self.width, self.norm, name=f"conv_{i}")(x)
    # The LeakyReLU increases: after the pool it has fewer numbers to do.
    return layers.leaky_relu(layers.max_pool(x + shortcut), _RESIDUAL_SLOPE)


class ResNet12(nn.Module):
  """Four residual blocks, the mean over space, and a linear head.

  Oreshkin, Rodriguez and Lacoste, "TADAM" (NeurIPS 2018), with the channels and
  the LeakyReLU 0.1 of Lee et al., "Meta-Learning with Differentiable Convex
  Optimization" (MetaOptNet, CVPR 2019), section 4.1. Their dropout, DropBlock
  and weight decay are left out: here noise regularises.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: channels of the first block; those of the others are 2.5, 5 and 10
      times as many (64, 160, 320 and 640 in the literature).
    norm: see `Conv4`.
  """

  way: int | None
  width: int = 64
  norm: layers.Norm = "batch"

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """Map images [n, H, W, C] to logits [n, way], or features [n, 10 width]."""
    x = images
    for i, halves in enumerate(_HALVES):
      width = self.width * halves // 2
      x = Residual(width, self.norm, name=f"block_{i}")(x)
    return layers.head(self.way, x.mean((1, 2)))


# Builders ---------------------------------------------------------------------


def mlp(
    outputs: int,
    widths: tuple[int, ...] = (40, 40),
    input_shape: tuple[int, ...] = (1, 1, 1),
) -> Model:
  """Build an `MLP`, of matrix products only.

  Args:
    outputs: the number of classes, or of numbers to predict.
    widths: those of the hidden layers.
    input_shape: of an example, of any one to three axes: it is flattened.

  Raises:
    ValueError: a size below 1.

  Examples:
    >>> import jax
    >>> from episodic_dp import models
    >>> network = models.mlp(5, (8,), (28, 28, 1))
    >>> params = jax.eval_shape(network.init, jax.random.key(0))
    >>> images = jax.ShapeDtypeStruct((3, 28, 28, 1), jax.numpy.float32)
    >>> jax.eval_shape(network.apply, params, images).shape
    (3, 5)
  """
  for name, sizes in (
      ("outputs", (outputs,)), ("widths", widths), ("input_shape", input_shape)
  ):
    for size in sizes:
      _validate.count(name, size, 1)
  module = MLP(outputs=outputs, widths=tuple(widths))
  return libraries.from_flax(module, input_shape)._replace(mixes_examples=False)


def conv4(
    way: int | None,
    width: int = 64,
    norm: layers.Norm = "batch",
    input_shape: tuple[int, ...] = (28, 28, 1),
) -> Model:
  """Build a `Conv4` of any width.

  Args:
    way: the number of classes; None for no head, so that the outputs are the
      features [n, d] that metric learners compare, d = (H // 16) (W // 16)
      width.
    width: channels of every block (64 in the literature).
    norm: "batch", "group" or "none".
    input_shape: (H, W, C), at least 16x16 pixels.

  Raises:
    ValueError: an unknown norm, or images that are too small.
  """
  return _convolutional(Conv4(way, width, norm), input_shape, 3)


def conv6(
    way: int | None,
    width: int = 64,
    norm: layers.Norm = "batch",
    input_shape: tuple[int, ...] = (28, 28, 1),
) -> Model:
  """Build a `Conv4` with two more blocks; arguments and errors of `conv4`."""
  module = Conv4(way, width, norm, after=2)
  return _convolutional(module, input_shape, 3, after=2)


def resnet12(
    way: int | None,
    width: int = 64,
    norm: layers.Norm = "batch",
    input_shape: tuple[int, ...] = (84, 84, 3),
) -> Model:
  """Build a `ResNet12`; arguments and errors of `conv4`."""
  return _convolutional(ResNet12(way, width, norm), input_shape, 3)


def conv1d(
    way: int | None,
    width: int = 64,
    norm: layers.Norm = "batch",
    input_shape: tuple[int, ...] = (128, 1),
) -> Model:
  """Build a `Conv1D`, convolutions along time.

  Args:
    way: the number of classes; None for no head: features [n, width].
    width: channels of every block.
    norm: "batch", "group" or "none".
    input_shape: (time, channels), at least 16 steps.

  Raises:
    ValueError: an unknown norm, or series that are too short.
  """
  return _convolutional(Conv1D(way, width, norm), input_shape, 2)


def _convolutional(
    module: Any, input_shape: tuple[int, ...], axes: int, *, after: int = 0
) -> Model:
  """Return the Model of a module, or raise ValueError."""
  if module.way is not None:
    _validate.count("way", module.way, 1)
  if len(input_shape) != axes:
    expected = "(height, width, channels)" if axes == 3 else "(time, channels)"
    raise _validate.refusal(
        "input_shape", input_shape, f"{expected}; mlp takes any example"
    )
  layers.check(module.width, module.norm, input_shape[:-1], after=after)
  # Whether it mixes is known: no second of trying it.
  return libraries.from_flax(module, input_shape)._replace(
      mixes_examples=module.norm == "batch"
  )


_CONVOLUTIONS = {
    "conv4": conv4,
    "conv6": conv6,
    "resnet12": resnet12,
    "conv1d": conv1d,
}


def by_name(
    network: options.Network,
    outputs: int | None,
    input_shape: tuple[int, ...],
) -> Model:
  """Build a network of the library.

  Args:
    network: its settings.
    outputs: number of logits; None for features (not of an mlp).
    input_shape: of one example.

  Raises:
    ValueError: there is no such network.
  """
  _validate.one_of("model.name", network.name, tuple(options.NETWORKS))
  if network.name == "mlp":
    if outputs is None:
      raise ValueError("an mlp has no features of its own: give its outputs")
    return mlp(outputs, network.widths, input_shape)
  build = _CONVOLUTIONS[network.name]
  return build(outputs, network.width, network.norm, input_shape)
