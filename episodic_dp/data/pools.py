"""Data sets from a pool of classes, or generated for one participant at a time.

The units of a pool are the classes, or those of a deeper tree, or synthetic
participants who each own a few images of a few classes.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Annotated, ClassVar

import numpy as np

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.data import dataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
  """Options of every pool.

  Attributes:
    seed: public seed of the participants and of random divisions, below 2^32.
    participants: number of synthetic participants, sampled from the training
      classes by a public function of the seed; None trains on the tree of
      classes. Participants share records, so that only a participant has a
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

  levels: ClassVar[tuple[str, ...]]

  participants: plain.Count
  validation_participants: plain.Count = 200
  test_participants: plain.Count = 600
  seed: dataset.Seed = 0

  @property
  def each(self) -> tuple[int, ...]:
    """Return the sizes of a participant, level by level."""
    raise NotImplementedError

  def hierarchy(self, participants: int | None = None) -> plan.Hierarchy:
    """Return the declared tree of so many participants; None for training."""
    return plan.Hierarchy.regular(
        (participants or self.participants, *self.each), levels=self.levels
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Glyphs(Generated):
  """Options of the glyphs, which `glyphs` generates.

  Attributes:
    glyphs: number of glyphs in the script of each writer.
    drawings: number of drawings of each glyph.
    size: height and width of a drawing in pixels, at least 12.
  """

  levels = ("participant", "glyph", "drawing")

  participants: plain.Count = 4000
  glyphs: plain.Count = 8
  drawings: plain.Count = 5
  size: Annotated[int, functools.partial(_validate.count, least=12)] = 28

  @property
  def each(self) -> tuple[int, ...]:
    """See `Generated`."""
    return self.glyphs, self.drawings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinusoids(Generated):
  """Options of the sinusoids, which `sinusoid` generates.

  Attributes:
    points: number of points of each participant.
  """

  levels = ("participant", "point")

  participants: plain.Count = 20_000
  points: plain.Count = 20

  @property
  def each(self) -> tuple[int, ...]:
    """See `Generated`."""
    return (self.points,)


def generate(
    options: Generated, make_part: Callable[[int, int], dataset.ArrayDataset]
) -> dataset.Splits:
  """Generate the three splits.

  Args:
    options: options of the data set.
    make_part: (number of the part in `dataset.PARTS`, participants) -> data.
  """
  return dataset.Splits(
      train=make_part(0, options.participants),
      validation=make_part(1, options.validation_participants),
      test=make_part(2, options.test_participants),
  )


def grouped_tree(
    levels: tuple[str, str, str], units: list[tuple[str, str]], each: int
) -> plan.Hierarchy:
  """Build group -> class -> example over examples in the order of classes.

  Args:
    levels: names of the levels.
    units: the group and the name of each class.
    each: number of examples of each class.
  """
  groups, names = np.repeat(units, each, axis=0).T
  return plan.Hierarchy.from_labels(
      {levels[0]: groups, levels[1]: names}, leaf=levels[2], units=units
  )


def make_splits(
    name: str,
    images: Mapping[str, np.ndarray],
    options: Pool,
    *,
    levels: tuple[str, str],
    trees: Mapping[str, plan.Hierarchy],
    rotate: bool = False,
) -> dataset.Splits:
  """Return the three splits of a pool.

  Args:
    name: name of the data set.
    images: part -> uint8[classes, images of each, height, width, channels], or
      float32[classes, images of each, features].
    options: options of the data set.
    levels: names of a class and of an image.
    trees: part -> a deeper tree over its images in their order, instead of
      class -> image.
    rotate: whether training tasks rotate classes.

  Raises:
    PlanError: the pool is too small for the participants.
  """
  parts = {}
  for part, held in images.items():
    classes, examples, *shape = held.shape
    parts[part] = dataset.ArrayDataset(
        name=f"{name}/{part}",
        images=held.reshape(-1, *shape),
        hierarchy=trees.get(part)
        or plan.Hierarchy.regular((classes, examples), levels=levels),
        rotate=rotate and part == "train",
        labels=np.repeat(np.arange(classes, dtype=np.int32), examples),
    )
  if options.participants is not None:
    parts["train"] = _with_participants(
        parts["train"], images["train"].shape, options
    )
  return dataset.Splits(**parts)


def _with_participants(
    pool: dataset.ArrayDataset, shape: tuple[int, ...], options: Pool
) -> dataset.ArrayDataset:
  """Give a pool of shape [classes, images, ...] to synthetic participants."""
  # Lazy import: only participants need JAX, which takes a second.
  from episodic_dp import sampling

  assert options.participants is not None  # Asked by `make_splits`.
  hierarchy, rows = sampling.synthetic_participants(
      options.seed,
      participants=options.participants,
      classes=shape[0],
      examples_per_class=shape[1],
      way=options.way,
      per_class=options.per_class,
  )
  return dataclasses.replace(
      pool,
      hierarchy=hierarchy,
      rows=rows,
      count_copies=rows.most_copies,
  )
