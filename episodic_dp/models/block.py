"""One block of Conv4, shared by its Flax and Haiku forms."""

from typing import Literal

import jax
import jax.numpy as jnp

from episodic_dp.models import convolution
from episodic_dp.models import normalization
from episodic_dp.models import pooling

Norm = Literal["batch", "group", "none"]
NORMS = ("batch", "group", "none")
NEGATIVE_SLOPE = 0.01
BLOCKS = 4


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
  values are the same and there are four times fewer of them.

  Args:
    x: [n, H, W, Cin].
    kernel: [3, 3, Cin, Cout].
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `conv4.Conv4`.

  Returns:
    [n, H // 2, W // 2, Cout].
  """
  if scale is None:
    x = convolution.convolve(x, kernel) + bias
  elif norm == "batch":
    x = normalization.convolve_batch_norm(x, kernel, scale, bias)
  else:
    x = normalization.group_norm(convolution.convolve(x, kernel), scale, bias)
  x = pooling.max_pool(x)
  return jnp.where(x >= 0, x, NEGATIVE_SLOPE * x)
