"""Synthetic participants: many fixed tasks cut from one pool of classes.

The setting of "Meta-Learning with Differential Privacy" (DP-MAML): 400 000
participants, each owning a task of a few images of a few classes. An image is
in several participants, so that only the participant has a guarantee (the
hierarchy says `copies=True`).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from episodic_dp.plan import errors
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.sampling import permutation
from episodic_dp.sampling import uniform


def synthetic_participants(
    key_seed: int,
    *,
    participants: int,
    classes: int,
    examples_per_class: int,
    way: int,
    per_class: int,
) -> tuple[hierarchy_lib.Hierarchy, Callable[[jax.Array], jax.Array]]:
  """Participant i owns `way` classes, `per_class` images of each.

  Classes, and images within each, are drawn without replacement by a fixed
  public function of (key_seed, i): nothing is stored, and the same participants
  come back in every run.

  Args:
    key_seed: a public seed, 0 <= key_seed < 2^32; not the run's secret key.
    participants: how many.
    classes: classes in the pool.
    examples_per_class: images of each class; row = class * examples_per_class +
      image in the data arrays.
    way: classes of a participant, at most `classes`.
    per_class: images of each, at most `examples_per_class`.

  Returns:
    The hierarchy (participant, class, image), regular with `copies=True`, and
    rows(leaf int32[...]) -> int32[...], the data row of each leaf; pure, for
    use inside `jit`.

  Raises:
    PlanError: sizes that do not fit, or a seed out of range.
  """
  if not 0 <= key_seed < 2**32:
    raise errors.PlanError(
        f"key_seed {key_seed} does not fit 32 bits: use 0 to 2^32 - 1"
    )
  for name, drawn, pool, size in (
      ("way", way, "classes", classes),
      ("per_class", per_class, "examples_per_class", examples_per_class),
  ):
    if not 1 <= drawn <= size:
      raise errors.PlanError(
          f"{name} {drawn} cannot be drawn without replacement from {pool}"
          f" {size}: use 1 to {size}"
      )
  if classes * examples_per_class > hierarchy_lib.MAX_LEAVES:
    raise errors.PlanError(
        f"{classes} classes of {examples_per_class} examples are more than"
        " 2^31 - 1 rows: split the data set"
    )
  hierarchy = hierarchy_lib.Hierarchy.regular(
      (participants, way, per_class),
      levels=("participant", "class", "image"),
      copies=True,
  )

  def row(leaf: jax.Array) -> jax.Array:
    participant, place = leaf // (way * per_class), leaf % (way * per_class)
    slot, image = place // per_class, place % per_class
    # The generator is named: a changed default must not change participants.
    key = jax.random.key(key_seed, impl="threefry2x32")
    key = jax.random.fold_in(key, participant)

    def draw(tag, n_children, slots):
      bits = uniform.random_bits(jax.random.fold_in(key, tag), (slots,))
      return permutation.draw_ordered(bits, n_children, slots)

    own = draw(0, classes, way)[slot]
    return own * examples_per_class + draw(
        1 + slot, examples_per_class, per_class
    )[image]

  @jax.jit
  def rows(leaf: jax.Array) -> jax.Array:
    leaf = leaf.astype(jnp.int32)
    return jax.vmap(row)(leaf.reshape(-1)).reshape(leaf.shape)

  return hierarchy, rows
