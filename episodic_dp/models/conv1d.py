"""A convolutional network of time series in Flax Linen.

Convolutions along time, norms and the mean over time before a linear head:
Wang, Yan and Oates, "Time Series Classification from Scratch with Deep Neural
Networks" (IJCNN 2017), section 2.2, with the four poolings of Conv4. A series
is an image of one row, so that the convolutions are those of images.
"""

from flax import linen as nn
import jax

from episodic_dp.models import block
from episodic_dp.models import layers
from episodic_dp.models import pooling

_WINDOW = (1, 5)


class Conv1D(nn.Module):
  """Four blocks of convolution over 5 steps, norm, LeakyReLU and max-pool 2.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: the channels of every block.
    norm: see `conv4.Conv4`.
  """

  way: int | None
  width: int = 64
  norm: block.Norm = "batch"

  @nn.compact
  def __call__(self, series: jax.Array) -> jax.Array:
    """series [n, time, C] -> logits [n, way], or features [n, width]."""
    block.check(self.width, self.norm, series.shape[1:2])
    x = series[:, None]
    for i in range(block.BLOCKS):
      x = layers.Convolution(
          self.width, self.norm, _WINDOW, name=f"block_{i}"
      )(x)
      x = block.leaky_relu(pooling.max_pool_pairs(x))
    return layers.head(self.way, x.mean((1, 2)))
