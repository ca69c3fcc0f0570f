"""A data set from a pool of classes of one size.

Its units are the classes, or those of a deeper tree, or synthetic participants
who each own a few images of a few classes.
"""

from collections.abc import Callable, Mapping
import dataclasses

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset


@dataclasses.dataclass(frozen=True)
class Participants:
  """Synthetic participants, drawn from the pool by a public function.

  Attributes:
    count: how many.
    way: classes of each.
    per_class: images of each of these classes (shot + query).
    seed: public, 0 to 2^32 - 1.
  """

  count: int
  way: int
  per_class: int
  seed: int


def make(
    name: str,
    images: np.ndarray,
    *,
    levels: tuple[str, str],
    description: str,
    hierarchy: plan.Hierarchy | None = None,
    participants: Participants | None = None,
    rotate: bool = False,
) -> dataset.ArrayDataset:
  """The pool as an `ArrayDataset`.

  Args:
    name: as in `ArrayDataset`.
    images: uint8[classes, images of each, height, width, channels].
    levels: names of a class and of an image, where `hierarchy` is None.
    description: of the images.
    hierarchy: a deeper tree over the images in their order; None for
      class -> image.
    participants: draws participants from the pool, in place of a tree. They
      share records, so that only a participant can be given a guarantee.
    rotate: as in `ArrayDataset`.

  Raises:
    PlanError: participants that the pool is too small for.
  """
  classes, examples, *shape = images.shape
  rows: dataset.Rows = dataset.identity
  count_copies: Callable[[], Mapping[str, int]] | None = None
  if participants is not None:
    # Lazy import: only participants need JAX, which takes a second.
    from episodic_dp import sampling

    hierarchy, owned = sampling.synthetic_participants(
        participants.seed,
        participants=participants.count,
        classes=classes,
        examples_per_class=examples,
        way=participants.way,
        per_class=participants.per_class,
    )
    rows, count_copies = owned, owned.most_copies
    description = (
        f"{participants.count} synthetic participants of {participants.way}"
        f" classes, {participants.per_class} images each, from {description}"
    )
  elif hierarchy is None:
    hierarchy = plan.Hierarchy.regular((classes, examples), levels=levels)
  return dataset.ArrayDataset(
      name=name,
      images=images.reshape(-1, *shape),
      hierarchy=hierarchy,
      rows=rows,
      count_copies=count_copies,
      rotate=rotate,
      labels=np.repeat(np.arange(classes, dtype=np.int32), examples),
      description=description,
  )
