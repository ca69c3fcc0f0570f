"""Uniform whole numbers, exact up to one part in 2^97.

`jax.random.randint` and float32 uniforms are not exact enough for a privacy
proof: here a 128-bit number is scaled to the range in whole-number arithmetic,
and what bias is left is charged (`plan.sampling_error`).
"""

import math

import jax
import jax.numpy as jnp

from episodic_dp.plan import binomial

_LOW_HALF = 0xFFFF


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draw 128 random bits for each place of `shape`: uint32[*shape, 4].

  They are drawn as a vector, which XLA compiles several times faster than many
  dimensions. The barrier keeps XLA from generating them again for each of their
  readers.
  """
  shape = (*shape, binomial.WORDS)
  bits = jax.random.bits(key, (math.prod(shape),), jnp.uint32)
  return jax.lax.optimization_barrier(bits).reshape(shape)


def _multiply(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(high, low) words of a * b, uint32, through 16-bit halves."""
  a_high, a_low = a >> 16, a & _LOW_HALF
  b_high, b_low = b >> 16, b & _LOW_HALF
  low_high, high_low = a_low * b_high, a_high * b_low
  middle = (a_low * b_low) >> 16
  middle = middle + (low_high & _LOW_HALF) + (high_low & _LOW_HALF)
  high = (
      a_high * b_high + (low_high >> 16) + (high_low >> 16) + (middle >> 16)
  )
  return high, a * b


def uniform_below(bits: jax.Array, n: jax.Array | int) -> jax.Array:
  """Compute floor(U n / 2^128), U being the 128-bit number of `bits`.

  For uniform bits the result is uniform on 0 .. n - 1 but for a total variation
  of at most n / 2^128, and each value's probability times n is as near to 1
  (`plan.sampling_error` adds it up).

  Args:
    bits: uint32[..., 4], most significant word first.
    n: int32, broadcast against the leading axes of `bits`, at least 1.

  Returns:
    int32[...] in 0 .. n - 1.
  """
  factor = jnp.asarray(n).astype(jnp.uint32)
  carry = jnp.zeros((), jnp.uint32)
  # Schoolbook product from the least significant word up: only what is carried
  # out of the last word, U n / 2^128 rounded down, is kept.
  for word in range(bits.shape[-1] - 1, -1, -1):
    high, low = _multiply(bits[..., word], factor)
    low = low + carry
    carry = high + (low < carry).astype(jnp.uint32)
  return carry.astype(jnp.int32)
