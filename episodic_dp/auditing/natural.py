"""A record that might be in real data: how much less than the worst case leaks.

The others' images scatter around the means of their classes; those of the
record are taken from classes at random, as if someone had mixed them up. A
small network learns to tell classes apart. The attacker knows all of this, and
what the record adds to a sum on average, from runs without noise.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.auditing import canaries
from episodic_dp.auditing import laws
from episodic_dp.auditing import linear_learner
from episodic_dp.auditing import populations
from episodic_dp.auditing import runs as runs_lib
from episodic_dp.auditing import scores

_SIDE = 4  # Pixels.
_FEATURES = 8
_SPREAD = 0.3  # Of the images of one class; their means are 1 apart.
_SILENT_RUNS = 2000  # Runs without noise, of one step each.


def mislabelled(
    release: plan_lib.Release, level: str, *, seed: int = 0
) -> canaries.Canary:
  """A primary unit whose images are of classes at random.

  The learner is a prototypical network of one layer, at its initial weights
  (whose distance from what is learned in a few noisy steps is small).

  Args:
    release: of the data with the record, whose hierarchy is regular, with one
      clipped gradient per task.
    level: the primary one.
    seed: of the images, the weights and the runs without noise.

  Raises:
    PlanError: another level, tasks of one class, or clip units inside tasks.
  """
  hierarchy, mechanism = release.hierarchy, release.mechanism
  episode = _checked_episode(release, level)
  smaller = populations.without(hierarchy, 0)
  plan_lib.validate(smaller, release.plan)
  images, away = _images(hierarchy, seed)
  learner = learners.ProtoNet(
      models.mlp(_FEATURES, (), (_SIDE, _SIDE, 1)), way=episode.way
  )
  params = learner.init(jax.random.key(seed))
  present = linear_learner.CanaryDataset(images=images, hierarchy=hierarchy)
  absent = linear_learner.CanaryDataset(images=images[~away], hierarchy=smaller)
  with_record, without = (
      _mean_sum(learner, params, data, release, seed)
      for data in (present, absent)
  )
  moved = with_record - without
  length = float(np.linalg.norm(moved))
  # The probability that a step draws the record at all.
  once = plan_lib.inclusion_rate(hierarchy, release.plan, level)
  rate = 1 - (1 - once) ** (episode.tasks or 1)
  return canaries.Canary(
      level=level,
      direction="both",
      present=present,
      absent=absent,
      learner=learner,
      release=release,
      score=laws.shifted_score(
          release,
          rate=rate,
          distance=length / (rate * mechanism.clip_norm),
          direction=moved / max(length, 1e-30),
          offset=without,
      ),
      params=params,
  )


def _checked_episode(
    release: plan_lib.Release, level: str
) -> plan_lib.Episode:
  """The tasks of a release; refuses one without natural canaries."""
  hierarchy, episode = release.hierarchy, release.plan.episode
  if level != hierarchy.levels[0] or hierarchy.sizes is None:
    raise plan_lib.PlanError(
        f"natural canaries are units of the level '{hierarchy.levels[0]}', not"
        f" of level '{level}', of regular hierarchies"
    )
  whole = not release.mechanism.noisy_inner_steps
  if episode is None or episode.way < 2 or not whole:
    raise plan_lib.PlanError(
        "natural canaries are known for tasks of two classes or more that are"
        " clipped whole: use a worst-case canary"
    )
  return episode


def _images(
    hierarchy: plan_lib.Hierarchy, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """float32[leaves, H, W, 1] images, and bool[leaves]: those of the record."""
  assert hierarchy.sizes is not None  # `_checked_episode` refuses others.
  rng = np.random.default_rng(seed)
  leaves = hierarchy.num_leaves
  classes = leaves // hierarchy.sizes[-1]
  means = rng.standard_normal((classes, _SIDE, _SIDE, 1))
  own = np.arange(leaves) // hierarchy.sizes[-1]
  away = np.arange(leaves) < leaves // hierarchy.sizes[0]
  own[away] = rng.integers(classes, size=away.sum())
  images = means[own] + _SPREAD * rng.standard_normal((leaves, _SIDE, _SIDE, 1))
  return images.astype(np.float32), away


def _mean_sum(
    learner: learners.Learner,
    params: Any,
    data: linear_learner.CanaryDataset,
    release: plan_lib.Release,
    seed: int,
) -> np.ndarray:
  """float64[coordinates], the sum of a step without noise, on average."""
  silent = release.replace(
      hierarchy=data.hierarchy,
      mechanism=dataclasses.replace(
          release.mechanism.with_fixed_norm, noise_multiplier=0.0
      ),
  )
  optimizer = runs_lib.observed(optax.sgd(0.0))
  step = private.make_meta_step(
      learner, optimizer, data, silent,
      compute=private.Compute(microbatch_size=1, mesh=None),
  )

  def initial(key):
    return private.init(
        key, learner, optimizer, silent.mechanism, params=params
    )

  keys = runs_lib.keys_of(seed + 1, _SILENT_RUNS)
  released = runs_lib.releases(step, initial, keys, steps=1)
  count = scores.clip_units(silent)
  return count * released.means.astype(np.float64).mean((0, 1))
