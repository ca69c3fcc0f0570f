"""Gaussian noise, drawn once per step from the step's key."""

from typing import Any

import jax


def add_noise(key: jax.Array, total: Any, stddev: float) -> Any:
  """The tree plus independent N(0, stddev^2) in every coordinate.

  The noise depends on the key and the shapes alone, not on how the sum was
  computed. Sums that are released together take one call.

  Args:
    key: the step's noise key, used for nothing else.
    total: tree of float32 arrays, the sum of clipped gradients.
    stddev: noise multiplier times clip norm; 0 returns the tree unchanged.
  """
  if stddev == 0:
    return total
  leaves, treedef = jax.tree.flatten(total)
  noised = [
      leaf
      + stddev * jax.random.normal(jax.random.fold_in(key, i), leaf.shape)
      for i, leaf in enumerate(leaves)
  ]
  return jax.tree.unflatten(treedef, noised)
