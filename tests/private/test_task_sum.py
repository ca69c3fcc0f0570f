"""The chunked sum against a loop, and what one task can do to it."""


import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import step as step_lib
from tests import fake_learner
from tests import task_sums

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


def flat(tree):
  return np.concatenate(
      [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
  )


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


class Gradients(fake_learner.FakeLearner):
  """A learner whose gradient of a task is the first image's pixels."""

  def init(self, key):
    del key
    return {"a": jnp.zeros((2, 4)), "b": jnp.zeros((8,))}

  def loss(self, params, episode):
    pixels = episode.support.images.reshape(3, -1).sum(0)
    return jnp.vdot(params["a"], pixels[:8]) + jnp.vdot(
        params["b"], pixels[8:]
    )

  def predict(self, params, support, query_images):
    return jnp.zeros((query_images.shape[0], 3))


HARD = [0.0, 1.0, -1.0, 1e-20, 1e20, -3e38, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("by", ["global", "layer"])
def test_one_task_moves_the_sum_by_no_more_than_its_sensitivity(by):
  learner, clip_norm = Gradients(), 2.0
  rng = np.random.default_rng(0)
  rows = np.arange(2 * 3 * len(HARD)).reshape(-1, 3, 2).astype(np.int32)
  images = rng.standard_normal((rows.size, 4, 4, 1)).astype(np.float32)
  with np.errstate(over="ignore"):
    images *= np.repeat(np.asarray(HARD, np.float32), 6)[:, None, None, None]
  compiled = jax.jit(
      lambda images, mask: task_sums.sum_tasks(
          learner,
          mechanism(clip_norm, by),
          learner.init(None),
          step_lib.Tasks(images, jnp.asarray(rows), mask),
          KEY,
          episode=EPISODE,
          microbatch_size=4,
      )[0]
  )
  total = lambda images, mask: flat(compiled(images, mask))  # noqa: E731
  full = np.ones(len(HARD), bool)
  base = total(images, full)
  assert np.isfinite(base).all()
  largest = 0.0
  for i in range(len(HARD)):
    mask = full.copy()
    mask[i] = False
    removed = np.linalg.norm(total(images, mask) - base)
    assert removed <= private.sensitivity(clip_norm) * (1 + 1e-5)
    changed = images.copy()
    changed[6 * i : 6 * i + 6] = -images[6:12]
    replaced = np.linalg.norm(total(changed, full) - base)
    limit = private.sensitivity(clip_norm, "replace-one")
    assert replaced <= limit * (1 + 1e-5)
    largest = max(largest, removed, replaced / 2)
  assert largest > clip_norm * 0.999  # The bound is reached, not loose.


def test_empty_slots_hold_anything():
  """Slots beyond the mask may point at images that give NaN."""
  learner = Gradients()
  images = np.ones((6, 4, 4, 1), np.float32)
  images[3:] = np.nan
  rows = np.asarray([[[0, 1]] * 3, [[4, 5]] * 3, [[4, 5]] * 3], np.int32)
  tasks = step_lib.Tasks(
      jnp.asarray(images), jnp.asarray(rows), jnp.asarray([True, False, False])
  )
  total, facts = run(learner, learner.init(None), tasks, clip_norm=1.0)
  np.testing.assert_allclose(np.linalg.norm(flat(total)), 1.0, rtol=1e-4)
  assert facts["private/non_finite"] == 0 and facts["private/tasks"] == 1
