"""Max-pooling whose derivatives of every order are selections.

The second derivative of `lax.reduce_window` is slow on every backend. Here the
four entries of every 2x2 window lie in four arrays ("phases"): the pool is an
elementwise choice among them, its gradient writes what was not chosen as zero,
and the gradient of that chooses again.
"""

import jax
from jax import lax
import jax.numpy as jnp

Phases = tuple[jax.Array, ...]


def max_pool(x: jax.Array) -> jax.Array:
  """The 2x2 max-pool with stride 2, odd edges dropped ("VALID").

  Pairs of rows, then of columns, are compared and the larger chosen: the
  gradient goes to the first largest entry and is a selection of any order.

  Args:
    x: [n, H, W, C].

  Returns:
    [n, H // 2, W // 2, C].
  """
  n, height, width, channels = x.shape
  height, width = height // 2, width // 2
  x = x[:, : 2 * height, : 2 * width]
  x = x.reshape(n, height, 2, width, 2, channels)
  top, bottom = x[:, :, 0], x[:, :, 1]
  rows = jnp.where(top >= bottom, top, bottom)
  left, right = rows[:, :, :, 0], rows[:, :, :, 1]
  return jnp.where(left >= right, left, right)


def max_of_phases(phases: Phases) -> jax.Array:
  """The largest of four arrays, entry by entry, like `max_pool`.

  Reverse mode of any order only, as it has rules of its own.

  Args:
    phases: top left, top right, bottom left and bottom right, of equal shapes.
  """
  return choose(phases, first_largest(phases))


def first_largest(phases: Phases) -> jax.Array:
  """int8, like the phases: which is the largest; no gradient goes through."""
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
