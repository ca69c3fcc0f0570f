"""Data sets: arrays with the hierarchy of their units, in disjoint splits."""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Annotated, Protocol, TYPE_CHECKING, TypeAlias

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError

if TYPE_CHECKING:  # A config is checked and accounted without JAX.
  import jax

PARTS = ("train", "validation", "test")


def _check_seed(name: str, value: int) -> int:
  if not 0 <= value < 2**32:
    raise _validate.refusal(name, value, "a whole number from 0 to 2^32 - 1")
  return value


Seed: TypeAlias = Annotated[int, _check_seed]
"""A field of options that is a public seed."""

# Leaf numbers int32[...] -> rows of the images int32[...]: pure, within `jit`.
Rows = Callable[["jax.Array"], "jax.Array"]


def identity(leaf: "jax.Array") -> "jax.Array":
  """Return row i for leaf i: the default of `ArrayDataset.rows`."""
  return leaf


_SHARED_AT = 64  # Bytes; JAX's CPU devices share an array at such an address.


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Return an array to fill that all CPU devices can share."""
  size = math.prod(shape) * dtype.itemsize
  space = np.empty(size + _SHARED_AT, np.uint8)
  first = -space.ctypes.data % _SHARED_AT
  return space[first : first + size].view(dtype).reshape(shape)


def shareable(array: np.ndarray) -> np.ndarray:
  """Return the array, or a copy, so that all CPU devices can share it."""
  if not array.ctypes.data % _SHARED_AT:
    return array
  found = empty(array.shape, array.dtype)
  found[...] = array
  return found


class Dataset(Protocol):
  """The attributes of a data set that training and evaluation read.

  Loaders return an `ArrayDataset`; any object with these attributes is
  accepted.
  """

  @property
  def name(self) -> str:
    """Return the name of the data, for messages and reports."""

  @property
  def images(self) -> np.ndarray:
    """Return images or features, [rows, ...] with one to three more axes.

    Images are uint8 [rows, height, width, channels], 255 being 1.0; other data
    are float32. With targets [rows, 1, 1, features + targets].
    """

  @property
  def image_shape(self) -> tuple[int, ...]:
    """Return the shape of an example as the model's input: without targets.

    (height, width, channels) of images; (features,) or (time, channels) too.
    """

  @property
  def hierarchy(self) -> plan.Hierarchy:
    """Return the units that are sampled; its leaves are the examples.

    It contains every unit of a public list, including empty ones.
    """

  @property
  def rows(self) -> Rows:
    """Map leaf numbers to rows of `images`."""

  @property
  def rotate(self) -> bool:
    """Return whether tasks may rotate whole classes by 90 degrees."""

  @property
  def targets(self) -> int:
    """Return the number of targets of a point; 0 for classes."""

  @property
  def labels(self) -> np.ndarray | None:
    """Return int[rows], the class of every row, for training without tasks."""

  @property
  def resident(self) -> bool:
    """Return whether training keeps all images on the device."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ArrayDataset:
  """Images or features in one array, and the tree of their units.

  Attributes:
    name: name of the data, for messages and reports.
    images: uint8[rows, height, width, channels], 255 being 1.0; or
      float32[rows, features], [rows, time, channels] or [rows, height, width,
      channels], which are not scaled. With targets float32[rows, 1, 1,
      features + targets]. May be a mapped file
      (`numpy.load(..., mmap_mode="r")`).
    hierarchy: tree of the sampled units, whose leaves are the examples. Declare
      its units (`Hierarchy.from_labels(units=...)`) if they should not follow
      from the examples.
    rows: maps leaves (int32 of any shape, a JAX array) to rows of `images`; the
      identity, or a pure function for synthetic participants, who share rows.
    count_copies: for such a function, returns level -> the largest number of
      primary units that hold the same unit; None if this cannot be counted.
    rotate: whether tasks may rotate whole classes by multiples of 90 degrees,
      an augmentation for training only.
    targets: number of values of a point that regression predicts; 0 for
      classes.
    labels: int[rows], the class of every row from 0, for training without tasks
      (`learners.Supervised`). `as_examples` derives it from the tree if it is
      None.
    resident: whether training keeps all images on the device. False gathers the
      sampled images on the host before each step, for data larger than the
      device; the result is the same up to rounding.

  Raises:
    DataError: the parts do not fit together.
  """

  name: str
  images: np.ndarray = dataclasses.field(repr=False)
  hierarchy: plan.Hierarchy
  rows: Rows = identity
  count_copies: Callable[[], Mapping[str, int]] | None = None
  rotate: bool = False
  targets: int = 0
  labels: np.ndarray | None = dataclasses.field(default=None, repr=False)
  resident: bool = True

  def __post_init__(self) -> None:
    self._check_images()
    rows, leaves = self.images.shape[0], self.hierarchy.num_leaves
    labels = self.labels
    if labels is not None and (
        np.shape(labels) != (rows,) or labels.dtype.kind not in "iu"
    ):
      raise DataError(
          f"labels of '{self.name}' are {labels.dtype}"
          f"{list(np.shape(labels))}: give one whole number for each of the"
          f" {rows} rows"
      )
    if self.rows is not identity:
      self._check_rows()
    elif rows != leaves:
      raise DataError(
          f"'{self.name}' has {rows} images and its hierarchy {leaves} leaves:"
          " give one image per leaf, or a function `rows` from leaves to rows"
      )

  def __repr__(self) -> str:
    """Return the name and sizes; never a value of an image."""
    images = self.images
    return (
        f"ArrayDataset({self.name!r}, {images.dtype}{list(images.shape)},"
        f" {self.hierarchy})"
    )

  def _check_images(self) -> None:
    images, name = self.images, self.name
    kind = getattr(images, "dtype", type(images).__name__)
    axes = {"uint8": (4,), "float32": (2, 3, 4)}.get(str(kind), ())
    if np.ndim(images) not in axes or 0 in images.shape:
      raise DataError(
          f"images of '{name}' are {kind} of shape {np.shape(images)}: give a"
          " NumPy array of uint8, 0 to 255, or of float32, of shape [rows,"
          " height, width, channels], or of float32 also [rows, time, channels]"
          " or [rows, features], none of them 0"
      )
    if self.rotate and (
        images.ndim != 4 or images.shape[1] != images.shape[2] or self.targets
    ):
      raise DataError(
          f"images of '{name}' have shape {images.shape} and cannot be rotated"
          " by 90 degrees: make them square or set rotate=False"
      )
    points = images.dtype == np.float32 and images.shape[1:-1] == (1, 1)
    if self.targets and not (points and 0 < self.targets < images.shape[-1]):
      raise DataError(
          f"points of '{name}' are {images.dtype}{list(images.shape)} with"
          f" targets={self.targets}: give float32[rows, 1, 1, features +"
          " targets] with at least one feature"
      )

  def _check_rows(self) -> None:
    """Check the rows of up to 64 leaves, the first and the last among them.

    A gather on the device would clamp a row out of range without an error.
    """
    # Lazy imports: only such functions, which are written in JAX, need it.
    import jax

    from episodic_dp import backends

    backends.ask_for_cores()
    rows, leaves = self.images.shape[0], self.hierarchy.num_leaves
    probe = np.unique(np.linspace(0, leaves - 1, 64).astype(np.int32))
    found = np.asarray(jax.jit(self.rows)(probe))
    if found.shape != probe.shape or found.dtype.kind not in "iu":
      raise DataError(
          f"rows of '{self.name}' map int32{list(probe.shape)} to"
          f" {found.dtype}{list(found.shape)}: they must keep the shape and"
          " return whole numbers"
      )
    wrong = (found < 0) | (found >= rows)
    if wrong.any():
      at = int(np.argmax(wrong))
      raise DataError(
          f"rows of '{self.name}' map leaf {probe[at]} to row {found[at]} of"
          f" {rows} images: rows must be below the number of images"
      )

  @property
  def image_shape(self) -> tuple[int, ...]:
    """Return the shape of an example as the model's input: without targets."""
    *axes, last = self.images.shape[1:]
    return *axes, last - self.targets

  def with_copies(self, described: plan.Hierarchy) -> "ArrayDataset":
    """Return the data with the counts of copies that a config states.

    Args:
      described: hierarchy of the config.

    Raises:
      PlanError: a record recurs more often than stated, or the data cannot be
        counted.
    """
    if described.most_copies in (None, self.hierarchy.most_copies):
      return self
    if self.count_copies is None:
      raise PlanError(
          f"most_copies {described.most_copies} cannot be checked: the data"
          f" '{self.name}' are no synthetic participants; leave it out"
      )
    found = self.count_copies()
    for level, stated in zip(described.levels, described.most_copies):
      if 0 < stated < found.get(level, 1):
        raise plan.PlanError(
            f"most_copies {stated} of level '{level}' is too small: one {level}"
            f" is held by {found[level]} units of level"
            f" '{described.levels[0]}'; state {found[level]}"
        )
    counted = dataclasses.replace(
        self.hierarchy, most_copies=described.most_copies
    )
    return dataclasses.replace(self, hierarchy=counted)


