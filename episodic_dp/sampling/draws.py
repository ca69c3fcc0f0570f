"""Exact random draws inside `jit`: uniform numbers, counts, orders, passes.

`jax.random.randint`, float32 uniforms and `jax.random.binomial` are not exact
enough for a privacy proof. Here 128 random bits are scaled to a range in
whole-number arithmetic, exact up to one part in 2^97, or looked up in the
whole-number thresholds of `plan.sampler_error.BinomialTable`. The accountant
charges the remaining error to delta.

A pass of `RandomAllocation` has T steps, and every unit is assigned to one of
them. The assignment is not stored. Each step computes it again from the pass's
key, in chunks of units, which takes little memory and makes a step a pure
function of its number.
"""

from collections.abc import Mapping
import functools
import math

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp.plan import sampler_error

_LOW_HALF = 0xFFFF
_WORDS = sampler_error.BITS // 32


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draw 128 random bits for each entry of `shape`: uint32[*shape, 4].

  They are drawn as a vector, which XLA compiles several times faster than an
  array of many dimensions. The barrier keeps XLA from generating them again for
  each use.
  """
  shape = (*shape, _WORDS)
  bits = jax.random.bits(key, (math.prod(shape),), jnp.uint32)
  return lax.optimization_barrier(bits).reshape(shape)


def _multiply(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Compute the (high, low) words of a * b, uint32, by 16-bit halves."""
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
  """Compute floor(U n / 2^128), where U is the 128-bit number `bits`.

  For uniform bits the result is uniform on 0 .. n - 1 up to a total variation
  of at most n / 2^128. Each value's probability times n is within n / 2^128 of
  1 (`plan.sampler_error` adds up both).

  Args:
    bits: uint32[..., 4], most significant word first.
    n: int32, broadcast against the leading axes of `bits`, at least 1.

  Returns:
    int32[...] in 0 .. n - 1.
  """
  factor = lax.broadcast_to_rank(
      jnp.asarray(n).astype(jnp.uint32), bits.ndim - 1
  )
  carry = jnp.zeros((), jnp.uint32)
  # Schoolbook product from the least significant word up. Only the carry out of
  # the last word is kept: U n / 2^128 rounded down.
  for word in reversed(range(_WORDS)):
    high, low = _multiply(bits[..., word], factor)
    low = low + carry
    carry = high + (low < carry).astype(jnp.uint32)
  return carry.astype(jnp.int32)


# Orders -----------------------------------------------------------------------

# Up to this many slots, comparing all pairs is faster than sorting.
_MAX_COMPARED = 32


@functools.partial(jax.jit, static_argnames="slots")
def draw_ordered(
    bits: jax.Array, n_children: jax.Array | int, slots: int
) -> jax.Array:
  """Draw the first `slots` entries of a random permutation of children.

  The Fisher-Yates shuffle of a = (0, 1, .., N - 1) draws, for i = 0, 1, ..,
  j_i uniform on i .. N - 1, swaps a[i] with a[j_i], and outputs the new a[i].
  Here all j_i are drawn at once, and the shuffle is computed in parallel and
  without the array a (`resolve_swaps`). With exactly uniform j_i the output is
  an exactly uniform ordered sample without replacement. The error of the j_i is
  that of `uniform_below`.

  Args:
    bits: uint32[..., slots, 4] random bits.
    n_children: int32[...], N >= 0; may be traced, and differ between units.
    slots: number of entries, at least 1. If N < slots, the first N entries are
      a permutation of all children, and entry i >= N is i (to be masked).

  Returns:
    int32[..., slots], distinct along the last axis.
  """
  children = jnp.asarray(n_children, jnp.int32)[..., None]
  position = jnp.arange(slots, dtype=jnp.int32)
  position = lax.broadcast_to_rank(position, bits.ndim - 1)
  left = lax.broadcast_to_rank(children, bits.ndim - 1) - position
  return resolve_swaps(position + uniform_below(bits, jnp.maximum(left, 1)))


def resolve_swaps(targets: jax.Array) -> jax.Array:
  """Compute the output of a Fisher-Yates shuffle from its swap targets.

  Let f(k) be the content of a[k] just before step k. Step k' writes only to the
  entries k' and j_k' >= k', and writes f(k') to j_k'.

  * Before step k, the steps that wrote a[k] are those k' < k with j_k' = k
    (entry k' < k is a different one); the latest of them counts. So f(k) =
    f(k') for that k', and f(k) = k if there is none. A step with j_k = k is not
    among them, because it does not precede itself. These links lead to smaller
    indices, so every chain ends; chains are followed by doubling.
  * Step i outputs the content of a[j_i] before step i. Since j_i >= i, the
    steps that wrote this entry are those k < i with j_k = j_i (entry k < i is a
    different one). The output is f(k) for the latest of them, and j_i if there
    is none. For j_i = i this is f(i), as it should be.

  So with before(i) = the latest k < i with j_k = j_i, the output is
  f(before(i)), and the link of k is the latest k' < k with j_k' = k.

  Args:
    targets: int32[..., slots], j_i >= i.

  Returns:
    int32[..., slots].
  """
  slots = targets.shape[-1]
  links = _compare if slots <= _MAX_COMPARED else _sort
  before, link = jnp.vectorize(links, signature="(s)->(s),(s)")(targets)
  position = jnp.arange(slots, dtype=jnp.int32)
  root = jnp.where(link < 0, position, link)

  def double(_: jax.Array, root: jax.Array) -> jax.Array:
    return jnp.take_along_axis(root, root, axis=-1)

  root = lax.fori_loop(0, (slots - 1).bit_length(), double, root)
  found = jnp.take_along_axis(root, jnp.maximum(before, 0), axis=-1)
  return jnp.where(before < 0, targets, found)


