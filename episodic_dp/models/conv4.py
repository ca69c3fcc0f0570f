"""Conv4 in Flax Linen: the network of few-shot learning; and Conv6.

Four blocks of 3x3 convolution, norm, LeakyReLU 0.01 and 2x2 max-pool, and a
linear head (none where the features themselves are wanted): Vinyals et al.,
"Matching Networks" (2016), with the LeakyReLU of Antoniou et al., "How to train
your MAML" (2019). Conv6 has two more blocks, without a pool: Chen et al., "A
Closer Look at Few-shot Classification" (ICLR 2019), section 4.3.
"""

from flax import linen as nn
import jax

from episodic_dp.models import block
from episodic_dp.models import layers


class Conv4(nn.Module):
  """Four blocks and a linear head.

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
  norm: block.Norm = "batch"
  after: int = 0

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """images [n, H, W, C] -> logits [n, way], or features [n, d]."""
    block.check(self.width, self.norm, images.shape[1:3], after=self.after)
    x = images
    for i in range(block.BLOCKS + self.after):
      pool = i < block.BLOCKS
      x = layers.Block(self.width, self.norm, pool, name=f"block_{i}")(x)
    return layers.head(self.way, x.reshape(x.shape[0], -1))
