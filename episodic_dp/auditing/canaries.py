"""Neighbours that are as easy to distinguish as a guarantee allows.

A canary is a record made for an attack. The worst case of the accountant's
proof is reached by gradients on one line: those of all other records point one
way, the record's the other way, each at the full clip norm. The gradients of a
`LinearLearner` are its images, so that data can choose them; sampling, clipping
and noise are those of real runs.

Neighbours are those of the guarantee, "add or remove one LEVEL": the record's
data and its place in the hierarchy are gone. Sizes are public, so each side's
sum is its mean times its own public count.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp.auditing import populations
from episodic_dp.auditing import scores
from episodic_dp.data import dataset as dataset_lib


@dataclasses.dataclass(frozen=True)
class LinearLearner(learners.Learner):
  """A learner whose loss is <params, mean of its images>.

  The gradient of a task, or of a query example where examples are clipped
  inside tasks, is the mean of images, whatever the parameters.

  Attributes:
    way: classes of a task; 1 where there are none.
    shape: of an image; there is one parameter for every number of it.
    adapts: whether there are support sets.
    inner_steps: noisy steps inside a task, or None.
    order: of gradients, as the mechanism says.
  """

  way: int
  shape: tuple[int, int, int] = (1, 1, 1)
  adapts: bool = True
  inner_steps: int | None = None
  order: Literal["first", "second"] | None = None

  @property  # Follows from the fields.
  def model(self) -> models.Model:  # type: ignore[override]
    """Return the linear map, for the check that examples are not mixed."""
    return models.Model(self.init, self._apply, mixes_examples=False)

  def init(self, key: jax.Array) -> jax.Array:
    """Return zeros."""
    del key
    return jnp.zeros(math.prod(self.shape))

  def predict(self, params: Any, support: Any, images: jax.Array) -> jax.Array:
    """Return logits [n, way] without a meaning."""
    del support
    return self._apply(params, images)

  def loss(self, params: Any, task: Any) -> jax.Array:
    """Return the mean over support and query."""
    images = jnp.concatenate([task.support.images, task.query.images])
    return jnp.vdot(params, images.mean(0).ravel())

  def adapted_loss(self, params: Any, examples: Any) -> jax.Array:
    """Return the mean over the examples."""
    return jnp.vdot(params, examples.images.mean(0).ravel())

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: Callable[..., Any] = jax.grad,
  ) -> Any:
    """Return the parameters after noisy steps."""
    for i in range(self.inner_steps or 0):
      loss = lambda p, e, step: self.adapted_loss(p, e)  # noqa: E731
      params = params - inner_gradient(loss)(params, support, i)
    return params

  def _apply(self, params: Any, images: jax.Array) -> jax.Array:
    flat = images.reshape(images.shape[0], -1)
    return jnp.tile((flat @ params)[:, None], (1, self.way))


def linear_learner(release: plan_lib.Release, size: int = 1) -> LinearLearner:
  """Return the learner for a release, of images of `size` numbers."""
  plan, mechanism = release.plan, release.mechanism
  return LinearLearner(
      way=1 if plan.episode is None else plan.episode.way,
      shape=(1, 1, size),
      adapts=plan.episode is not None,
      inner_steps=mechanism.inner_steps,
      order=mechanism.order,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CanaryDataset:
  """A data set of float32 images, with any pixel values.

  Attributes: those of `data.Dataset`; images are float32[rows, H, W, C].
  """

  images: np.ndarray
  hierarchy: plan_lib.Hierarchy
  name: str = "canaries"
  rows: dataset_lib.Rows = dataset_lib.identity
  rotate: bool = False
  targets: int = 0
  resident: bool = True

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Return (height, width, channels)."""
    height, width, channels = self.images.shape[1:]
    return height, width, channels

  @property
  def labels(self) -> np.ndarray:
    """Return zeros."""
    return np.zeros(len(self.images), np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
  """Two neighbouring data sets, and the score that distinguishes their runs.

  Attributes:
    level: of the record.
    direction: in which this pair attains the bound.
    present: the data with the record.
    absent: the data without it.
    learner: of both.
    release: how `present` is sampled; `absent` has its own hierarchy.
    score: high for runs with the record.
  """

  level: str
  direction: str
  present: dataset_lib.Dataset
  absent: dataset_lib.Dataset
  learner: learners.Learner
  release: plan_lib.Release
  score: scores.Score


def worst_case(
    release: plan_lib.Release, level: str, *, direction: str = "remove"
) -> Canary:
  """Make the worst case of the accountant's proof, for one unit of the level.

  The record is the first unit of its level. The pair attains the guarantee's
  bound for one stage of any kind, and for records inside clip units. It does
  not where siblings bring several clip units (clusters), for records that recur
  across tasks (their number is taken to be known) and for examples that are
  clipped inside tasks (only their part as query examples is attacked).
  Composition takes the worst case of each step, which for stages above the
  record's own no single data set need attain.

  Args:
    release: of the data with the record, whose hierarchy is regular; noise is
      needed.
    level: the privacy unit.
    direction: "remove" or "add"; they differ where a stage above the record's
      own leaves out units that others take the place of.

  Raises:
    UnsoundPlanError: the level has no guarantee.
    PlanError: no worst case is known (a ragged hierarchy, records that several
      primary units hold), or without the record the plan does not fit.
  """
  _check(release, level)
  accounting.unit_profiles(release, level)  # Refuses levels without proof.
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  signs = _signs(release, k, direction)
  away = populations.units_of(hierarchy, k) == 0
  images = np.float32(_dominance(release)) ** np.abs(signs)
  images = (np.sign(signs) * images).astype(np.float32).reshape(-1, 1, 1, 1)
  smaller = populations.without(hierarchy, k)
  try:
    plan_lib.validate(smaller, release.plan)
  except errors.PlanError as e:
    raise errors.PlanError(
        f"level '{level}' cannot be audited by removal, since without one the"
        f" plan does not fit: {e}"
    ) from e
  return Canary(
      level=level,
      direction=direction,
      present=CanaryDataset(images=images, hierarchy=hierarchy),
      absent=CanaryDataset(images=images[~away], hierarchy=smaller),
      learner=linear_learner(release),
      release=release,
      score=scores.worst_case_score(release, k, direction),
  )


def _check(release: plan_lib.Release, level: str) -> None:
  """Refuse releases for which no worst case is known at the level."""
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  if hierarchy.sizes is None:
    raise errors.PlanError(
        "worst-case canaries are known for regular hierarchies, and this one"
        " is ragged: use populations.miniature, or give sizes"
    )
  counts = hierarchy.most_copies
  if hierarchy.copies and k > 0 and (counts is None or counts[k] != 1):
    raise errors.PlanError(
        f"one {level} recurs in several units of level '{hierarchy.levels[0]}',"
        " for which no worst-case canary is known: audit level"
        f" '{hierarchy.levels[0]}'"
    )
  populations.check_noise(release.mechanism)


def _dominance(release: plan_lib.Release) -> float:
  """Return a factor by which one image outweighs the others of its task."""
  examples, episode = 1, release.plan.episode
  if episode is not None:
    examples = episode.way * (episode.shot + episode.query)
  return 8.0 * examples * max(1.0, release.mechanism.clip_norm)


def _signs(release: plan_lib.Release, k: int, direction: str) -> np.ndarray:
  """Return the sign of each image, int[leaves]; its size is a power.

  The record outweighs its siblings, and these outweigh all others of the task.
  """
  hierarchy = release.hierarchy
  wanted = scores.worst_case_signs(release, k, direction)
  record = populations.units_of(hierarchy, k) == 0
  signs = np.full(record.shape, 2 * wanted.siblings)
  for j in reversed(range(k)):
    # Paths that leave the record's at stage j keep `others[j]`.
    stays = populations.units_of(hierarchy, j) == 0
    signs = np.where(stays, signs, wanted.others[j])
  return np.where(record, 3, signs)
