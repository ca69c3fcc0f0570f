"""A record that might be in real data: how much less than the worst case leaks.

The others' images scatter around the means of their classes; those of the
record are taken from classes at random, as if someone had mixed them up. A
small network learns to tell classes apart. The attacker knows all of this, and
what the record adds to a sum on average, from runs without noise.
"""

import dataclasses

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
_LOOKS = 2000  # Runs without noise, of one step each.


def mislabelled(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
    *,
    seed: int = 0,
) -> canaries.Canary:
  """A primary unit whose images are of classes at random.

  The learner is a prototypical network of one layer, at its initial weights
  (whose distance from what is learned in a few noisy steps is small).

  Args:
    hierarchy: regular; sizes of the data with the record.
    plan: how tasks are sampled.
    mechanism: what is released, one clipped gradient per task.
    level: the primary one.
    seed: of the images, the weights and the runs without noise.

  Raises:
    PlanError: another level, tasks of one class, or clip units inside tasks.
  """
  if level != hierarchy.levels[0] or hierarchy.sizes is None:
    raise plan_lib.PlanError(
        f"natural canaries are units of the level '{hierarchy.levels[0]}', not"
        f" of level '{level}', of regular hierarchies"
    )
  alone = plan.episode is None or plan.episode.way < 2
  if alone or mechanism.noisy_inner_steps:
    raise plan_lib.PlanError(
        "natural canaries are known for tasks of two classes or more that are"
        " clipped whole: use a worst-case canary"
    )
  assert plan.episode is not None  # Checked.
  smaller = populations.without(hierarchy, 0)
  plan_lib.validate(smaller, plan)
  rng = np.random.default_rng(seed)
  leaves = hierarchy.num_leaves
  classes = leaves // hierarchy.sizes[-1]
  means = rng.standard_normal((classes, _SIDE, _SIDE, 1))
  own = np.arange(leaves) // hierarchy.sizes[-1]
  away = np.arange(leaves) < leaves // hierarchy.sizes[0]
  own[away] = rng.integers(classes, size=away.sum())
  images = means[own] + _SPREAD * rng.standard_normal((leaves, _SIDE, _SIDE, 1))
  images = images.astype(np.float32)
  learner = learners.ProtoNet(
      models.mlp(_FEATURES, (), (_SIDE, _SIDE, 1)), way=plan.episode.way
  )
  params = learner.init(jax.random.key(seed))
  present = linear_learner.CanaryDataset(images=images, hierarchy=hierarchy)
  absent = linear_learner.CanaryDataset(images=images[~away], hierarchy=smaller)
  with_record, without = (
      _mean_sum(learner, params, data, plan, mechanism, seed)
      for data in (present, absent)
  )
  moved = with_record - without
  length = float(np.linalg.norm(moved))
  rate = _rate(hierarchy, plan)
  return canaries.Canary(
      level=level,
      direction="both",
      present=present,
      absent=absent,
      learner=learner,
      plan=plan,
      mechanism=mechanism,
      score=laws.shifted_score(
          plan,
          mechanism,
          rate=rate,
          distance=length / (rate * mechanism.clip_norm),
          direction=moved / max(length, 1e-30),
          offset=without,
      ),
      params=params,
  )


def _mean_sum(learner, params, data, plan, mechanism, seed) -> np.ndarray:
  """float64[coordinates], the sum of a step without noise, on average."""
  silent = dataclasses.replace(
      mechanism.with_fixed_norm, noise_multiplier=0.0
  )
  optimizer = runs_lib.observed(optax.sgd(0.0))
  step = private.make_meta_step(
      learner, optimizer, data, plan_lib.Release(data.hierarchy, plan, silent),
      compute=private.Compute(microbatch_size=1),
  )

  def initial(key):
    return private.init(key, learner, optimizer, silent, params=params)

  keys = runs_lib.keys_of(seed + 1, _LOOKS)
  released = runs_lib.releases(step, initial, keys, steps=1)
  count = scores.clip_units(data.hierarchy, plan, silent)
  return count * released.means.astype(np.float64).mean((0, 1))


def _rate(hierarchy, plan) -> float:
  """The probability that a step draws the record at all."""
  rate = plan_lib.inclusion_rate(hierarchy, plan, hierarchy.levels[0])
  tasks = plan.episode.tasks or 1
  return 1 - (1 - rate) ** tasks
