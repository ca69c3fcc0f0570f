"""Conv4 in Flax Linen: the network of few-shot learning.

Four blocks of 3x3 convolution, norm, LeakyReLU 0.01 and 2x2 max-pool, and a
linear head (none where the features themselves are wanted): Vinyals et al.,
"Matching Networks" (2016), with the LeakyReLU of Antoniou et al., "How to train
your MAML" (2019).
"""

from flax import linen as nn
import jax

from episodic_dp.models import block


class Block(nn.Module):
  """One block; parameters `kernel`, `scale` (with a norm) and `bias`."""

  width: int
  norm: block.Norm

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[n, H, W, C] -> [n, H // 2, W // 2, width]."""
    shape = (3, 3, x.shape[-1], self.width)
    kernel = self.param("kernel", nn.initializers.glorot_uniform(), shape)
    scale = None
    if self.norm != "none":
      scale = self.param("scale", nn.initializers.ones, (self.width,))
    bias = self.param("bias", nn.initializers.zeros, (self.width,))
    return block.apply(x, kernel, scale, bias, self.norm)


class Conv4(nn.Module):
  """Four blocks and a linear head.

  Attributes:
    way: the number of classes, and of logits; None leaves the head out.
    width: the channels of every block.
    norm: "batch": statistics of the current batch over examples and space,
      with a learnable scale and bias, nothing carried; mixes the examples of a
      task. "group": the largest number of groups up to 8 that divides the
      width; "none": a bias only. The last two treat every example alone.
  """

  way: int | None
  width: int = 64
  norm: block.Norm = "batch"

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """images [n, H, W, C] -> logits [n, way], or features [n, d]."""
    block.check(self.width, self.norm, images.shape[1:3])
    x = images
    for i in range(block.BLOCKS):
      x = Block(self.width, self.norm, name=f"block_{i}")(x)
    x = x.reshape(x.shape[0], -1)
    if self.way is None:
      return x
    return nn.Dense(
        self.way, kernel_init=nn.initializers.glorot_uniform(), name="head"
    )(x)