def _compare(targets: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Find before and link (-1 for none) from all pairs: O(slots^2)."""
  position = jnp.arange(len(targets), dtype=jnp.int32)
  earlier = position[None, :] < position[:, None]

  def latest(wanted: jax.Array) -> jax.Array:
    hit = earlier & (targets[None, :] == wanted[:, None])
    return jnp.max(jnp.where(hit, position[None, :], -1), axis=1)

  return latest(targets), latest(position)


def _sort(targets: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Find before and link (-1 for none) by sorting: O(slots log slots)."""
  slots = len(targets)
  position = jnp.arange(slots, dtype=jnp.int32)
  ordered, owner = lax.sort((targets, position), num_keys=1, is_stable=True)
  same = ordered[1:] == ordered[:-1]
  previous = jnp.where(same, owner[:-1], -1)
  none = jnp.full((slots,), -1, jnp.int32)
  before = none.at[owner[1:]].set(previous, unique_indices=True)
  # Targets beyond the slots, and steps that swap nothing, link to no slot.
  goal = jnp.where(targets == position, slots, targets)
  return before, none.at[goal].max(position, mode="drop")


# Counts -----------------------------------------------------------------------


def _less_equal(a: jax.Array, b: jax.Array) -> jax.Array:
  """Compute a <= b for numbers of uint32 words, most significant first."""
  result = jnp.ones(jnp.broadcast_shapes(a.shape, b.shape)[:-1], bool)
  for word in reversed(range(_WORDS)):
    x, y = a[..., word], b[..., word]
    result = (x < y) | ((x == y) & result)
  return result


def draw_counts(
    bits: jax.Array,
    children: jax.Array,
    tables: Mapping[int, sampler_error.BinomialTable],
) -> jax.Array:
  """Compute binomial counts from uniform bits by binary search.

  Args:
    bits: uint32[..., 4] random bits, most significant word first.
    children: int32[...], the number of children of each unit.
    tables: number of children -> its table, for every number that occurs, in
      ascending order (`plan.sampler_error.count_tables`).

  Returns:
    int32[...]: first + the number of thresholds that are at most `bits`.
  """
  firsts: list[int] = []
  lengths: list[int] = []
  numbers: list[int] = []
  for table in tables.values():
    firsts.append(table.first)
    lengths.append(len(table.thresholds))
    numbers += table.thresholds
  entries = np.asarray(lengths, np.int32)
  starts = np.cumsum(entries, dtype=np.int32) - entries
  # One unused number, so that the array to gather from is never empty.
  thresholds = jnp.asarray([*map(_words, (*numbers, 0))], jnp.uint32)
  which = jnp.searchsorted(jnp.asarray([*tables], jnp.int32), children)
  start = jnp.asarray(starts)[which]

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

  # Not unrolled: XLA would repeat earlier steps in each later one.
  low, _ = lax.fori_loop(
      0,
      int(entries.max()).bit_length(),
      halve,
      (start, start + jnp.asarray(entries)[which]),
  )
  return jnp.asarray(firsts, jnp.int32)[which] + low - start


def _words(number: int) -> list[int]:
  """Split a 128-bit number into words, most significant first."""
  return [number >> shift & 0xFFFFFFFF for shift in (96, 64, 32, 0)]


# Passes -----------------------------------------------------------------------

# Changing the chunk size changes every run: each chunk has a separate key.
_CHUNK = 1 << 16


@functools.partial(jax.jit, static_argnames=("units", "steps", "slots"))
def draw_assigned(
    key: jax.Array, step: jax.Array, *, units: int, steps: int, slots: int
) -> tuple[jax.Array, jax.Array]:
  """Compute the units that are assigned to a step of its pass, ascending.

  Each unit draws one of the `steps` steps of a pass by `uniform_below`, from a
  key that depends on the pass, step // steps, but not on the step within it. So
  in every pass each unit is sampled by exactly one step. The time is
  proportional to `units`, the memory is not.

  Args:
    key: one key for all steps of all passes.
    step: int32 >= 0, counted over all passes; may be traced.
    units: N, the number of units.
    steps: T, the steps of a pass.
    slots: the capacity; units beyond it are dropped (`plan.sampler_error`).

  Returns:
    (chosen, count): int32[slots], units and then zeros; int32, how many units.
  """
  step = jnp.asarray(step, jnp.int32)
  pass_key = jax.random.fold_in(key, step // steps)
  wanted = step % steps
  size = min(_CHUNK, units)

  def add_chunk(
      carry: tuple[jax.Array, jax.Array], chunk: jax.Array
  ) -> tuple[tuple[jax.Array, jax.Array], None]:
    chosen, count = carry
    bits = random_bits(jax.random.fold_in(pass_key, chunk), (size,))
    # No overflow: there are at most 2^31 - 1 units, and 2^16 divides 2^31.
    left = units - chunk * size
    position = jnp.arange(size, dtype=jnp.int32)
    hit = (uniform_below(bits, steps) == wanted) & (position < left)
    place = count + jnp.cumsum(hit, dtype=jnp.int32) - 1
    place = jnp.where(hit, place, slots)
    chosen = chosen.at[place].set(chunk * size + position, mode="drop")
    return (chosen, count + hit.sum(dtype=jnp.int32)), None

  start = (jnp.zeros((slots,), jnp.int32), jnp.zeros((), jnp.int32))
  chunks = jnp.arange(-(-units // size), dtype=jnp.int32)
  (chosen, count), _ = lax.scan(add_chunk, start, chunks)
  return chosen, jnp.minimum(count, slots)
