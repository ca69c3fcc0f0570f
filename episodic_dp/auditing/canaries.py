"""Neighbours that are as easy to tell apart as a guarantee allows.

A canary is a record made for an attack. The worst case of the accountant's
proof is reached by gradients on one line: those of all other records point one
way, the record's the other way, each at the full clip norm. `LinearLearner` has
its images as gradients, so that data can say so; nothing of sampling, clipping
and noise is replaced.

Neighbours are those of the guarantee, "add or remove one <level>": the record's
data and its place in the hierarchy are gone. Sizes are public, so each side's
sum is its mean times its own public count.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import accounting
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp.auditing import scores
from episodic_dp.data import dataset as dataset_lib


@dataclasses.dataclass(frozen=True)
class LinearLearner:
  """A learner whose loss is <params, mean of its images>.

  The gradient of a task, or of a query example where examples are clipped
  inside tasks, is the mean of images: data decide it, and
  parameters do not matter.

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
  order: str | None = None

  @property
  def model(self) -> models.Model:
    """The linear map, for the check that examples are not mixed."""
    return models.Model(self.init, self._apply, mixes_examples=False)

  def init(self, key: jax.Array) -> jax.Array:
    """Zeros."""
    del key
    return jnp.zeros(math.prod(self.shape))

  def predict(self, params: Any, support: Any, images: jax.Array) -> jax.Array:
    """Logits [n, way], of no meaning."""
    del support
    return self._apply(params, images)

  def loss(self, params: Any, task: Any) -> jax.Array:
    """The mean over support and query."""
    images = jnp.concatenate([task.support.images, task.query.images])
    return jnp.vdot(params, images.mean(0).ravel())

  def support_loss(self, params: Any, examples: Any) -> jax.Array:
    """The mean over the examples."""
    return jnp.vdot(params, examples.images.mean(0).ravel())

  def adapt(
      self, params: Any, support: Any, *, inner_gradient: Callable[..., Any]
  ) -> Any:
    """Parameters after noisy steps."""
    for i in range(self.inner_steps or 0):
      loss = lambda p, e, step: self.support_loss(p, e)  # noqa: E731
      params = params - inner_gradient(loss)(params, support, i)
    return params

  def _apply(self, params: Any, images: jax.Array) -> jax.Array:
    flat = images.reshape(images.shape[0], -1)
    return jnp.tile((flat @ params)[:, None], (1, self.way))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CanaryDataset:
  """A data set of float32 images: a canary may have any pixels.

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
    """(height, width, channels)."""
    height, width, channels = self.images.shape[1:]
    return height, width, channels

  @property
  def labels(self) -> np.ndarray:
    """Zeros."""
    return np.zeros(len(self.images), np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
  """Two neighbouring data sets, and the score that tells runs on them apart.

  Attributes:
    level: of the record.
    direction: that the pair is the worst case of.
    present: the data with the record.
    absent: the data without it.
    learner: what learns both.
    plan: how both are sampled.
    mechanism: what is released.
    score: what tells runs on them apart.
    params: the public start of all runs; None draws it with the learner.
    rate: of the descent, 0 where the parameters stay.
  """

  level: str
  direction: str
  present: Any
  absent: Any
  learner: Any
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  score: scores.Score
  params: Any = None
  rate: float = 0.0


def worst_case(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
    *,
    direction: str = "remove",
) -> Canary:
  """The worst case of the accountant's proof, for one unit of the level.

  The record is the first unit of its level. Where the guarantee's bound is
  attained by one pair of data sets, it is this one: one stage of any kind, and
  records inside clip units. It is not where siblings bring several clip units
  (clusters), for records that recur across tasks (their number is taken to be
  known) and for examples that are clipped inside tasks (only their part as
  query examples is attacked). Composition takes the worst case of each step,
  which for stages above the record's own no one data set need be.

  Args:
    hierarchy: regular; sizes of the data with the record.
    plan: how they are sampled.
    mechanism: what is released; noise is needed.
    level: the privacy unit.
    direction: "remove" or "add"; they differ where a stage above the record's
      own leaves out units that others take the place of.

  Raises:
    UnsoundPlanError: the level has no guarantee.
    PlanError: no worst case is known (a ragged hierarchy, records that several
      primary units hold), or without the record the plan does not fit.
  """
  _check(hierarchy, mechanism, level)
  accounting.kinds(hierarchy, plan, mechanism, level)  # Refuses unsound ones.
  k = hierarchy.level_index(level)
  signs = _signs(hierarchy, plan, mechanism, k, direction)
  away = _units_of(hierarchy, k) == 0
  images = np.float32(_steep(plan, mechanism)) ** np.abs(signs)
  images = (np.sign(signs) * images).astype(np.float32).reshape(-1, 1, 1, 1)
  smaller = without(hierarchy, k)
  try:
    plan_lib.validate(smaller, plan)
  except plan_lib.PlanError as e:
    raise plan_lib.PlanError(
        f"level '{level}' cannot be audited by removal, since without one the"
        f" plan does not fit: {e}"
    ) from e
  return Canary(
      level=level,
      direction=direction,
      present=CanaryDataset(images=images, hierarchy=hierarchy),
      absent=CanaryDataset(images=images[~away], hierarchy=smaller),
      learner=line(plan, mechanism),
      plan=plan,
      mechanism=mechanism,
      score=scores.of_line(hierarchy, plan, mechanism, k, direction),
  )


def many_in_one_run(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    canaries: int,
    seed: int,
) -> tuple[Canary, np.ndarray]:
  """Many primary units, each with a coordinate of its own, included by coins.

  What is not included stays in its place with images of zeros, whose gradient
  is zero. For a primary stage that draws every unit by itself this is the same
  run as one without it: a zero in a sum is nothing, and no other draw changes.
  Under a fixed size the place of a unit that is gone is taken by another one,
  which zeros are not, so such stages are refused.

  Args:
    hierarchy: regular; the sizes inside a primary unit are kept.
    plan: with `Poisson`, `All` or `RandomAllocation` primary units.
    mechanism: what is released.
    canaries: m, the number of primary units.
    seed: of the coins.

  Returns:
    (canary, included): `canary.present` are the data, `canary.absent` is None,
    `canary.score.each` scores every coordinate; and bool[m].

  Raises:
    PlanError: a primary stage of fixed size, or too few canaries.
  """
  level = hierarchy.levels[0]
  _check(hierarchy, mechanism, level)
  if isinstance(plan.stages[0], plan_lib.FixedSize):
    raise plan_lib.PlanError(
        "one run with many canaries needs canaries that are absent by being"
        f" nothing, and {plan.stages[0]} puts another {level} in the place of"
        " one that is gone: audit this plan by many runs"
    )
  if canaries < 2:
    raise plan_lib.PlanError(
        f"{canaries} canaries cannot be told apart: give at least 2, and"
        " hundreds to see an epsilon of 1"
    )
  assert hierarchy.sizes is not None
  inner = hierarchy.sizes[1:]
  population = plan_lib.Hierarchy.regular(
      (canaries, *inner), levels=hierarchy.levels, copies=bool(inner)
  )
  included = np.random.default_rng(seed).random(canaries) < 0.5
  images = np.diag(_steep(plan, mechanism) * included).astype(np.float32)
  leaves = math.prod(inner)
  canary = Canary(
      level=level,
      direction="both",
      present=CanaryDataset(
          images=images.reshape(canaries, 1, 1, canaries),
          hierarchy=population,
          rows=lambda leaf: leaf // leaves,
      ),
      absent=None,
      learner=line(plan, mechanism, canaries),
      plan=plan,
      mechanism=mechanism,
      score=scores.of_alone(plan, mechanism),
  )
  return canary, included


def line(
    plan: plan_lib.SamplingPlan, mechanism: plan_lib.Mechanism, size: int = 1
) -> LinearLearner:
  """The learner for a plan, of images of so many numbers."""
  return LinearLearner(
      way=1 if plan.episode is None else plan.episode.way,
      shape=(1, 1, size),
      adapts=plan.episode is not None,
      inner_steps=mechanism.inner_steps,
      order=mechanism.order,
  )


def miniature(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
) -> tuple[plan_lib.Hierarchy, plan_lib.SamplingPlan]:
  """A smaller population with the same guarantee, step for step.

  A guarantee depends on rates and distances, not on how many primary units
  there are: `Poisson(0.02)` of 3 participants costs one of them what it does of
  8000, and `FixedSize(4)` of 1000 what `FixedSize(1)` of 250 does. The rates
  and distances of both are compared; where they differ, as given. A ragged
  hierarchy becomes the regular one with the sizes on the path to a unit that is
  drawn most often.

  Args:
    hierarchy: sizes, regular or not.
    plan: as for `worst_case`.
    mechanism: as for `worst_case`.
    level: the privacy unit.

  Raises:
    PlanError: no noise, or a ragged hierarchy with no unit whose rates and
      distances a regular one has.
  """
  _check_noise(mechanism)
  if hierarchy.sizes is None:
    hierarchy = _regular(hierarchy, plan, mechanism, level)
  assert hierarchy.sizes is not None
  first, units = plan.stages[0], hierarchy.sizes[0]
  candidates: list[tuple[plan_lib.Stage, int]] = []
  if isinstance(first, (plan_lib.Poisson, plan_lib.RandomAllocation)):
    candidates.append((first, min(units, 3)))
  elif isinstance(first, plan_lib.FixedSize) and first.n < units:
    divisors = math.gcd(first.n, units)
    candidates += [
        (plan_lib.FixedSize(first.n // d), units // d)
        for d in range(divisors, 1, -1)
        if divisors % d == 0
    ]
  elif isinstance(first, plan_lib.All):
    candidates.append((first, min(units, 2)))
  wanted = accounting.kinds(hierarchy, plan, mechanism, level)
  for stage, count in candidates:
    small = plan_lib.Hierarchy.regular(
        (count, *hierarchy.sizes[1:]), levels=hierarchy.levels
    )
    changed = dataclasses.replace(plan, stages=(stage, *plan.stages[1:]))
    try:
      plan_lib.validate(small, changed)
      if accounting.kinds(small, changed, mechanism, level) == wanted:
        return small, changed
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
      # Too small for the episode.
      continue
  return hierarchy, plan


def without(hierarchy: plan_lib.Hierarchy, level: int) -> plan_lib.Hierarchy:
  """The hierarchy less the first unit of a level (position from 0).

  Raises:
    PlanError: nothing would be left.
  """
  if hierarchy.sizes is not None and level == 0 and hierarchy.sizes[0] > 1:
    return plan_lib.Hierarchy.regular(
        (hierarchy.sizes[0] - 1, *hierarchy.sizes[1:]), levels=hierarchy.levels
    )
  kept = _units_of(hierarchy, level) != 0
  if not kept.any():
    raise plan_lib.PlanError(
        f"the hierarchy has one {hierarchy.levels[level]}: give it two or more,"
        " so that something is left without it"
    )
  if hierarchy.depth == 1:
    return plan_lib.Hierarchy.regular(
        (int(kept.sum()),), levels=hierarchy.levels
    )
  return plan_lib.Hierarchy.from_labels(
      {
          name: _units_of(hierarchy, j)[kept]
          for j, name in enumerate(hierarchy.levels[:-1])
      },
      leaf=hierarchy.levels[-1],
  )


def _check(hierarchy, mechanism, level) -> None:
  k = hierarchy.level_index(level)
  if hierarchy.sizes is None:
    raise plan_lib.PlanError(
        "worst-case canaries are known for regular hierarchies, and this one"
        " is ragged: use canaries.miniature, or give sizes"
    )
  if hierarchy.copies and k > 0:
    raise plan_lib.PlanError(
        f"level '{level}' recurs in several {hierarchy.levels[0]}s, for which"
        f" no worst-case canary is known: audit level '{hierarchy.levels[0]}'"
    )
  _check_noise(mechanism)


def _check_noise(mechanism) -> None:
  if mechanism.noise_multiplier == 0:
    raise plan_lib.PlanError(
        "noise_multiplier is 0: nothing is claimed, so there is nothing to"
        " audit"
    )


def _regular(hierarchy, plan, mechanism, level) -> plan_lib.Hierarchy:
  """A regular tree, one of whose units costs what one of a ragged tree does."""
  k = hierarchy.level_index(level)
  known = accounting.kinds(hierarchy, plan, mechanism, level)
  paths = hierarchy.size_paths(hierarchy.depth - 1)

  def drawn(path):
    rates = [float(plan.stages[j].rate(path[j])) for j in range(k + 1)]
    return math.prod(rates)

  for path in sorted(paths, key=drawn, reverse=True):
    tree = plan_lib.Hierarchy.regular(
        path.tolist(), levels=hierarchy.levels
    )
    try:
      plan_lib.validate(tree, plan)
      if set(accounting.kinds(tree, plan, mechanism, level)) <= set(known):
        return tree
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
      # Others of the ragged tree are larger.
      continue
  raise plan_lib.PlanError(
      f"no regular hierarchy has the rates and distances of a {level} of this"
      " ragged one, which worst-case canaries need: audit another level, or a"
      " config with sizes"
  )


def _units_of(hierarchy: plan_lib.Hierarchy, level: int) -> np.ndarray:
  """int64[leaves], the unit of the level that each leaf lies in."""
  assert hierarchy.sizes is not None
  below = math.prod(hierarchy.sizes[level + 1 :])
  return np.arange(hierarchy.num_leaves) // below


def _steep(
    plan: plan_lib.SamplingPlan, mechanism: plan_lib.Mechanism
) -> float:
  """A factor by which one image outweighs all others of its task."""
  examples = 1
  if plan.episode is not None:
    examples = plan.episode.way * (plan.episode.shot + plan.episode.query)
  return 8.0 * examples * max(1.0, mechanism.clip_norm)


def _signs(hierarchy, plan, mechanism, k, direction) -> np.ndarray:
  """int[leaves]: the sign of each image, and how many times it is made steep.

  The record outweighs its siblings, and these outweigh all others of the task.
  """
  wanted = scores.worst_case_signs(hierarchy, plan, mechanism, k, direction)
  record = _units_of(hierarchy, k) == 0
  signs = np.full(record.shape, 2 * wanted.siblings)
  for j in reversed(range(k)):
    # Those whose path leaves the record's at stage j.
    signs = np.where(_units_of(hierarchy, j) == 0, signs, wanted.others[j])
  return np.where(record, 3, signs)
