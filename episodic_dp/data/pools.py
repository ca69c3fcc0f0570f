"""Data sets from a pool of classes, or generated for one participant at a time.

The units of a pool are the classes, or those of a deeper tree, or synthetic
participants who each own a few images of a few classes.
"""

from collections.abc import Callable, Mapping
import dataclasses
import pathlib

import numpy as np

from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.data import dataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of every pool.

  Attributes:
    seed: public seed of the participants and of random divisions, below 2^32.
    participants: number of synthetic participants, sampled from the training
      classes by a public function of the seed; None trains on the tree as it
      is. Participants share records, so that only a participant has a
      guarantee.
    way: number of classes of each participant.
    per_class: number of images of each of these classes (shot + query).
  """

  seed: dataset.Seed = 0
  participants: plain.Count | None = None
  way: plain.Count = 5
  per_class: plain.Count = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generated:
  """Options of every generated data set.

  Attributes:
    participants: number of participants in the training split.
    validation_participants: number of participants in the validation split.
    test_participants: number of participants in the test split.
    seed: public seed of the whole set, below 2^32.
  """

  participants: plain.Count
  validation_participants: plain.Count = 200
  test_participants: plain.Count = 600
  seed: dataset.Seed = 0


def generate(
    options: Generated, make_part: Callable[[int, int], dataset.ArrayDataset]
) -> dataset.Splits:
  """Generate the three splits.

  Args:
    options: options of the data set.
    make_part: (number of the part in `dataset.PARTS`, participants) -> data.
  """
  counts = (
      options.participants,
      options.validation_participants,
      options.test_participants,
  )
  parts = {
      part: make_part(number, count)
      for number, (part, count) in enumerate(zip(dataset.PARTS, counts))
  }
  return dataset.Splits(**parts)


def read_table(path: pathlib.Path) -> list[list[str]]:
  """Return the columns of every line of a .tsv, without its comments."""
  lines = path.read_text().splitlines()
  return [line.split("\t") for line in lines if not line.startswith("#")]


def make_splits(
    name: str,
    images: Mapping[str, np.ndarray],
    options: Options,
    *,
    levels: tuple[str, str],
    description: str,
    hierarchies: Mapping[str, plan.Hierarchy] | None = None,
    rotate: bool = False,
) -> dataset.Splits:
  """Return the three splits of a pool.

  Args:
    name: name of the data set.
    images: part -> uint8[classes, images of each, height, width, channels].
    options: options of the data set.
    levels: names of a class and of an image.
    description: description of the classes.
    hierarchies: part -> a deeper tree over its images in their order, in place
      of class -> image.
    rotate: whether training tasks rotate classes.

  Raises:
    PlanError: the pool is too small for the participants.
  """
  trees = hierarchies or {}
  parts = {}
  for part, held in images.items():
    train = part == "train"
    about = f"{len(held)} {description}, public seed {options.seed}"
    parts[part] = _make_part(
        f"{name}/{part}", held, levels, about,
        hierarchy=trees.get(part),
        owners=options if train else None,
        rotate=rotate and train,
    )
  return dataset.Splits(**parts)


def _make_part(
    name: str,
    images: np.ndarray,
    levels: tuple[str, str],
    description: str,
    *,
    hierarchy: plan.Hierarchy | None,
    owners: Options | None,
    rotate: bool,
) -> dataset.ArrayDataset:
  """Return one part, with participants where `owners` states a number."""
  classes, examples, *shape = images.shape
  rows: dataset.Rows = dataset.identity
  count_copies: Callable[[], Mapping[str, int]] | None = None
  if owners is not None and owners.participants is not None:
    # Lazy import: only participants need JAX, which takes a second.
    from episodic_dp import sampling

    hierarchy, owned = sampling.synthetic_participants(
        owners.seed,
        participants=owners.participants,
        classes=classes,
        examples_per_class=examples,
        way=owners.way,
        per_class=owners.per_class,
    )
    rows, count_copies = owned, owned.most_copies
    description = (
        f"{owners.participants} synthetic participants of {owners.way} classes,"
        f" {owners.per_class} images each, from {description}"
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
