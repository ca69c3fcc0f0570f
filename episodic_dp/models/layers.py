"""Layers in Flax Linen that networks are made of, and their parameters."""

from flax import linen as nn
import jax

from episodic_dp.models import block

GLOROT = nn.initializers.glorot_uniform()


def parameters(
    module: nn.Module,
    shape: tuple[int, int, int, int],
    norm: block.Norm,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
  """`kernel`, `scale` (None without a norm) and `bias` of a module.

  Args:
    module: within its `__call__`.
    shape: of the kernel, [kh, kw, Cin, Cout].
    norm: see `conv4.Conv4`.
  """
  width = shape[-1]
  kernel = module.param("kernel", GLOROT, shape)
  scale = None
  if norm != "none":
    scale = module.param("scale", nn.initializers.ones, (width,))
  bias = module.param("bias", nn.initializers.zeros, (width,))
  return kernel, scale, bias


class Block(nn.Module):
  """Convolution 3x3, norm, LeakyReLU 0.01 and 2x2 max-pool; see `block.apply`.

  Attributes:
    width: its channels.
    norm: see `conv4.Conv4`.
    pool: whether it ends in the max-pool.
  """

  width: int
  norm: block.Norm
  pool: bool = True

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[n, H, W, C] -> [n, H // 2, W // 2, width], or [n, H, W, width]."""
    shape = (3, 3, x.shape[-1], self.width)
    weights = parameters(self, shape, self.norm)
    if self.pool:
      return block.apply(x, *weights, self.norm)
    return block.leaky_relu(block.convolved(x, *weights, self.norm))


class Convolution(nn.Module):
  """Convolution of the same size, and norm.

  Attributes:
    width: its channels.
    norm: see `conv4.Conv4`.
    window: its height and width, odd.
  """

  width: int
  norm: block.Norm
  window: tuple[int, int] = (3, 3)

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[n, H, W, C] -> [n, H, W, width]."""
    shape = (*self.window, x.shape[-1], self.width)
    weights = parameters(self, shape, self.norm)
    return block.convolved(x, *weights, self.norm)


def head(way: int | None, features: jax.Array) -> jax.Array:
  """A linear layer "head" on features [n, d]; none for way None.

  Called within the `__call__` of a module.
  """
  if way is None:
    return features
  return nn.Dense(way, kernel_init=GLOROT, name="head")(features)
