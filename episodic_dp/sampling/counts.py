"""How many children a Poisson stage draws: exact binomial counts.

float32 uniforms and `jax.random.binomial` are not exact enough. Here 128 random
bits are looked up in the whole-number thresholds of `plan.binomial_table`; the
accountant charges their error to delta.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.plan import binomial


class CountTables(NamedTuple):
  """The tables of several family sizes, one after the other.

  Attributes:
    thresholds: uint32[entries of all tables (at least 1), 4].
    start: int32[sizes], the first entry of each size's table.
    entries: int32[sizes], its number of entries.
    first: int32[sizes], the smallest count.
  """

  thresholds: np.ndarray | jax.Array
  start: np.ndarray | jax.Array
  entries: np.ndarray | jax.Array
  first: np.ndarray | jax.Array


def count_tables(sizes: Sequence[int], p: float) -> tuple[CountTables, int]:
  """Make the tables for Binomial(n, p), n in `sizes`.

  Args:
    sizes: distinct numbers of children, 0 allowed.
    p: the rate of the Poisson stage.

  Returns:
    The tables (NumPy), and how many halvings find a count in the longest one.
  """
  tables = [binomial.binomial_table(int(n), float(p)) for n in sizes]
  entries = np.asarray([len(t.thresholds) for t in tables], np.int32)
  # One unused row, so that there is always something to gather.
  blank = np.zeros((1, binomial.WORDS), np.uint32)
  result = CountTables(
      thresholds=np.concatenate([*(t.thresholds for t in tables), blank]),
      start=(np.cumsum(entries) - entries).astype(np.int32),
      entries=entries,
      first=np.asarray([t.first for t in tables], np.int32),
  )
  return result, int(entries.max()).bit_length()


def _less_equal(a: jax.Array, b: jax.Array) -> jax.Array:
  """a <= b for numbers of uint32 words, most significant first."""
  result = jnp.ones(jnp.broadcast_shapes(a.shape, b.shape)[:-1], bool)
  for word in range(a.shape[-1] - 1, -1, -1):
    x, y = a[..., word], b[..., word]
    result = (x < y) | ((x == y) & result)
  return result


def draw_counts(
    bits: jax.Array, tables: CountTables, which: jax.Array | int, steps: int
) -> jax.Array:
  """Turn uniform bits into binomial counts, by binary search.

  Args:
    bits: uint32[..., 4] random bits, most significant word first.
    tables: from `count_tables`.
    which: int32[...], the position of each unit's number of children in the
      `sizes` that the tables were made of.
    steps: from `count_tables`.

  Returns:
    int32[...]: first + the number of thresholds that are at most `bits`.
  """
  start = jnp.asarray(tables.start)[which]
  thresholds = jnp.asarray(tables.thresholds)
  low = jnp.broadcast_to(start, bits.shape[:-1])
  high = low + jnp.asarray(tables.entries)[which]

  def halve(
      _: jax.Array, bounds: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    low, high = bounds
    middle = (low + high) // 2
    passed = _less_equal(thresholds[middle], bits)
    searching = low < high
    return (
        jnp.where(searching & passed, middle + 1, low),
        jnp.where(searching & ~passed, middle, high),
    )

  # Not unrolled: XLA would compute earlier steps anew in each later one.
  low, _ = jax.lax.fori_loop(0, steps, halve, (low, high))
  return jnp.asarray(tables.first)[which] + low - start
