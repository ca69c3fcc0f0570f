"""Clipping: bound the change that one clip unit can make to the sum.

Formal guarantees
-----------------
For every gradient, finite or not, `clip` returns a vector whose exact l2 norm
(of the returned float32 numbers, computed without rounding) is at most
`clip_norm`, a constant or a computed array (at least 1e-30). The sum of clipped
gradients over clip units therefore has the sensitivity that `sensitivity`
returns:

| neighbours | bound on the l2 change of the sum |
| --- | --- |
| one clip unit added or removed | C |
| one clip unit replaced by another | 2 C |

(Under fixed-size sampling, removing a record from the data *replaces* a unit of
the sample: 2 C.)

| edge case | result |
| --- | --- |
| NaN or infinity anywhere in the gradient | the zero vector |
| a norm whose square overflows float32 | clipped like any other |
| C = infinity | finite gradients unchanged, bit for bit |
| norm within rounding of C | may be scaled, by less than 1 - 1e-4 |

Not covered: the rounding of the float32 *sum*. It depends on all clip units, so
one unit's effect on it adds to C. For n clip units, added c at a time, in up to
10^4 parts on each of d devices, the sum is within

    (c + d + 1) 2^-24 n C

of the exact one, so it moves by at most twice that beyond C: 0.1 % of C at n =
1600, c = 4 (`microbatch_size`) and d = 1. Without the compensation of
`compensated_add` the error could grow with n^2: for certain 2600 gradients,
leaving one out would move the plain sum by 1.1 C.
"""

import math
from typing import Any, Literal, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import _validate

Tree = Any  # Nested containers of arrays.
_UNIT = 2.0**-24  # The relative error of one float32 operation.
_EXPONENT = 0xFF << 23  # Its bits in a float32.
_MIN_SCALE, _MAX_SCALE = 64 << 23, 253 << 23  # 2^-63 and 2^126, as bits.


class Clipped(NamedTuple):
  """A clipped gradient, with private statistics of the raw one.

  Attributes:
    gradient: tree like the input, float32, of norm at most C.
    norm: float32 scalar, the raw l2 norm (0 if the gradient is not finite).
    clipped: bool scalar, whether it was scaled down.
    finite: bool scalar, false if the gradient was replaced by zeros.
    norms: float32[groups], the raw norm of the whole, or of each array.
    within: bool[groups], whether it was not scaled down.
  """

  gradient: Tree
  norm: jax.Array
  clipped: jax.Array
  finite: jax.Array
  norms: jax.Array
  within: jax.Array


def clip(
    gradient: Tree,
    clip_norm: float | jax.Array,
    by: Literal["global", "layer"] = "global",
) -> Clipped:
  """Scale one clip unit's gradient to at most the clip norm; `vmap` over units.

  Args:
    gradient: any tree of floating arrays: one clip unit's gradient.
    clip_norm: C > 0, infinity for no clipping; or float32[groups], the bound of
      the whole (one group) or of each of the m arrays (by="layer").
    by: "global" scales the whole to norm C; "layer" scales each of the m arrays
      to C / sqrt(m), so that the whole is within C.

  Returns:
    The clipped gradient, `Clipped`; its bound is exact (see the module's text).
  """
  leaves, treedef = jax.tree.flatten(gradient)
  leaves = [leaf.astype(jnp.float32) for leaf in leaves]
  groups = [leaves]
  if by == "layer":
    groups = [[leaf] for leaf in leaves]
  bounds: np.ndarray | jax.Array
  if isinstance(clip_norm, (int, float, np.number)):
    bound = float(clip_norm) / math.sqrt(len(groups))
    bounds = np.full(len(groups), bound, np.float32)
  else:
    bounds = clip_norm
  rescaled = [*map(_rescale, groups)]
  finite = jnp.all(jnp.stack([jnp.isfinite(r.root) for r in rescaled]))
  rescaled = [
      r._replace(norm=jnp.where(finite, r.norm, 0.0)) for r in rescaled
  ]
  results = [
      _clip_group(*one) for one in zip(groups, rescaled, bounds, strict=True)
  ]
  norms = jnp.stack([r.norm for r in rescaled])
  # Not the square root of the square, which overflows for some finite norms.
  if len(groups) > 1:
    joint = jnp.sqrt(jnp.sum(jnp.square(norms)))
  else:
    joint = norms[0]
  within = jnp.stack([inside for _, inside in results])
  clipped = [jnp.where(finite, leaf, 0.0) for r, _ in results for leaf in r]
  return Clipped(
      jax.tree.unflatten(treedef, clipped),
      joint,
      ~jnp.all(within),
      finite,
      norms,
      within,
  )


def sum_units(units: Tree) -> Tree:
  """Sum over the first axis of every array of a tree.

  Computed as a product with ones. On a CPU, `a.sum(0)` takes many times as long
  for wide arrays (jaxlib 0.10.2). Written-out additions would be fused with the
  clipping in some programs and not in others, and so differ in their last bits.
  """
  return jax.tree.map(_sum_units, units)


def _sum_units(a: jax.Array) -> jax.Array:
  ones = jnp.ones(len(a), a.dtype)
  total = jnp.dot(
      ones, a.reshape(len(a), -1), precision=lax.Precision.HIGHEST
  )
  return total.reshape(a.shape[1:])


