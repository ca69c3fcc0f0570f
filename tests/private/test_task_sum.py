"""The chunked sum against a loop, and what one task can do to it."""


import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import step as step_lib
from tests import task_sums
from tests.task_sums import flat

pytestmark = pytest.mark.optimized

TASKS = 5
EPISODE = plan.Episode(way=3, shot=1, query=1)
KEY = jax.random.key(3)


def dense_learner():
  def apply(params, images):
    return images.reshape(images.shape[0], -1) @ params

  model = models.Model(lambda key: jax.random.normal(key, (256, 3)), apply)
  return learners.MAML(model, inner_steps=2, inner_rate=0.01)


def draw_tasks(mask=(True,) * TASKS, shape=(16, 16, 1)):
  images = np.random.default_rng(0).integers(0, 256, (40, *shape), np.uint8)
  rows = np.random.default_rng(1).integers(0, 40, (len(mask), 3, 2))
  return step_lib.Tasks(
      jnp.asarray(images), jnp.asarray(rows, jnp.int32), jnp.asarray(mask)
  )


def mechanism(clip_norm=0.5, by="global"):
  return plan.Mechanism(
      clip_unit="task", noise_multiplier=0.0, clip_norm=clip_norm, clip_by=by
  )


def run(learner, params, tasks, chunk=2, clip_norm=0.5, by="global"):
  return jax.jit(
      lambda params, tasks: task_sums.sum_tasks(
          learner,
          mechanism(clip_norm, by),
          params,
          tasks,
          KEY,
          episode=EPISODE,
          microbatch_size=chunk,
          diagnostics=True,
      )
  )(params, tasks)


@pytest.mark.parametrize(
    "chunk", [8, pytest.param(2, marks=pytest.mark.slow)]
)
def test_loop_and_chunks_of_every_size_agree(chunk):
  learner = dense_learner()
  params = learner.init(jax.random.key(0))
  mask = (True, True, True, True, True, False, False)
  tasks = draw_tasks(mask)

  own = keys.step_key(KEY, keys.AUGMENTATION, 0)

  @jax.jit
  def one(slot):
    images = tasks.images[tasks.rows[slot]]
    task = sampling.make_episode(jax.random.fold_in(own, slot), images, EPISODE)
    return jax.value_and_grad(learner.loss)(params, task)

  losses, norms, expected = [], [], 0.0
  for slot in range(TASKS):
    loss, gradient = one(slot)
    gradient = flat(gradient)
    losses.append(float(loss))
    norms.append(np.linalg.norm(gradient))
    expected += gradient * min(1, 0.5 / norms[-1])
  total, facts = run(learner, params, tasks, chunk)
  error = np.linalg.norm(flat(total) - expected)
  assert error < 1e-4 * np.linalg.norm(expected)
  np.testing.assert_allclose(facts["private/loss"], np.mean(losses), 1e-4)
  np.testing.assert_allclose(facts["private/norm"], np.mean(norms), 1e-4)
  assert facts["private/tasks"] == TASKS
  assert facts["private/non_finite"] == 0
  np.testing.assert_allclose(
      facts["private/clipped"], np.mean(np.asarray(norms) > 0.5), rtol=1e-6
  )
