"""Neighbours that are as easy to distinguish as a guarantee allows.

A canary is a record made for an attack. Gradients on one line attain the worst
case of the accountant's proof: those of all other records point one way, the
record's points the other way, each at the full clip norm. The gradients of a
`LinearLearner` are its images, so the data can choose them. Sampling, clipping
and noise are those of real runs.

Neighbours are those of the guarantee, "add or remove one LEVEL": the record's
data and its place in the hierarchy are removed. Sizes are public, so each
side's sum is its mean times its own public count.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.private import step as step_lib

# How far the clip norm of a private quantile moves in a step, as a logarithm.
_STILL = 0.01


def _mean_output(outputs: jax.Array, labels: jax.Array) -> jax.Array:
  return outputs.mean()


@dataclasses.dataclass(frozen=True)
class LinearLearner(learners.MAML):
  """A learner whose loss is the mean output for all examples of a task.

  For outputs that are linear in the parameters, the gradient of a task is a
  mean of images, whatever the parameters. If examples are clipped inside tasks,
  so is the gradient of a query example.

  The other attributes are those of `MAML`.

  Attributes:
    adapts: whether there are support sets.
  """

  task_loss: Any = _mean_output
  adapts: bool = True

  def loss(self, params: Any, episode: Any) -> jax.Array:
    """Return the mean output for support and query."""
    both = episode.support.images, episode.query.images
    return self.logits(params, jnp.concatenate(both)).mean()

  def predict(
      self, params: Any, support: Any, query_images: jax.Array
  ) -> jax.Array:
    """Return arbitrary outputs, even without a support set."""
    return self.logits(params, query_images)


def linear_learner(release: plan_lib.Release, size: int = 1) -> LinearLearner:
  """Return the learner for a release, with images of `size` numbers."""
  episode, mechanism = release.plan.episode, release.mechanism
  way = 1 if episode is None else episode.way

  def init(key: jax.Array) -> jax.Array:
    return jnp.zeros(size)

  def outputs(params: jax.Array, images: jax.Array) -> jax.Array:
    scores = images.reshape(images.shape[0], -1) @ params
    return jnp.tile(scores[:, None], (1, way))

  return LinearLearner(
      models.Model(init, outputs, mixes_examples=False),
      inner_steps=mechanism.inner_steps or 1,
      order=mechanism.order or "first",
      adapts=episode is not None,
  )


def canary_dataset(
    images: np.ndarray, hierarchy: plan_lib.Hierarchy
) -> data.ArrayDataset:
  """Return a data set of images float32[rows, pixels] of any value."""
  return data.ArrayDataset(
      name="canaries",
      images=images.astype(np.float32)[:, None, None],
      hierarchy=hierarchy,
      labels=np.zeros(len(images), np.int32),
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
  """Two neighbouring data sets, and the settings of their runs.

  Attributes:
    present: the data with the record.
    absent: the data without it.
    learner: learner of both.
    release: release of `present`; `absent` has another hierarchy.
  """

  present: data.ArrayDataset
  absent: data.ArrayDataset
  learner: learners.Learner
  release: plan_lib.Release


def worst_case(
    release: plan_lib.Release, level: str, *, direction: str = "remove"
) -> Canary:
  """Make the worst case of the accountant's proof for one unit of a level.

  The record is the first unit of its level. The pair attains the guarantee's
  bound for one stage of any type, and for records inside clip units. It does
  not attain it for siblings with several clip units (clusters), for records
  that recur across tasks (their number is assumed to be known) and for examples
  that are clipped inside tasks (only their part as query examples is attacked).
  Composition takes the worst case of each step. With stages above the record's
  own, no single data set need attain it.

  Args:
    release: release of the data with the record; its hierarchy must be regular,
      and it must have noise.
    level: the privacy unit.
    direction: "remove" or "add"; they differ if a stage above the record's own
      leaves out units that others replace.

  Returns:
    The pair of data sets, `Canary`.

  Raises:
    UnsoundPlanError: the level has no guarantee.
    PlanError: no worst case is known (a ragged hierarchy, records that several
      primary units hold), or the plan does not fit without the record.
  """
  _check(release, level)
  accounting.unit_profiles(release, level)  # Refuses levels without proof.
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  signs = _signs(release, k, direction)
  images = np.sign(signs) * _dominance(release) ** np.abs(signs)
  kept = _units(hierarchy, k) > 0
  smaller = without(hierarchy, k)
  try:
    plan_lib.validate(smaller, release.plan)
  except PlanError as e:
    raise PlanError(
        f"level '{level}' cannot be audited by removal, since without one the"
        f" plan does not fit: {e}"
    ) from e
  mechanism = release.mechanism
  if mechanism.clipping == "private_quantile":
    # The update's rate costs nothing. Few clip units would move the clip norm
    # too fast: past the images, and out of the range of float32.
    assert mechanism.count_noise and mechanism.clip_rate
    still = _STILL * step_lib.expected_clip_units(release)
    release = release.replace(mechanism=dataclasses.replace(
        mechanism,
        clip_rate=min(mechanism.clip_rate, still / mechanism.count_noise),
    ))
  return Canary(
      present=canary_dataset(images[:, None], hierarchy),
      absent=canary_dataset(images[kept, None], smaller),
      learner=linear_learner(release),
      release=release,
  )


def _check(release: plan_lib.Release, level: str) -> None:
  """Refuse releases without a known worst case at the level."""
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  if hierarchy.sizes is None:
    raise PlanError(
        "worst-case canaries are known for regular hierarchies, but this one"
        " is ragged: use canaries.miniature, or give sizes"
    )
  if hierarchy.holders(k) != 1:
    raise PlanError(
        f"one {level} recurs in several units of level '{hierarchy.levels[0]}',"
        " for which no worst-case canary is known: audit level"
        f" '{hierarchy.levels[0]}'"
    )
  if release.mechanism.noise_multiplier == 0:
    raise PlanError(
        "noise_multiplier=0: nothing is claimed, so there is nothing to"
        " audit"
    )


def without(hierarchy: plan_lib.Hierarchy, level: int) -> plan_lib.Hierarchy:
  """Return a regular hierarchy without the first unit of a level.

  The units above it stay, even if they held nothing else.

  Raises:
    PlanError: nothing would remain.
  """
  assert hierarchy.sizes is not None
  if hierarchy.num_units(level) == 1:
    raise PlanError(
        f"the hierarchy has one {hierarchy.levels[level]}: give it two or more,"
        " so that something remains without it"
    )
  offsets, units = [], 1
  for j, size in enumerate(hierarchy.sizes):
    counts = np.full(units, size)
    if j == level:
      counts[0] -= 1
    offsets.append(hierarchy_lib.offsets_of(counts))
    units = counts.sum()
  return plan_lib.Hierarchy(levels=hierarchy.levels, offsets=tuple(offsets))


def _dominance(release: plan_lib.Release) -> float:
  """Return a factor by which one image outweighs the others of its task."""
  examples, episode = 1, release.plan.episode
  if episode is not None:
    examples = episode.way * (episode.shot + episode.query)
  return 8.0 * examples * max(1.0, release.mechanism.clip_norm)


def _signs(release: plan_lib.Release, k: int, direction: str) -> np.ndarray:
  """Choose each image's sign and power of the dominance, int[leaves].

  At these signs the accountant's bound is attained, if this is known. The
  record points to +1. For "remove" everything else points to -1. For "add" the
  units that are sampled instead of its parent point to +1 too, because then all
  negative terms of the divergence coincide. Inside a clip unit, and with stages
  of fixed size, another unit replaces one that is not sampled. Elsewhere the
  sum is then 0, and units next to the record would pull it back.

  The record outweighs its siblings, and these outweigh all others of the task.
  """
  _validate.one_of("direction", direction, ("remove", "add"))
  far = -1 if direction == "remove" else 1
  clip, hierarchy = release.clip_level, release.hierarchy
  fixed = [isinstance(s, plan_lib.FixedSize) for s in release.plan.stages]
  record = _units(hierarchy, k) == 0
  signs = np.full(record.shape, -2 if k > clip or fixed[k] else 0)
  for j in reversed(range(k)):
    # For paths that leave the record's path at stage j.
    leaving = far if j > clip or (fixed[0] and fixed[j]) else 0
    signs = np.where(_units(hierarchy, j) == 0, signs, leaving)
  return np.where(record, 3, signs)


def _units(hierarchy: plan_lib.Hierarchy, level: int) -> np.ndarray:
  """Return the unit of the level that contains each leaf, int64[leaves]."""
  assert hierarchy.sizes is not None
  return np.arange(hierarchy.num_leaves) // math.prod(
      hierarchy.sizes[level + 1 :]
  )


# Smaller populations ----------------------------------------------------------


def miniature(release: plan_lib.Release, level: str) -> plan_lib.Release:
  """Make a smaller population with the same guarantee, step for step.

  A guarantee depends on rates and distances, not on the number of primary
  units: `Poisson(0.02)` costs one of 3 participants the same as one of 8000,
  and `FixedSize(4)` of 1000 the same as `FixedSize(1)` of 250. The rates and
  distances of both are compared; if they differ, the release is returned
  unchanged. A ragged hierarchy becomes a regular one, with the sizes on the
  path of a unit with the highest sampling rate.

  Args:
    release: a release with noise; its hierarchy may be ragged.
    level: the privacy unit.

  Raises:
    PlanError: no regular hierarchy has the rates and distances of a unit of the
      ragged one.
  """
  hierarchy, plan = release.hierarchy, release.plan
  known = set(accounting.unit_profiles(release, level))
  k = hierarchy.level_index(level)

  def rate(path):
    return math.prod(float(plan.stages[j].rate(path[j])) for j in range(k + 1))

  paths = hierarchy.size_paths(hierarchy.depth - 1)
  for path in sorted(paths, key=rate, reverse=True):
    for stage, units in _smaller(plan.stages[0], int(path[0])):
      stages = (stage, *plan.stages[1:])
      try:
        small = plan_lib.Release(
            plan_lib.Hierarchy.regular(
                (units, *path[1:].tolist()), levels=hierarchy.levels
            ),
            dataclasses.replace(plan, stages=stages),
            release.mechanism,
        )
        if set(accounting.unit_profiles(small, level)) <= known:
          return small
      except (PlanError, UnsoundPlanError):
        continue  # Too small for the episode, or another tree has the bound.
  if hierarchy.sizes is not None:
    return release
  raise PlanError(
      f"no regular hierarchy has the rates and distances of a {level} of this"
      " ragged one, which worst-case canaries need: audit another level, or a"
      " config with sizes"
  )


def _smaller(
    stage: plan_lib.Stage, units: int
) -> Iterator[tuple[plan_lib.Stage, int]]:
  """List stages and numbers of primary units at the same rate, fewest first."""
  if isinstance(stage, plan_lib.FixedSize):
    common = math.gcd(stage.n, units) if stage.n < units else 1
    for d in range(common, 1, -1):
      if common % d == 0:
        yield plan_lib.FixedSize(stage.n // d), units // d
  else:
    yield stage, min(units, 2 if isinstance(stage, plan_lib.All) else 3)
  yield stage, units
