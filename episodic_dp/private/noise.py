"""Gaussian noise, drawn once per step from the step's key.

Formal guarantees
-----------------
Every coordinate is normal up to float32 rounding, with tails up to 9.5 standard
deviations. (`jax.random.normal` ends at 5.4: with 10^5 coordinates a step, the
missing tail would be a delta of 10^-5.) Not covered: attacks on the last bits
of floating-point noise, Mironov, "On Significance of the Least Significant Bits
for Differential Privacy" (2012). `terms` makes them harder; see
docs/decisions/floating_point.md.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.private import clipping


def add_noise(
    key: jax.Array,
    total: clipping.Tree,
    stddev: float | jax.Array,
    *,
    terms: int = 1,
) -> clipping.Tree:
  """Add independent N(0, stddev^2) to every coordinate of a tree.

  The noise depends on the key and the shapes alone, not on how the sum was
  computed. Noise several sums that are released together in one call.

  Args:
    key: the step's noise key, used for nothing else.
    total: tree of float32 arrays, the sum of clipped gradients.
    stddev: noise multiplier times clip norm, a number (0 returns the tree
      unchanged); or float32[1] for all arrays, float32[m] for each of m.
    terms: number of independent normals whose sum, divided by the root of this
      number, is the noise of a coordinate.

  Returns:
    The tree with noise, float32 arrays of the same shapes.
  """
  if not isinstance(stddev, jax.Array) and stddev == 0:
    return total
  leaves, treedef = jax.tree.flatten(total)
  spreads = jnp.broadcast_to(jnp.float32(stddev), len(leaves))
  # Drawn at once: each call is a large program to compile.
  ends = np.cumsum([leaf.size for leaf in leaves])
  drawn = jnp.split(_normal(key, (int(ends[-1]),), terms), ends[:-1])
  noised = [
      leaf + spread * normals.reshape(leaf.shape)
      for leaf, spread, normals in zip(leaves, spreads, drawn, strict=True)
  ]
  return jax.tree.unflatten(treedef, noised)


def _normal(key: jax.Array, shape: tuple[int, ...], terms: int) -> jax.Array:
  """Draw standard normals, each the scaled sum of `terms` independent ones.

  Holohan and Braghin, "Secure Random Sampling in Differential Privacy" (2021):
  to invert a sum, an attack must invert all of its terms at once.
  """
  if terms == 1:
    return standard_normal(key, shape)
  drawn = [
      standard_normal(jax.random.fold_in(key, j), shape) for j in range(terms)
  ]
  return sum(drawn[1:], drawn[0]) / math.sqrt(terms)


def standard_normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draw float32 standard normals (Box and Muller, 1958), with long tails."""
  size = math.prod(shape)
  bits = jax.random.bits(key, (3, (size + 1) // 2), jnp.uint32)
  return jnp.concatenate(_box_muller(*bits))[:size].reshape(shape)


def _box_muller(
    high: jax.Array, low: jax.Array, turn: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Compute two independent normals from three uint32 words.

  The radius is sqrt(2 E) for an exponential E. One bit chooses the upper or the
  lower half of the unit interval, and 63 bits give the distance from that end.
  So float32 resolves both ends: radii near 0 and far ones up to
  sqrt(2 log 2^65).
  """
  upper = high >> 31 == 1
  rest = (high & 0x7FFFFFFF).astype(jnp.float32)
  distance = rest * 2.0**-32 + (low.astype(jnp.float32) + 0.5) * 2.0**-64
  energy = jnp.where(upper, -jnp.log1p(-distance), -jnp.log(distance))
  radius = jnp.sqrt(2 * energy)
  angle = turn.astype(jnp.float32) * (2 * math.pi * 2.0**-32)
  return radius * jnp.cos(angle), radius * jnp.sin(angle)
