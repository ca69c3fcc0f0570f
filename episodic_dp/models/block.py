"""One block of Conv4, shared by its Flax and Haiku forms."""

from typing import Literal

import jax
import jax.numpy as jnp

from episodic_dp import backends
from episodic_dp.models import convolution
from episodic_dp.models import normalization
from episodic_dp.models import pooling
from episodic_dp.models.cpu import direct
from episodic_dp.models.cpu import first_block
from episodic_dp.models.cpu import wide_block

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
  values are the same and there are four times fewer of them. Reverse mode of
  any order only.

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


def _pooled(x, kernel, scale, bias, norm):
  """`apply` without the LeakyReLU; the one place that chooses a form for a CPU.

  All forms are equal up to rounding, and the last is the plain one.
  """
  own_forms = backends.choices().own_forms
  if norm == "batch" and own_forms:
    for form in (first_block, wide_block):
      if form.fits(x.shape, kernel.shape):
        return form.apply(x, kernel, scale, bias)
  if own_forms and direct.fits(x.shape, kernel.shape):
    x = direct.same(x, kernel)
  else:
    x = convolution.same(x, kernel)
  if norm == "batch":
    x = normalization.batch_norm(x, scale, bias)
  elif norm == "group":
    x = normalization.group_norm(x, scale, bias)
  else:
    x = x + bias
  return pooling.max_pool(x)
