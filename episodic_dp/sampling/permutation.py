"""The first entries of a random permutation, at a cost that ignores its length.

Drawing n of N children in random order must not cost O(N): N may be 10^8.
"""

import functools

import jax
import jax.numpy as jnp

from episodic_dp.sampling import uniform

# Up to this many slots, comparing all pairs is faster than sorting.
_MAX_COMPARED = 32


@functools.partial(jax.jit, static_argnames="slots")
def draw_ordered(
    bits: jax.Array, n_children: jax.Array | int, slots: int
) -> jax.Array:
  """Draw the first `slots` entries of a random permutation of children.

  The Fisher-Yates shuffle of a = (0, 1, .., N - 1) draws, for i = 0, 1, ..,
  j_i uniform on i .. N - 1, swaps a[i] with a[j_i], and outputs the new a[i].
  Here all j_i are drawn at once, and the shuffle is worked out in parallel and
  without the array a (`resolve_swaps`). With exactly uniform j_i the output is
  an exactly uniform ordered sample without replacement; the j_i are off by what
  `uniform.uniform_below` says.

  Args:
    bits: uint32[..., slots, 4] random bits.
    n_children: int32[...], N >= 0; may be traced, and differ between units.
    slots: how many entries, at least 1. Where N < slots the first N entries are
      a permutation of all children, and entry i >= N is i (to be masked).

  Returns:
    int32[..., slots], distinct along the last axis.
  """
  position = jnp.arange(slots, dtype=jnp.int32)
  left = jnp.asarray(n_children, jnp.int32)[..., None] - position
  targets = position + uniform.uniform_below(bits, jnp.maximum(left, 1))
  return resolve_swaps(targets)


def resolve_swaps(targets: jax.Array) -> jax.Array:
  """Compute the output of a Fisher-Yates shuffle whose targets are given.

  Let f(k) be the content of a[k] just before step k. Step k' writes to no
  entries but k' and j_k' >= k', and what it writes to j_k' is the content of
  a[k'] before it, f(k').

  * Before step k, a[k] was written by exactly the steps k' < k with j_k' = k
    (an entry k' < k is another entry), the latest of which counts. So f(k) =
    f(k') for that k', and f(k) = k where there is none. A step with j_k = k is
    not among them, for it is not before itself. These links lead to smaller
    indices, so following them ends; the chains are followed by doubling.
  * Step i outputs the content of a[j_i] before step i. Since j_i >= i, this
    entry was written by exactly the steps k < i with j_k = j_i (entry k < i is
    another one). The output is f(k) for the latest of these, and j_i where
    there is none. For j_i = i this is f(i), as it should.

  So with before(i) = the latest k < i with j_k = j_i, outputs are f(before(i)),
  and a link of k is the latest k' < k with j_k' = k.

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

  root = jax.lax.fori_loop(0, (slots - 1).bit_length(), double, root)
  found = jnp.take_along_axis(root, jnp.maximum(before, 0), axis=-1)
  return jnp.where(before < 0, targets, found)


def _compare(targets: jax.Array) -> tuple[jax.Array, jax.Array]:
  """before and link (-1 for none) by comparing all pairs: O(slots^2)."""
  position = jnp.arange(targets.shape[0], dtype=jnp.int32)
  earlier = position[None, :] < position[:, None]

  def latest(wanted: jax.Array) -> jax.Array:
    hit = earlier & (targets[None, :] == wanted[:, None])
    return jnp.max(jnp.where(hit, position[None, :], -1), axis=1)

  return latest(targets), latest(position)


def _sort(targets: jax.Array) -> tuple[jax.Array, jax.Array]:
  """before and link (-1 for none) by sorting: O(slots log slots)."""
  slots = targets.shape[0]
  position = jnp.arange(slots, dtype=jnp.int32)
  ordered, owner = jax.lax.sort((targets, position), num_keys=1, is_stable=True)
  same = ordered[1:] == ordered[:-1]
  previous = jnp.where(same, owner[:-1], -1)
  before = jnp.full((slots,), -1, jnp.int32)
  before = before.at[owner[1:]].set(previous, unique_indices=True)
  # Targets past the slots, and steps that swap nothing, link to no slot.
  goal = jnp.where(targets == position, slots, targets)
  link = jnp.full((slots,), -1, jnp.int32)
  link = link.at[goal].max(position, mode="drop")
  return before, link
