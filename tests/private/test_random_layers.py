"""What random layers draw in a private step, and where they are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.private import keys
from tests import fake_dataset

TASKS, WAY = 6, 2
SGD = optax.sgd(1.0)
DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0)
    .standard_normal((TASKS * WAY * 2, 1, 1, 4))
    .astype(np.float32),
    hierarchy=plan.Hierarchy.regular(
        (TASKS, WAY, 2), levels=("participant", "class", "image")
    ),
)
PLAN = plan.SamplingPlan(
    (plan.FixedSize(TASKS), plan.FixedSize(WAY), plan.FixedSize(2)),
    episode=plan.Episode(way=WAY, shot=1, query=1),
)


def dropped(params, images, key):
  x = images.reshape(images.shape[0], -1)
  return (x * jax.random.bernoulli(key, 0.5, (4,))) @ params["head"]


def network(random=dropped):
  """A linear network, which drops inputs while it is trained."""
  return models.Model(
      lambda key: {"head": jax.random.normal(key, (4, WAY))},
      lambda params, images: images.reshape(-1, 4) @ params["head"],
      mixes_examples=False,
      random=random,
  )


def taken(learner, *, data=DATA, described=PLAN, steps=1, key=1, **mechanism):
  """The releases of some steps, without noise or clipping."""
  chosen = dict(clip_unit="participant", clip_norm=1e6, noise_multiplier=0.0)
  release = plan.Release(
      data.hierarchy, described, plan.Mechanism(**(chosen | mechanism))
  )
  state = private.init(
      private.secret_key(bytes([key] * 8)), learner, SGD, release.mechanism
  )
  step = private.make_meta_step(learner, SGD, data, release)
  params = [jax.tree.map(np.array, state.params)]
  for _ in range(steps):
    state, _ = step(state)
    params.append(jax.tree.map(np.array, state.params))
  return [
      jax.tree.map(lambda a, b: a - b, *pair)
      for pair in zip(params, params[1:])
  ]


class Telling(learners.Supervised):
  """Its update is what its network draws, whatever the data."""

  adapts = True

  def meta_gradient(self, params, episode):
    """What is drawn for the query set, and for two passes over the support."""
    del episode
    found = [
        learner.model.apply(params, jnp.ones((1, 4)))[0, 0]
        for learner in (self, self.in_pass(0), self.in_pass(1))
    ]
    return jnp.zeros(()), {"head": jnp.zeros((4, WAY)).at[:3, 0].set(
        jnp.stack(found)
    )}


def test_draws_follow_from_the_key_the_step_the_task_and_the_pass():
  def random(params, images, key):
    del params
    return jnp.tile(jax.random.uniform(key), (len(images), WAY))

  found = taken(Telling(network(random)), steps=2)
  fold = jax.random.fold_in
  for step, update in enumerate(found):
    drawn = []
    for slot in range(TASKS):
      own = fold(
          keys.step_key(
              private.secret_key(bytes([1] * 8)), keys.LAYERS, step
          ),
          slot,
      )
      passes = [own, fold(own, 1), fold(own, 2)]
      drawn.append([jax.random.uniform(fold(key, 0)) for key in passes])
    assert len(np.unique(drawn)) == 3 * TASKS
    np.testing.assert_allclose(
        update["head"][:3, 0], np.mean(drawn, axis=0), rtol=1e-5
    )


def test_what_mixes_only_while_it_is_trained_is_refused_for_examples():
  def mixing(params, images, key):
    return dropped(params, images, key) + images.mean()

  examples = fake_dataset.FakeDataset(
      images=DATA.images[:TASKS],
      hierarchy=plan.Hierarchy.regular((TASKS,), levels=("image",)),
      labels=np.arange(TASKS) % WAY,
  )
  with pytest.raises(plan.UnsoundPlanError, match="mixes examples"):
    taken(
        learners.Supervised(network(mixing)),
        data=examples,
        described=plan.SamplingPlan((plan.FixedSize(TASKS),)),
        clip_unit="image",
    )


def test_noisy_inner_steps_refuse_random_layers():
  with pytest.raises(plan.UnsoundPlanError, match="random layers .*dropout"):
    taken(
        learners.MAML(network(), inner_steps=1, order="first"),
        clip_unit="image",
        order="first",
        inner_steps=1,
        inner_clip_norm=1.0,
        inner_noise_multiplier=1.0,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )


def test_a_task_drawn_several_times_is_clipped_once():
  # Each draw's gradient is longer than the clip norm, and two cancel out.
  def random(params, images, key):
    del params
    sign = jnp.sign(jax.random.uniform(key) - 0.5)
    return jnp.tile(100 * sign, (len(images), WAY))

  several = network(random)._replace(draws=4)
  (found,) = taken(Telling(several), clip_norm=1.0)
  step = keys.step_key(private.secret_key(bytes([1] * 8)), keys.LAYERS, 0)
  fold = jax.random.fold_in

  def drawn(key):
    return 100 * np.sign(jax.random.uniform(fold(key, 0)) - 0.5)

  updates = []
  for slot in range(TASKS):
    own = [
        [drawn(k), drawn(fold(k, 1)), drawn(fold(k, 2))]
        for k in jax.random.split(fold(step, slot), 4)
    ]
    mean = np.mean(own, axis=0)
    updates.append(mean * min(1, 1 / max(np.linalg.norm(mean), 1e-9)))
  np.testing.assert_allclose(
      found["head"][:3, 0], np.mean(updates, axis=0), rtol=1e-4, atol=1e-6
  )
