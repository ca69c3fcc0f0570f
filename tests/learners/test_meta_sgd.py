"""Meta-SGD against a plain loop with a rate for every parameter."""

import jax
import numpy as np
import pytest

from episodic_dp import learners


def plain_loss(tiny, params, episode, steps):
  weights = params["model"]
  for _ in range(steps):
    gradient = tiny.slope(weights, episode.support)
    weights = {
        k: weights[k] - params["rates"][k] * gradient[k] for k in weights
    }
  logits = tiny.outputs(weights, episode.query.images)
  return tiny.cross_entropy(logits, episode.query.labels)


def test_loss_and_gradient_are_those_of_the_plain_loop(tiny):
  """With different rates everywhere, and with respect to them too."""
  learner = learners.MetaSGD(tiny.model(), inner_steps=2)
  params = learner.init(jax.random.key(0))
  rng = np.random.default_rng(0)
  params["rates"] = jax.tree.map(
      lambda r: rng.uniform(-0.1, 0.5, r.shape), params["rates"]
  )
  episode = tiny.episode()
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: plain_loss(tiny, p, episode, 2),
      params,
  )


def test_it_begins_as_one_step_of_maml(tiny):
  episode = tiny.episode(dtype=np.float32)
  learner = learners.MetaSGD(tiny.model(), inner_rate=0.3)
  maml = learners.MAML(tiny.model(), inner_rate=0.3, inner_steps=1)
  key = jax.random.key(0)
  np.testing.assert_allclose(
      learner.loss(learner.init(key), episode),
      maml.loss(maml.init(key), episode),
      rtol=1e-6,
  )


def test_rates_per_array_contradict_it(tiny):
  with pytest.raises(ValueError, match="learned_rates=True"):
    learners.MetaSGD(tiny.model(), learned_rates=True)
