"""Few-shot tasks made of drawn examples."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp import errors
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import stages as stages_lib
from episodic_dp.sampling import draws
from episodic_dp.sampling import numpy_sampler


class Examples(NamedTuple):
  """Labelled images, features or points.

  Attributes:
    images: float32[n, H, W, C], or [n, ...] of one or two axes more; of points
      [n, 1, 1, features].
    labels: int32[n], the classes; of points float32[n, targets].
  """

  images: jax.Array
  labels: jax.Array


class EpisodeBatch(NamedTuple):
  """A task.

  Attributes:
    support: way * shot examples, to adapt to.
    query: way * query examples, to be judged on.
  """

  support: Examples
  query: Examples


def task_indices(
    indices: jax.Array,
    mask: jax.Array,
    hierarchy: hierarchy_lib.Hierarchy,
    plan: stages_lib.SamplingPlan,
) -> tuple[jax.Array, jax.Array]:
  """Group the examples that `sample` drew into tasks.

  The groups are formed by position alone. Since children come in uniformly
  random order, which classes meet in a task is random, and one record removed
  changes one position only (the accountant's coupling needs this).

  Args:
    indices: int32[n1, .., nL] from `sample`, or [tasks, n1, .., nL] for form
      "independent".
    mask: bool, same shape.
    hierarchy: of that sample; it says which level holds the classes.
    plan: the plan of that sample, with an episode.

  Returns:
    indices int32[tasks, way, shot + query], whose first `shot` columns are the
    support examples; and mask bool[tasks], false for tasks that were not drawn,
    and for those that could not be filled: a unit in them has too few children.

  Raises:
    PlanError: the plan has no episode, or the sample is not of this plan.
  """
  episode = plan.episode
  if episode is None:
    raise errors.PlanError(
        "the plan has no episode, so its sample cannot be cut into tasks: give"
        " SamplingPlan(..., episode=Episode(way, shot, query))"
    )
  shape, padding = numpy_sampler.grouping(indices.shape, hierarchy, plan)
  lacking = [number for _, number in padding]
  independent = episode.form == "independent"
  if (
      indices.ndim != len(plan.stages) + independent
      or (independent and indices.shape[0] != episode.tasks)
      or min(lacking) < 0
      or (any(lacking) and not plan.allow_short_units)
  ):
    raise errors.PlanError(
        f"indices of shape {indices.shape} are not a sample of this plan with"
        f" {len(plan.stages)} stages and {episode}: pass what sample() returned"
        " for it"
    )

  def grouped(slots: jax.Array) -> jax.Array:
    slots = slots.reshape(shape)
    # Without padding the program is that of data that lack nothing.
    if any(lacking):
      slots = jnp.pad(slots, padding)
    return slots.reshape(-1, episode.way, episode.shot + episode.query)

  return grouped(indices), grouped(mask).all(axis=(1, 2))


def make_episode(
    key: jax.Array,
    images: jax.Array,
    episode: stages_lib.Episode,
    *,
    rotate: bool = False,
    targets: int = 0,
) -> EpisodeBatch:
  """Make one task of its images, features or points; `vmap` it over tasks.

  Labels are a uniformly random permutation of 0 .. way - 1, drawn from the
  task's key, so that a class's position tells nothing. Points bring their
  labels along, and nothing is drawn.

  Args:
    key: the task's key.
    images: uint8 or floating [way, shot + query, H, W, C]; or features,
      floating [way, shot + query, ...] of one or two axes more. The examples of
      a class are in random order, the first `shot` become the support.
    episode: way, shot and query.
    rotate: turn whole classes by multiples of 90 degrees (`rotate_classes`).
    targets: 0 for classes; for regression, how many of the last channels of a
      point [1, 1, features + targets] are to be predicted.

  Returns:
    support images float32[way * shot, ...] and labels int32[way * shot], class
    by class, and query likewise; with targets, `images`
    float32[shot, 1, 1, features] and labels float32[shot, targets]. uint8
    images are scaled to 0 .. 1, floating ones are kept.

  Raises:
    ValueError: images that do not fit the episode, not square with rotate, or
      no points with targets.
  """
  way, shot, images = episode.way, episode.shot, jnp.asarray(images)
  expected = (way, shot + episode.query)
  axes = (5,) if images.dtype == jnp.uint8 or targets else (3, 4, 5)
  if images.ndim not in axes or images.shape[:2] != expected:
    raise ValueError(
        f"images of shape {images.shape} do not fit way {way} and shot {shot} +"
        f" query {episode.query}: give [{way}, {expected[1]}, height, width,"
        f" channels], or of floating features [{way}, {expected[1]}, ...]"
    )
  if targets:
    return _regression(images, episode, targets)
  integral = images.dtype == jnp.uint8
  if not integral and not jnp.issubdtype(images.dtype, jnp.floating):
    raise ValueError(
        f"images of dtype {images.dtype} have no known scale: use uint8 (0 to"
        " 255) or floating point"
    )
  label_key, turn_key = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
  if rotate:
    images = rotate_classes(turn_key, images)
  images = images.astype(jnp.float32)
  if integral:
    images = images / 255.0
  bits = draws.random_bits(label_key, (way,))
  labels = draws.draw_ordered(bits, way, way)

  def part(chosen: jax.Array) -> Examples:
    n = chosen.shape[1]
    return Examples(
        chosen.reshape(way * n, *chosen.shape[2:]), jnp.repeat(labels, n)
    )

  return EpisodeBatch(part(images[:, :shot]), part(images[:, shot:]))


def single_example(image: jax.Array, label: jax.Array) -> EpisodeBatch:
  """Make a task of one example alone: an empty support, a query of one.

  Args:
    image: uint8 or floating [H, W, C], or floating features; uint8 is scaled
      to 0 .. 1.
    label: int32 scalar.
  """
  scale = 255.0 if image.dtype == jnp.uint8 else 1.0
  query = Examples(image[None].astype(jnp.float32) / scale, label[None])
  return EpisodeBatch(jax.tree.map(lambda a: a[:0], query), query)


def _regression(
    points: jax.Array, episode: stages_lib.Episode, targets: int
) -> EpisodeBatch:
  """A task of points floating [1, shot + query, 1, 1, features + targets]."""
  floating = jnp.issubdtype(points.dtype, jnp.floating)
  single = points.shape[2:4] == (1, 1) and points.shape[4] > targets
  if episode.way != 1 or not floating or not single:
    raise ValueError(
        f"{points.dtype} points of shape {points.shape[2:]} in tasks of way"
        f" {episode.way} with {targets} targets: give floating points"
        f" [1, 1, features + {targets}] and way=1"
    )
  points = points[0].astype(jnp.float32)

  def part(chosen: jax.Array) -> Examples:
    return Examples(chosen[..., :-targets], chosen[:, 0, 0, -targets:])

  return EpisodeBatch(
      part(points[: episode.shot]), part(points[episode.shot :])
  )


def rotate_classes(key: jax.Array, images: jax.Array) -> jax.Array:
  """Turn each class of a task by 0, 90, 180 or 270 degrees, equally likely.

  All images of a class are turned alike, support and query, so that a turned
  class is a class of its own (Santoro et al., 2016, for Omniglot). The turn
  depends on the key alone, never on the images.

  Args:
    key: the task's key for rotations.
    images: [way, n, H, W, C] with H = W, any dtype.

  Returns:
    The turned images, same shape and dtype.

  Raises:
    ValueError: images are not square or not of five dimensions.
  """
  if images.ndim != 5 or images.shape[2] != images.shape[3]:
    raise ValueError(
        f"images of shape {images.shape} cannot be turned by 90 degrees: give"
        " square images [way, n, height, width, channels], or rotate=False"
    )
  bits = jax.random.bits(key, (images.shape[0],), jnp.uint32)
  bits = bits.reshape(-1, 1, 1, 1, 1)
  half, quarter = (bits & 2).astype(bool), (bits & 1).astype(bool)
  images = jnp.where(half, jnp.flip(images, (2, 3)), images)
  return jnp.where(quarter, jnp.rot90(images, axes=(2, 3)), images)
