"""What one task can do to the sum of a step, whichever learner is trained."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.private import step as step_lib
from tests import task_sums

WAY, SHOT, QUERY, TASKS, CLIP_NORM = 3, 1, 1, 4, 1e-3
EPISODE = plan.Episode(way=WAY, shot=SHOT, query=QUERY)
MECHANISM = plan.Mechanism(
    clip_unit="participant", noise_multiplier=1.0, clip_norm=CLIP_NORM
)


def apply(params, images):
  """One layer that mixes the examples of a task, which is allowed."""
  outputs = images.reshape(len(images), -1) @ params["head"]
  return outputs - 0.5 * outputs.mean(0)


MODEL = models.Model(
    lambda key: {"head": jax.random.normal(key, (4, WAY))}, apply
)
TRAINED = sorted(
    name for name, (*_, releases) in learners.LEARNERS.items() if releases
)


def summed(name):
  """(images of all tasks, mask) -> the un-noised sum, in float64."""
  kind = learners.LEARNERS[name][0]
  fields = {field.name for field in dataclasses.fields(kind)}
  options = {"way": WAY, "inner_steps": 1}
  learner = kind(MODEL, **{k: v for k, v in options.items() if k in fields})
  params = learner.init(jax.random.key(0))
  rows = jnp.arange(TASKS * WAY * (SHOT + QUERY)).reshape(TASKS, WAY, -1)

  @jax.jit
  def run(images, mask):
    tasks = step_lib.Tasks(images.reshape(-1, 2, 2, 1), rows, mask)
    total, _ = task_sums.sum_tasks(
        learner, MECHANISM, params, tasks, jax.random.key(1), episode=EPISODE
    )
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(total)])

  return lambda images, mask: np.asarray(run(images, mask), np.float64)


@pytest.mark.parametrize("name", TRAINED)
def test_one_task_moves_the_sum_by_no_more_than_the_sensitivity(name):
  run, rng = summed(name), np.random.default_rng(0)
  shape = (WAY, SHOT + QUERY, 4)
  one, two = (
      private.sensitivity(CLIP_NORM, n)
      for n in ("add-or-remove", "replace-one")
  )
  everyone, removed, replaced = np.ones(TASKS, bool), [], []
  for _ in range(20):
    scale = rng.choice([1e-3, 1.0, 30.0, 1e12], TASKS)
    images = rng.standard_normal((TASKS, *shape)) * scale[:, None, None, None]
    before, i = run(np.float32(images), everyone), rng.integers(TASKS)
    mask = np.arange(TASKS) != i
    removed.append(np.linalg.norm(run(np.float32(images), mask) - before))
    # By another task, its own opposite or one that is not finite.
    for other in (rng.standard_normal(shape), -images[i], np.nan):
      images[i] = other
      after = run(np.float32(images), everyone)
      replaced.append(np.linalg.norm(after - before))
  assert 0.99 * one < max(removed) <= one * (1 + 1e-5)
  assert one < max(replaced) <= two * (1 + 1e-5)