def as_examples(dataset: ArrayDataset) -> ArrayDataset:
  """Return the images alone, each a primary unit, as in DP-SGD.

  The tree keeps only its last level. The class of an image, the unit above it,
  becomes its label if the data set has no labels.

  Args:
    dataset: data whose leaves are different images.

  Returns:
    The data set with a tree of one level.

  Raises:
    DataError: the data are points of regression, participants that share
      images, or a flat data set without labels.
  """
  hierarchy = dataset.hierarchy
  if dataset.targets:
    raise DataError(
        f"'{dataset.name}' has points whose targets are numbers, but single"
        " examples are learned by their class: use tasks of way 1"
    )
  if dataset.rows is not identity or hierarchy.leaves_recur:
    raise DataError(
        f"the units of '{dataset.name}' share images, so one image is not one"
        " example: load the data without synthetic participants"
    )
  labels = dataset.labels
  if labels is None:
    if hierarchy.depth < 2:
      raise DataError(
          f"'{dataset.name}' has neither classes nor labels: give"
          " ArrayDataset(labels=...)"
      )
    labels = np.empty(hierarchy.num_leaves, np.int32)
    labels[hierarchy.rows] = hierarchy.parents(hierarchy.depth - 1)
  return dataclasses.replace(
      dataset, hierarchy=flattened(hierarchy), labels=labels
  )


def flattened(hierarchy: plan.Hierarchy) -> plan.Hierarchy:
  """Return the hierarchy of `as_examples`: its leaves only.

  It keeps whether the list of units follows from the records: the labels of all
  examples are places in that list.
  """
  flat = plan.Hierarchy.regular(
      (hierarchy.num_leaves,), levels=hierarchy.levels[-1:]
  )
  return dataclasses.replace(
      flat, units_from_records=hierarchy.units_from_records
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
  """Training, validation and test data with disjoint classes.

  Attributes:
    train: private data, the only part that is sampled with a guarantee.
    validation: public data to choose settings and to monitor a run.
    test: public data for the final accuracy.
  """

  train: ArrayDataset
  validation: ArrayDataset
  test: ArrayDataset

  def __post_init__(self) -> None:
    parts = self.train, self.validation, self.test
    shapes = [(data.image_shape, data.targets) for data in parts]
    if len(set(shapes)) > 1:
      raise DataError(
          f"the splits have examples of different shapes and targets {shapes}:"
          " convert them to one shape"
      )
    if self.validation.rotate or self.test.rotate:
      raise DataError(
          "the validation or test split has rotate=True: rotations are an"
          " augmentation for training only"
      )
