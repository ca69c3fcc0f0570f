"""Neighbours that are as easy to tell apart as a guarantee allows.

A canary is a record made for an attack. The worst case of the accountant's
proof is reached by gradients on one line: those of all other records point one
way, the record's the other way, each at the full clip norm. The gradients of a
`LinearLearner` are its images, so that data can say so; nothing of sampling,
clipping and noise is replaced.

Neighbours are those of the guarantee, "add or remove one LEVEL": the record's
data and its place in the hierarchy are gone. Sizes are public, so each side's
sum is its mean times its own public count.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.auditing import laws
from episodic_dp.auditing import linear_learner
from episodic_dp.auditing import populations
from episodic_dp.auditing import scores
from episodic_dp.data import dataset as dataset_lib


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
  """Two neighbouring data sets, and the score that tells runs on them apart.

  Attributes:
    level: of the record.
    direction: in which this pair attains the bound.
    present: the data with the record.
    absent: the data without it; None where canaries are absent one by one.
    learner: what learns both.
    release: how `present` is sampled; `absent` likewise, by its hierarchy.
    score: what tells runs on them apart.
    params: the public start of all runs; None draws it with the learner.
    rate: of the descent, 0 where the parameters stay.
  """

  level: str
  direction: str
  present: dataset_lib.Dataset
  absent: dataset_lib.Dataset | None
  learner: learners.Learner
  release: plan_lib.Release
  score: scores.Score
  params: Any = None
  rate: float = 0.0


def worst_case(
    release: plan_lib.Release, level: str, *, direction: str = "remove"
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
  except plan_lib.PlanError as e:
    raise plan_lib.PlanError(
        f"level '{level}' cannot be audited by removal, since without one the"
        f" plan does not fit: {e}"
    ) from e
  dataset = linear_learner.CanaryDataset
  return Canary(
      level=level,
      direction=direction,
      present=dataset(images=images, hierarchy=hierarchy),
      absent=dataset(images=images[~away], hierarchy=smaller),
      learner=linear_learner.of_release(release),
      release=release,
      score=laws.worst_case_score(release, k, direction),
  )


def many_in_one_run(
    release: plan_lib.Release, *, canaries: int, seed: int
) -> tuple[Canary, np.ndarray]:
  """Many primary units, each with a coordinate of its own, included by coins.

  What is not included stays in its place with images of zeros, whose gradient
  is zero. For a primary stage that draws every unit by itself this is the same
  run as one without it: a zero in a sum is nothing, and no other draw changes.
  Under a fixed size the place of a unit that is gone is taken by another one,
  which zeros are not, so such stages are refused.

  Args:
    release: of a regular hierarchy, whose sizes inside a primary unit are kept;
      the primary stage is `Poisson`, `All` or `RandomAllocation`.
    canaries: m, the number of primary units.
    seed: of the coins.

  Returns:
    (canary, included): `canary.present` are the data, `canary.absent` is None,
    `canary.score.each` scores every coordinate; and bool[m].

  Raises:
    PlanError: a primary stage of fixed size, or too few canaries.
  """
  hierarchy, first = release.hierarchy, release.plan.stages[0]
  level = hierarchy.levels[0]
  _check(release, level)
  if isinstance(first, plan_lib.FixedSize):
    raise plan_lib.PlanError(
        "one run with many canaries needs canaries that are absent by being"
        f" nothing, and {first} puts another {level} in the place of"
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
  release = release.replace(hierarchy=population)
  included = np.random.default_rng(seed).random(canaries) < 0.5
  images = np.diag(_dominance(release) * included).astype(np.float32)
  leaves = math.prod(inner)
  canary = Canary(
      level=level,
      direction="both",
      present=linear_learner.CanaryDataset(
          images=images.reshape(canaries, 1, 1, canaries),
          hierarchy=population,
          rows=lambda leaf: leaf // leaves,
      ),
      absent=None,
      learner=linear_learner.of_release(release, canaries),
      release=release,
      score=laws.single_unit_score(release),
  )
  return canary, included


def _check(release: plan_lib.Release, level: str) -> None:
  """Refuses releases for which no worst case is known at the level."""
  hierarchy = release.hierarchy
  k = hierarchy.level_index(level)
  if hierarchy.sizes is None:
    raise plan_lib.PlanError(
        "worst-case canaries are known for regular hierarchies, and this one"
        " is ragged: use populations.miniature, or give sizes"
    )
  counts = hierarchy.most_copies
  if hierarchy.copies and k > 0 and (counts is None or counts[k] != 1):
    raise plan_lib.PlanError(
        f"one {level} recurs in several units of level '{hierarchy.levels[0]}',"
        " for which no worst-case canary is known: audit level"
        f" '{hierarchy.levels[0]}'"
    )
  populations.check_noise(release.mechanism)


def _dominance(release: plan_lib.Release) -> float:
  """A factor by which one image outweighs all others of its task."""
  examples, episode = 1, release.plan.episode
  if episode is not None:
    examples = episode.way * (episode.shot + episode.query)
  return 8.0 * examples * max(1.0, release.mechanism.clip_norm)


def _signs(release: plan_lib.Release, k: int, direction: str) -> np.ndarray:
  """int[leaves]: sign of each image; the size is a power of `_dominance`.

  The record outweighs its siblings, and these outweigh all others of the task.
  """
  hierarchy = release.hierarchy
  wanted = laws.worst_case_signs(release, k, direction)
  record = populations.units_of(hierarchy, k) == 0
  signs = np.full(record.shape, 2 * wanted.siblings)
  for j in reversed(range(k)):
    # Those whose path leaves the record's at stage j.
    stays = populations.units_of(hierarchy, j) == 0
    signs = np.where(stays, signs, wanted.others[j])
  return np.where(record, 3, signs)
