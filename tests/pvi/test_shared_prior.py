"""A prior learned from few-shot tasks: exact statistics, sound, calibrated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.pvi import shared_prior
from episodic_dp.sampling import episodes
from tests.pvi import problems

LEARNER = shared_prior.SharedPrior(8, noise=0.2)


def _episode(seed=0, points=6):
  rng = np.random.default_rng(seed)
  x = rng.uniform(-5, 5, points).astype(np.float32)
  y = np.sin(x + rng.uniform(0, 3)).astype(np.float32)
  examples = episodes.Examples(
      jnp.asarray(x.reshape(-1, 1, 1, 1)), jnp.asarray(y[:, None])
  )
  half = points // 2
  return sampling.EpisodeBatch(
      jax.tree.map(lambda a: a[:half], examples),
      jax.tree.map(lambda a: a[half:], examples),
  )


def test_the_prior_comes_back_from_its_statistics():
  params = LEARNER.init(jax.random.key(0))
  q = LEARNER.prior(params)
  np.testing.assert_allclose(q.mean, np.zeros(8), atol=1e-6)
  np.testing.assert_allclose(q.covariance, 4 * np.eye(8), atol=1e-4)
  rng = np.random.default_rng(1)
  root = rng.normal(size=(8, 8)).astype(np.float32)
  mean, covariance = rng.normal(size=8).astype(np.float32), root @ root.T + 1
  found = LEARNER.prior(shared_prior.statistics(mean, covariance))
  np.testing.assert_allclose(found.mean, mean, rtol=1e-3, atol=1e-3)
  np.testing.assert_allclose(found.covariance, covariance, rtol=0.02, atol=0.05)
  # Whatever noise makes of them, a prior is proper.
  noisy = jax.tree.map(
      lambda p: p + 30 * rng.normal(size=p.shape).astype(np.float32), params
  )
  assert problems.least(LEARNER.prior(noisy).precision) > 0


def test_what_is_sent_is_the_change_of_the_participants_statistics():
  """Zero where the posterior is the prior; else towards the posterior."""
  params, episode = LEARNER.init(jax.random.key(0)), _episode()
  _, change = LEARNER.meta_gradient(params, episode)
  points = jax.tree.map(
      lambda a, b: jnp.concatenate([a, b]), episode.support, episode.query
  )
  features = np.asarray(LEARNER.features(points.images), np.float64)
  precision = np.eye(8) / 4 + features.T @ features / 0.04
  mean = np.linalg.solve(
      precision, features.T @ np.asarray(points.labels[:, 0]) / 0.04
  )
  np.testing.assert_allclose(change["first"], -mean, rtol=2e-2, atol=2e-2)
  second = np.linalg.inv(precision) + np.outer(mean, mean)
  whole = np.linalg.norm(4 * np.eye(8) - second)
  np.testing.assert_allclose(
      np.linalg.norm(change["second"]), whole, rtol=0.03
  )
  none = jax.tree.map(lambda a: a[:0], episode)
  _, nothing = LEARNER.meta_gradient(params, none)
  assert max(np.abs(a).max() for a in jax.tree.leaves(nothing)) < 1e-3


@pytest.mark.slow  # Compiles a private step.
def test_it_is_learned_by_the_private_step():
  """Without noise and clip, steps raise the evidence of new participants."""
  splits = data.load(
      "sinusoid", participants=300, validation_participants=20,
      test_participants=20, points=12,
  )
  episode = plan.Episode(way=1, shot=6, query=6, form="unit")
  release = plan.Release(
      splits.train.hierarchy,
      plan.SamplingPlan((plan.Poisson(0.3), plan.FixedSize(12)), episode),
      plan.Mechanism(
          clip_unit="participant", clip_norm=1e3, noise_multiplier=0.0
      ),
  )
  optimizer = optax.sgd(0.5)
  step = private.make_meta_step(
      LEARNER, optimizer, splits.train, release,
      compute=private.Compute(mesh=None, microbatch_size=64),
  )
  state = private.init(
      private.secret_key(bytes(8)), LEARNER, optimizer, release.mechanism,
      params=LEARNER.init(jax.random.key(0)),
  )
  points = splits.test.images.reshape(20, 12, 1, 1, 2)

  def loss(params):
    def one(points):
      task = sampling.make_episode(
          jax.random.key(0), points[None], episode, targets=1
      )
      return LEARNER.loss(params, task)

    return float(jax.vmap(one)(jnp.asarray(points)).mean())

  before = loss(state.params)
  for _ in range(6):
    state, _ = step(state)
  assert loss(state.params) < before - 0.3
