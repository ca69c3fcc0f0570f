"""2x2 max-pooling of entries that lie in four arrays, the "phases".

The four entries of every 2x2 window lie at the same place of four arrays: top
left, top right, bottom left and bottom right. The pool is an elementwise choice
among them, its gradient writes zeros where something was not chosen, and the
gradient of that chooses again. Reverse mode of any order only.
"""

import jax
from jax import lax
import jax.numpy as jnp

Phases = tuple[jax.Array, ...]


def first_largest(phases: Phases) -> jax.Array:
  """int8, like the phases: which is the largest; no gradient goes through.

  Of equal entries the one that `pooling.max_pool` takes.
  """
  a, b, c, d = (lax.stop_gradient(p) for p in phases)
  zero, one, two, three = (jnp.int8(i) for i in range(4))
  left, right = jnp.where(a >= c, a, c), jnp.where(b >= d, b, d)
  return jnp.where(
      left >= right,
      jnp.where(a >= c, zero, two),
      jnp.where(b >= d, one, three),
  )


@jax.custom_vjp
def choose(phases: Phases, which: jax.Array) -> jax.Array:
  """`phases[which]`, entry by entry."""
  a, b, c, d = phases
  left = jnp.where(which == 0, a, b)
  right = jnp.where(which == 2, c, d)
  return jnp.where(which < 2, left, right)


@jax.custom_vjp
def spread(x: jax.Array, which: jax.Array) -> Phases:
  """The transpose of `choose`: x in the chosen phase, zeros in the others."""
  return tuple(jnp.where(which == i, x, 0) for i in range(4))


choose.defvjp(
    lambda phases, which: (choose(phases, which), which),
    lambda which, x: (spread(x, which), None),
)
spread.defvjp(
    lambda x, which: (spread(x, which), which),
    lambda which, phases: (choose(phases, which), None),
)
