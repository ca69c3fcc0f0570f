"""Blocks of convolution, norm, LeakyReLU and pool, shared by all networks."""

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


def check(
    width: int, norm: str, spatial: tuple[int, ...], *, after: int = 0
) -> None:
  """ValueError unless a network of such blocks exists.

  Args:
    width: the least channels of a block.
    norm: see `conv4.Conv4`.
    spatial: (H, W) of an image, or the length of a series.
    after: blocks after the last of the four poolings.
  """
  if norm not in NORMS:
    raise ValueError(f"norm {norm!r} must be one of {NORMS}")
  if width < 1:
    raise ValueError(f"width {width} must be at least 1")
  least = 2**BLOCKS
  if min(spatial) < least:
    size = "x".join(map(str, spatial))
    what = f"images of {size} pixels" if spatial[1:] else f"series of {size}"
    raise ValueError(
        f"{what} are too small for {BLOCKS} poolings by 2: give at least"
        f" {'x'.join([str(least)] * len(spatial))}"
    )
  alone = all(length // least == 1 for length in spatial)
  if norm == "group" and after and alone:
    if normalization.num_groups(width) == width:
      raise ValueError(
          f"width {width} with norm 'group' normalises single numbers after the"
          " last pooling, which leaves nothing of them: give width"
          f" {2 * normalization.MAX_GROUPS}, or norm 'batch'"
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
  return leaky_relu(_pooled(x, kernel, scale, bias, norm))


def _pooled(x, kernel, scale, bias, norm):
  """`apply` without the LeakyReLU, in a form for a CPU where one fits.

  All forms are equal up to rounding, and the last is the plain one.
  """
  if norm == "batch" and backends.choices().own_forms:
    for form in (first_block, wide_block):
      if form.fits(x.shape, kernel.shape):
        return form.apply(x, kernel, scale, bias)
  return pooling.max_pool(convolved(x, kernel, scale, bias, norm))


def convolved(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array,
    norm: Norm,
) -> jax.Array:
  """Convolution of the same size, and norm.

  Args:
    x: [n, H, W, Cin].
    kernel: [kh, kw, Cin, Cout], kh and kw odd.
    scale: [Cout], or None without a norm.
    bias: [Cout].
    norm: see `conv4.Conv4`.

  Returns:
    [n, H, W, Cout].
  """
  if backends.choices().own_forms and direct.fits(x.shape, kernel.shape):
    x = direct.same(x, kernel)
  else:
    x = convolution.same(x, kernel)
  if scale is None:
    return x + bias
  if norm == "batch":
    return normalization.batch_norm(x, scale, bias)
  return normalization.group_norm(x, scale, bias)


def leaky_relu(x: jax.Array, slope: float = NEGATIVE_SLOPE) -> jax.Array:
  """x where it is not negative, elsewhere slope * x."""
  return jnp.where(x >= 0, x, slope * x)
