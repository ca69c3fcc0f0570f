"""Synthetic participants: many fixed tasks cut from one pool of classes.

The setting of "Meta-Learning with Differential Privacy" (DP-MAML): 400 000
participants, each owning a task of a few images of a few classes. An image is
in several participants (the hierarchy says `copies=True`), so that it has a
guarantee only where the most participants that hold one image are counted, and
a class likewise.
"""

from collections.abc import Callable
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import errors
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.sampling import draws

_CHUNK = 1 << 14  # participants at a time


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ParticipantRows:
  """A callable from the leaves of the participants to data rows.

  Attributes:
    hierarchy: participant -> class -> image.
    rows: leaf int32[...] -> data row int32[...]; pure, for use inside `jit`.
    owned: participants int32[n] -> data rows int32[n, way, per_class], the same
      numbers at once.
    classes: classes of the pool.
    examples_per_class: row = class * examples_per_class + image.
  """

  hierarchy: hierarchy_lib.Hierarchy
  rows: Callable[[jax.Array], jax.Array]
  owned: Callable[[jax.Array], jax.Array]
  classes: int
  examples_per_class: int

  def __call__(self, leaf: jax.Array) -> jax.Array:
    """The rows of leaves."""
    return self.rows(leaf)

  def most_copies(self) -> dict[str, int]:
    """Count the most participants that hold one same class, and one image.

    Counted over all participants, in seconds for 400 000 of five classes. It is
    a function of public numbers only.
    """
    participants = self.hierarchy.num_units(0)
    images = np.zeros(self.classes * self.examples_per_class, np.int64)
    classes = np.zeros(self.classes, np.int64)
    for first in range(0, participants, _CHUNK):
      chunk = jnp.arange(first, first + _CHUNK, dtype=jnp.int32)
      held = np.asarray(self.owned(chunk))[: participants - first]
      images += np.bincount(held.ravel(), minlength=images.size)
      own = held[:, :, 0].ravel() // self.examples_per_class
      classes += np.bincount(own, minlength=classes.size)
    # No participant holds a class or an image twice.
    _, level, leaf = self.hierarchy.levels
    return {level: int(classes.max()), leaf: int(images.max())}


def synthetic_participants(
    key_seed: int,
    *,
    participants: int,
    classes: int,
    examples_per_class: int,
    way: int,
    per_class: int,
) -> tuple[hierarchy_lib.Hierarchy, ParticipantRows]:
  """Make participants of `way` classes each, with `per_class` images of each.

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
    use inside `jit`. `rows.most_copies()` counts how often records recur.

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

  def draw(
      participant: jax.Array,
      tag: jax.Array | int,
      n_children: int,
      slots: int,
  ) -> jax.Array:
    # The generator is named: a changed default must not change participants.
    key = jax.random.key(key_seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, participant), tag)
    bits = draws.random_bits(key, (slots,))
    return draws.draw_ordered(bits, n_children, slots)

  def own_classes(participant: jax.Array) -> jax.Array:
    return draw(participant, 0, classes, way)

  def own_images(participant: jax.Array, slot: jax.Array) -> jax.Array:
    return draw(participant, 1 + slot, examples_per_class, per_class)

  def row(leaf: jax.Array) -> jax.Array:
    participant, place = leaf // (way * per_class), leaf % (way * per_class)
    slot, image = place // per_class, place % per_class
    own = own_classes(participant)[slot]
    return own * examples_per_class + own_images(participant, slot)[image]

  @jax.jit
  def rows(leaf: jax.Array) -> jax.Array:
    leaf = leaf.astype(jnp.int32)
    return jax.vmap(row)(leaf.reshape(-1)).reshape(leaf.shape)

  @jax.jit
  @jax.vmap
  def owned(participant: jax.Array) -> jax.Array:
    images = jax.vmap(own_images, (None, 0))(participant, jnp.arange(way))
    return own_classes(participant)[:, None] * examples_per_class + images

  return hierarchy, ParticipantRows(
      hierarchy=hierarchy,
      rows=rows,
      owned=owned,
      classes=classes,
      examples_per_class=examples_per_class,
  )