def compensated_add(
    total: Tree, compensation: Tree, part: Tree
) -> tuple[Tree, Tree]:
  """Add a part to a running sum and keep the rounding error.

  Source: Knuth, "The Art of Computer Programming", volume 2, section 4.2.2,
  theorem B: the error of a floating-point addition is itself a floating-point
  number.

  Args:
    total: tree of float32 arrays, the sum so far.
    compensation: tree of the same shapes, the rounding errors so far; the sum
      is `total + compensation`.
    part: tree of the same shapes, to be added.

  Returns:
    The new total and the new compensation.
  """
  # Computed once: if a use rounded it differently (a fused multiplication), the
  # compensation would belong to another part.
  part = lax.optimization_barrier(part)
  after = jax.tree.map(jnp.add, total, part)

  def error(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    added = c - a
    return (a - (c - added)) + (b - added)

  errors = jax.tree.map(error, total, part, after)
  return after, jax.tree.map(jnp.add, compensation, errors)


def sensitivity(
    clip_norm: float,
    neighbours: Literal["add-or-remove", "replace-one"] = "add-or-remove",
) -> float:
  """Return the l2 bound on the sum's change between neighbours: C, or 2 C.

  Args:
    clip_norm: C.
    neighbours: "add-or-remove" for one clip unit more or less (C), or
      "replace-one" for one that is replaced (2 C).

  Raises:
    PlanError: an unknown relation.
  """
  _validate.one_of("neighbours", neighbours, ("add-or-remove", "replace-one"))
  if neighbours == "replace-one":
    return 2 * clip_norm
  return clip_norm


class _Rescaled(NamedTuple):
  """Arrays divided by a power of two, and their norm.

  Attributes:
    arrays: the largest entry is below 4, and at least 1 unless all are small;
      the squares of normal numbers are normal numbers.
    root: l2 norm of `arrays`; not finite exactly if some entry is not.
    norm: l2 norm before the scaling.
    slack: bound on the relative rounding error of root and norm.
  """

  arrays: list[jax.Array]
  root: jax.Array
  norm: jax.Array
  slack: float


def _rescale(leaves: list[jax.Array]) -> _Rescaled:
  largest = jnp.max(jnp.stack([*map(_largest, leaves)]))
  # Scaling by a power of two is exact and keeps the squares from overflowing.
  # The power's reciprocal must be a normal number: XLA may compile a division
  # as a product with the reciprocal, and that of 1e38 would be flushed to zero,
  # giving a huge gradient norm 0. The square of the reciprocal must be finite:
  # XLA multiplies it by the square of a constant gradient, such as 0.
  bits = lax.bitcast_convert_type(largest, jnp.uint32) & _EXPONENT
  bits = jnp.clip(bits, _MIN_SCALE, _MAX_SCALE)
  scale = lax.bitcast_convert_type(bits, jnp.float32)
  inverse = lax.bitcast_convert_type((254 << 23) - bits, jnp.float32)
  arrays = [leaf * inverse for leaf in leaves]
  sums, additions = zip(*map(_sum_of_squares, arrays))
  root = jnp.sqrt(sum(sums[1:], sums[0]))
  # A sum of non-negative terms, each added at most k times, is within k
  # rounding units; a dozen more cover the other operations here.
  slack = (max(additions) + len(leaves) + 12) * _UNIT
  return _Rescaled(arrays, root, scale * root, slack)


def _clip_group(
    leaves: list[jax.Array], group: _Rescaled, bound: np.float32 | jax.Array
) -> tuple[list[jax.Array], jax.Array]:
  """Scale arrays to a joint norm of at most `bound`."""
  inside = group.norm * np.float32(1 + 2 * group.slack) <= bound
  # The quotient of the bound and the root, rounded down by the slack.
  factor = bound * np.float32(1 - 2 * group.slack) / group.root
  clipped = [
      jnp.where(inside, leaf, array * factor)
      for leaf, array in zip(leaves, group.arrays)
  ]
  return clipped, inside


def _largest(x: jax.Array) -> jax.Array:
  """Return the largest absolute value; any value if an entry is NaN."""
  # In two levels: a CPU vectorises the first.
  return lax.optimization_barrier(_as_square(jnp.abs(x)).max(0)).max()


def _sum_of_squares(x: jax.Array) -> tuple[jax.Array, int]:
  """Return the sum, and the most additions that a term passes through.

  With two levels of about sqrt(n) terms each, the worst-case error grows with
  sqrt(n), not n, whatever the order inside.
  """
  square = _as_square(x)
  partial = jnp.sum(jnp.square(square), axis=0)
  # Kept apart, or the compiler would merge the two sums into one of n terms.
  partial = lax.optimization_barrier(partial)
  return jnp.sum(partial), sum(square.shape)


def _as_square(x: jax.Array) -> jax.Array:
  """Return the entries as a nearly square matrix, padded with zeros."""
  width = max(1, math.isqrt(x.size))
  rows = -(-x.size // width)
  return jnp.pad(x.ravel(), (0, rows * width - x.size)).reshape(rows, width)
