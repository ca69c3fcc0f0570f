"""Few-shot tasks made from sampled examples."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from episodic_dp import plan as plan_lib
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws
from episodic_dp.sampling import numpy_sampler

_Tree = TypeVar("_Tree")  # Of arrays.


class Examples(NamedTuple):
  """Labelled images, features or points.

  Attributes:
    images: float32[n, H, W, C]; features float32[n, ...] with one or two more
      axes; points float32[n, 1, 1, features].
    labels: int32[n], the classes; for points float32[n, targets].
    mask: bool[n], false for examples that only fill up a fixed size and count
      for nothing; None if all count.
  """

  images: jax.Array
  labels: jax.Array
  mask: jax.Array | None = None


class EpisodeBatch(NamedTuple):
  """A task: a support and a query set.

  Attributes:
    support: `images` and `labels` of way * shot examples, which a learner
      adapts to; see `make_episode` for shapes and dtypes.
    query: those of way * query examples, which measure the adapted model.
  """

  support: Examples
  query: Examples


def task_indices(
    indices: jax.Array,
    mask: jax.Array,
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
) -> tuple[jax.Array, jax.Array]:
  """Group the examples of `sample` into tasks.

  The groups are formed by position alone. Since children come in uniformly
  random order, the classes of a task are random, and removing one record
  changes one position only (the accountant's coupling needs this).

  Args:
    indices: int32[n1, .., nL] from `sample`, or [tasks, n1, .., nL] for form
      "independent".
    mask: bool, same shape.
    hierarchy: of that sample; it has the level of the classes.
    plan: of that sample, with an episode.

  Returns:
    indices int32[tasks, way, shot + query], whose first `shot` columns are the
    support examples; and mask bool[tasks], false for tasks that were not
    sampled and for tasks that a unit with too few children leaves incomplete.

  Raises:
    PlanError: the plan has no episode, or the sample is of another plan.
  """
  expected = (*plan.repeats, *sampler_error.capacities(hierarchy, plan))
  if plan.episode is None or indices.shape != expected:
    raise PlanError(
        f"indices of shape {indices.shape} are not a sample of tasks of {plan}:"
        " pass the result of sample() for a plan with an episode"
    )
  return numpy_sampler.group_tasks(indices, mask, hierarchy, plan, jnp)


def make_episode(
    key: jax.Array,
    images: jax.Array,
    episode: plan_lib.Episode,
    *,
    rotate: bool = False,
    targets: int = 0,
) -> EpisodeBatch:
  """Make one task from its images, features or points; `vmap` it over tasks.

  Labels are a uniformly random permutation of 0 .. way - 1, sampled from the
  task's key, so that a class's position does not identify it. Points include
  their labels, and nothing is sampled.

  Args:
    key: the task's key.
    images: uint8 or floating [way, shot + query, H, W, C]; or features,
      floating [way, shot + query, ...] with one or two more axes. The examples
      of a class are in random order; the first `shot` become the support.
    episode: way, shot and query.
    rotate: turn whole classes by multiples of 90 degrees (`rotate_classes`).
    targets: 0 for classes; for regression, the number of last channels of a
      point [1, 1, features + targets] that are predicted.

  Returns:
    support images float32[way * shot, ...] and labels int32[way * shot], class
    by class, and the same for the query set; with targets, `images`
    float32[shot, 1, 1, features] and labels float32[shot, targets]. uint8
    images are scaled to 0 .. 1, floating ones are kept.

  Raises:
    DataError: the images do not fit the episode, are not square with `rotate`,
      or are not points with `targets`.
  """
  way, shot, images = episode.way, episode.shot, jnp.asarray(images)
  expected = (way, shot + episode.query)
  if images.shape[:2] != expected or images.ndim not in (3, 4, 5):
    raise DataError(
        f"images of shape {images.shape} do not fit way {way} and shot {shot} +"
        f" query {episode.query}: give [{way}, {expected[1]}, ...]"
    )
  if targets:
    images, labels = _split_points(images, targets)
  else:
    label_key, turn_key = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
    if rotate:
      images = rotate_classes(turn_key, images)
    bits = draws.random_bits(label_key, (way,))
    labels = draws.draw_ordered(bits, way, way)
    labels = jnp.broadcast_to(labels[:, None], expected)
  examples = Examples(as_floats(images), labels)

  def part(which: slice) -> Examples:
    return jax.tree.map(
        lambda a: a[:, which].reshape(-1, *a.shape[2:]), examples
    )

  return EpisodeBatch(part(slice(shot)), part(slice(shot, None)))


def as_floats(images: jax.Array) -> jax.Array:
  """Scale uint8 to 0 .. 1, and keep the values of floating images."""
  if images.dtype == jnp.uint8:
    return images.astype(jnp.float32) / 255.0
  if not jnp.issubdtype(images.dtype, jnp.floating):
    raise DataError(
        f"images of dtype {images.dtype} have no known scale: use uint8 (0 to"
        " 255) or floating point"
    )
  return images.astype(jnp.float32)


def batch_of(one: _Tree) -> _Tree:
  """Return a tree of arrays as a batch of one, with a new first axis."""
  return jax.tree.map(lambda a: a[None], one)


def single_example(image: jax.Array, label: jax.Array) -> EpisodeBatch:
  """Make a task of a single example: an empty support and a query of one.

  Args:
    image: uint8 or floating [H, W, C], or floating features; uint8 is scaled
      to 0 .. 1.
    label: int32 scalar.
  """
  query = batch_of(Examples(as_floats(image), label))
  return EpisodeBatch(jax.tree.map(lambda a: a[:0], query), query)


def _split_points(
    points: jax.Array, targets: int
) -> tuple[jax.Array, jax.Array]:
  """Split points [1, n, 1, 1, features + targets] into inputs and targets."""
  if points.shape[0] != 1 or points.shape[2:4] != (1, 1):
    raise DataError(
        f"points of shape {points.shape} with {targets} targets: give"
        f" [1, shot + query, 1, 1, features + {targets}] and way=1"
    )
  labels = points[:, :, 0, 0, -targets:].astype(jnp.float32)
  return points[..., :-targets], labels


def rotate_classes(key: jax.Array, images: jax.Array) -> jax.Array:
  """Turn each class of a task by 0, 90, 180 or 270 degrees, equally likely.

  All images of a class are turned alike, support and query, so that a turned
  class is another class (Santoro et al., 2016, for Omniglot). The turn depends
  on the key alone, never on the images.

  Args:
    key: the task's key for rotations.
    images: [way, n, H, W, C] with H = W, any dtype.

  Returns:
    The turned images, same shape and dtype.
  """
  bits = jax.random.bits(key, (images.shape[0],), jnp.uint32)
  bits = bits.reshape(-1, 1, 1, 1, 1)
  half, quarter = (bits & 2).astype(bool), (bits & 1).astype(bool)
  images = jnp.where(half, jnp.flip(images, (2, 3)), images)
  return jnp.where(quarter, jnp.rot90(images, axes=(2, 3)), images)
