"""One block of Conv4, shared by its Flax and Haiku forms."""

from typing import Literal

import jax
import jax.numpy as jnp

from episodic_dp.models import convolution
from episodic_dp.models import first_block
from episodic_dp.models import normalization
from episodic_dp.models import pooling

Norm = Literal["batch", "group", "none"]
NORMS = ("batch", "group", "none")
NEGATIVE_SLOPE = 0.01
BLOCKS = 4
# Channels and images from which tiles are quicker than patches, on a CPU. For
# the few images of a support set they are slower, second order many times so.
WIDE, MANY = 32, 32


def check(width: int, norm: str, spatial: tuple[int, ...]) -> None:
  """ValueError unless a Conv4 of these settings exists."""
  if norm not in NORMS:
    raise ValueError(f"norm {norm!r} must be one of {NORMS}")
  if width < 1:
    raise ValueError(f"width {width} must be at least 1")
  if min(spatial) < 2**BLOCKS:
    raise ValueError(
        f"images of {spatial[0]}x{spatial[1]} pixels are too small for"
        f" {BLOCKS} poolings by 2: give at least {2**BLOCKS}x{2**BLOCKS}"
    )


def apply(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array,
    norm: Norm,
) -> jax.Array:
  """Convolution 3x3, norm, LeakyReLU 0.01, max-pool 2x2.

  The pooling goes first and the LeakyReLU, which is increasing, after it: the
  values are the same and there are four times fewer of them. Which of several
  equal ways is quickest depends on the shapes. Reverse mode of any order only.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `conv4.Conv4`.

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  x = _pooled(x, kernel, scale, bias, norm)
  return jnp.where(x >= 0, x, NEGATIVE_SLOPE * x)


def _tiled(images: int, channels: int) -> bool:
  on_cpu = jax.default_backend() == "cpu"
  return on_cpu and images >= MANY and channels >= WIDE


def _pooled(x, kernel, scale, bias, norm):
  if norm == "batch" and first_block.fits(x.shape, kernel.shape):
    return first_block.apply(x, kernel, scale, bias)
  if norm == "batch" and _tiled(x.shape[0], min(kernel.shape[2:])):
    return normalization.convolve_batch_norm_pool(x, kernel, scale, bias)
  if scale is None:
    x = convolution.same(x, kernel) + bias
  elif norm == "batch":
    x = normalization.convolve_batch_norm(x, kernel, scale, bias)
  else:
    x = normalization.group_norm(convolution.same(x, kernel), scale, bias)
  return pooling.max_pool(x)
