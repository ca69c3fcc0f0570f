"""Synthetic participants: many fixed tasks cut from one pool of classes.

The setting of "Meta-Learning with Differential Privacy" (DP-MAML): 400 000
participants, each with a task of a few images of a few classes. Several
participants hold the same image or class (the hierarchy says `copies=True`). An
image or class has a guarantee only if `most_copies` counts the participants
that hold it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.errors import PlanError
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.sampling import draws

_CHUNK = 1 << 16  # Classes of participants at a time.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParticipantRows:
  """A function from the leaves of the participants to data rows.

  Attributes:
    hierarchy: participant -> class -> image.
    key_seed: public seed of the participants.
    classes: number of classes of the pool.
    examples_per_class: row = class * examples_per_class + image.
  """

  hierarchy: hierarchy_lib.Hierarchy
  key_seed: int
  classes: int
  examples_per_class: int

  @functools.partial(jax.jit, static_argnums=0)
  def __call__(self, leaf: jax.Array) -> jax.Array:
    """Compute the data rows int32[...] of leaves int32[...]."""
    leaf = leaf.astype(jnp.int32)
    return jax.vmap(self._row)(leaf.reshape(-1)).reshape(leaf.shape)

  def most_copies(self) -> dict[str, int]:
    """Return the most participants that hold one class, and one image.

    They are counted over all participants, which takes seconds for 400 000
    participants of five classes. The result depends on public numbers only.
    """
    _, per_class = self._held
    leaves = self.hierarchy.num_leaves
    images = np.zeros(self.classes * self.examples_per_class, np.int64)
    classes = np.zeros(self.classes, np.int64)
    chunk = _CHUNK * per_class
    for first in range(0, leaves, chunk):
      rows = np.asarray(self(np.arange(first, first + chunk)))[: leaves - first]
      images += np.bincount(rows, minlength=images.size)
      own = rows[::per_class] // self.examples_per_class
      classes += np.bincount(own, minlength=classes.size)
    # No participant holds a class or an image twice.
    _, level, image = self.hierarchy.levels
    return {level: int(classes.max()), image: int(images.max())}

  @property
  def _held(self) -> tuple[int, int]:
    """Return the number of classes of a participant and of images of each."""
    assert self.hierarchy.sizes is not None
    _, way, per_class = self.hierarchy.sizes
    return way, per_class

  def _row(self, leaf: jax.Array) -> jax.Array:
    way, per_class = self._held
    participant, place = leaf // (way * per_class), leaf % (way * per_class)
    slot, image = place // per_class, place % per_class
    own = self._draw(participant, 0, self.classes, way)
    images = self._draw(
        participant, 1 + slot, self.examples_per_class, per_class
    )
    return own[slot] * self.examples_per_class + images[image]

  def _draw(
      self,
      participant: jax.Array,
      tag: jax.Array | int,
      n_children: int,
      slots: int,
  ) -> jax.Array:
    # The generator is named, so that a new default cannot change participants.
    key = jax.random.key(self.key_seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, participant), tag)
    return draws.draw_ordered(
        draws.random_bits(key, (slots,)), n_children, slots
    )


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

  Classes, and images within each, are sampled without replacement by a fixed
  public function of (key_seed, i). Nothing is stored, and every run has the
  same participants.

  Args:
    key_seed: a public seed, 0 <= key_seed < 2^32; not the run's secret key.
    participants: number of participants.
    classes: number of classes in the pool.
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
    raise PlanError(
        f"key_seed={key_seed}: expected 0 to 2^32 - 1, which fits 32 bits"
    )
  for name, drawn, pool, size in (
      ("way", way, "classes", classes),
      ("per_class", per_class, "examples_per_class", examples_per_class),
  ):
    if not 1 <= drawn <= size:
      raise PlanError(
          f"{name} {drawn} cannot be drawn without replacement from {pool}"
          f" {size}: use 1 to {size}"
      )
  if classes * examples_per_class > hierarchy_lib.MAX_LEAVES:
    raise PlanError(
        f"{classes} classes of {examples_per_class} examples are more than"
        " 2^31 - 1 rows: split the data set"
    )
  hierarchy = hierarchy_lib.Hierarchy.regular(
      (participants, way, per_class),
      levels=("participant", "class", "image"),
      copies=True,
  )

  return hierarchy, ParticipantRows(
      hierarchy=hierarchy,
      key_seed=key_seed,
      classes=classes,
      examples_per_class=examples_per_class,
  )
