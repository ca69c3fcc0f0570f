"""ResNet-12 in Flax Linen: the deeper network of few-shot learning.

Oreshkin, Rodriguez and Lacoste, "TADAM" (NeurIPS 2018), with the channels and
the LeakyReLU 0.1 of Lee et al., "Meta-Learning with Differentiable Convex
Optimization" (MetaOptNet, CVPR 2019), section 4.1. Their dropout and DropBlock
are left out, and so is weight decay: what regularises here is noise.
"""

from flax import linen as nn
import jax

from episodic_dp.models import block
from episodic_dp.models import layers
from episodic_dp.models import pooling

NEGATIVE_SLOPE = 0.1
# Channels of the four blocks over the first one's, times two.
_HALVES = (2, 5, 10, 20)


def widths(width: int) -> tuple[int, ...]:
  """Channels of the four blocks: 64, 160, 320 and 640 for a width of 64."""
  return tuple(width * halves // 2 for halves in _HALVES)


class Residual(nn.Module):
  """Three 3x3 convolutions beside one of 1x1, their sum pooled.

  Attributes:
    width: its channels.
    norm: see `conv4.Conv4`.
  """

  width: int
  norm: block.Norm

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[n, H, W, C] -> [n, H // 2, W // 2, width]."""
    shortcut = layers.Convolution(
        self.width, self.norm, (1, 1), name="shortcut"
    )(x)
    for i in range(3):
      if i:
        x = block.leaky_relu(x, NEGATIVE_SLOPE)
      x = layers.Convolution(self.width, self.norm, name=f"conv_{i}")(x)
    # The LeakyReLU increases: after the pool it has fewer numbers to do.
    return block.leaky_relu(pooling.max_pool(x + shortcut), NEGATIVE_SLOPE)


class ResNet12(nn.Module):
  """Four residual blocks, the mean over space, and a linear head.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: channels of the first block, see `widths`.
    norm: see `conv4.Conv4`.
  """

  way: int | None
  width: int = 64
  norm: block.Norm = "batch"

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """images [n, H, W, C] -> logits [n, way], or features [n, 10 width]."""
    block.check(self.width, self.norm, images.shape[1:3])
    x = images
    for i, width in enumerate(widths(self.width)):
      x = Residual(width, self.norm, name=f"block_{i}")(x)
    return layers.head(self.way, x.mean((1, 2)))
