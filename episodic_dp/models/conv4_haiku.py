"""Conv4 in Haiku: equal to the Flax form for equal weights."""

import haiku as hk
import jax

from episodic_dp.models import block

_GLOROT = hk.initializers.VarianceScaling(1.0, "fan_avg", "uniform")


class Block(hk.Module):
  """One block; parameters `kernel`, `scale` (with a norm) and `bias`."""

  def __init__(self, width: int, norm: block.Norm, name: str | None = None):
    super().__init__(name=name)
    self.width = width
    self.norm: block.Norm = norm

  def __call__(self, x: jax.Array) -> jax.Array:
    """[n, H, W, C] -> [n, H // 2, W // 2, width]."""
    shape = (3, 3, x.shape[-1], self.width)
    kernel = hk.get_parameter("kernel", shape, init=_GLOROT)
    scale = None
    if self.norm != "none":
      scale = hk.get_parameter("scale", (self.width,), init=jax.numpy.ones)
    bias = hk.get_parameter("bias", (self.width,), init=jax.numpy.zeros)
    return block.apply(x, kernel, scale, bias, self.norm)


class Conv4(hk.Module):
  """Four blocks and a linear head; settings as in the Flax form."""

  def __init__(
      self,
      way: int | None,
      width: int = 64,
      norm: block.Norm = "batch",
      name: str | None = None,
  ):
    super().__init__(name=name)
    self.way = way
    self.width = width
    self.norm: block.Norm = norm

  def __call__(self, images: jax.Array) -> jax.Array:
    """images [n, H, W, C] -> logits [n, way], or features [n, d]."""
    block.check(self.width, self.norm, images.shape[1:3])
    x = images
    for i in range(block.BLOCKS):
      x = Block(self.width, self.norm, name=f"block_{i}")(x)
    x = hk.Flatten()(x)
    if self.way is None:
      return x
    return hk.Linear(self.way, w_init=_GLOROT, name="head")(x)
