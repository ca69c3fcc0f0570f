"""Which units a step of `RandomAllocation` draws: balls into bins, inside jit.

A pass has T steps, and every unit falls into one of them. The assignment is not
stored: each step draws it again from the pass's key, in chunks of units, which
takes little memory and makes a step a pure function of its number.
"""

import functools

import jax
import jax.numpy as jnp

from episodic_dp.sampling import uniform

# Changing it changes every run: each chunk has a key of its own.
_CHUNK = 1 << 16


@functools.partial(jax.jit, static_argnames=("units", "steps", "slots"))
def draw_assigned(
    key: jax.Array, step: jax.Array, *, units: int, steps: int, slots: int
) -> tuple[jax.Array, jax.Array]:
  """Draw the units that fall into a step of its pass, in rising order.

  Each unit draws one of the `steps` steps of a pass by `uniform.uniform_below`,
  from a key that depends on the pass, step // steps, and not on the step within
  it: in every pass each unit is drawn by exactly one step. The time is
  proportional to `units`, the memory is not.

  Args:
    key: one key for all steps of all passes.
    step: int32 >= 0, counted over all passes; may be traced.
    units: N, how many units there are.
    steps: T, the steps of a pass.
    slots: the capacity; units beyond it are dropped (`plan.sampling_error`).

  Returns:
    (chosen, count): int32[slots] of units, 0 beyond the count, and int32.
  """
  step = jnp.asarray(step, jnp.int32)
  pass_key = jax.random.fold_in(key, step // steps)
  wanted = step % steps
  size = min(_CHUNK, units)

  def add_chunk(
      carry: tuple[jax.Array, jax.Array], chunk: jax.Array
  ) -> tuple[tuple[jax.Array, jax.Array], None]:
    chosen, count = carry
    bits = uniform.random_bits(jax.random.fold_in(pass_key, chunk), (size,))
    # No overflow: at most 2^31 - 1 units, and 2^16 divides 2^31.
    left = units - chunk * size
    position = jnp.arange(size, dtype=jnp.int32)
    hit = (uniform.uniform_below(bits, steps) == wanted) & (position < left)
    place = count + jnp.cumsum(hit, dtype=jnp.int32) - 1
    place = jnp.where(hit, place, slots)
    chosen = chosen.at[place].set(chunk * size + position, mode="drop")
    return (chosen, count + hit.sum(dtype=jnp.int32)), None

  start = (jnp.zeros((slots,), jnp.int32), jnp.zeros((), jnp.int32))
  chunks = jnp.arange(-(-units // size), dtype=jnp.int32)
  (chosen, count), _ = jax.lax.scan(add_chunk, start, chunks)
  return chosen, jnp.minimum(count, slots)
