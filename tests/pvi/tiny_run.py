"""A run of a second: logistic regression of four clients."""

import functools

import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import pvi
from episodic_dp.pvi import federation
from tests.pvi import problems

OPTIMIZER = optax.adagrad(0.3)
LOCAL_STEPS = 2


@functools.cache
def members():
  """Sizes 12, 20, 12 and 12; the last two hold equal examples."""
  inputs, labels = problems.classification(56)
  inputs[44:], labels[44:] = inputs[32:44], labels[32:44]
  rows = np.split(np.arange(56), [12, 32, 44])
  owners = {f"c{i}": r for i, r in enumerate(rows)}
  return pvi.make_clients(inputs, labels, owners)


@functools.cache
def learner():
  """Return a learner of two features."""
  model = pvi.LogisticRegression(2)
  return pvi.VariationalLearner(model, model.prior(1.0))


@functools.cache
def releases(owners):
  """Batches of half of the examples, z = 2."""
  return tuple(
      federation.release(
          owner, batch_share=0.5, least_batch=1, clip_norm=1.0,
          noise_multiplier=2.0,
      )
      for owner in owners
  )


def client_level(rounds, *, share=0.5, noise=2.0, **changes):
  """Describe a run of n rounds that protects whole clients."""
  release = federation.round_release(
      len(members()), share=share, clip_norm=1.0, noise_multiplier=noise
  )
  return spec(
      rounds, unit="client", releases=(release,), deltas=(0.01,), **changes
  )


def spec(rounds, *, epsilon=None, **changes):
  """Describe a run of n rounds."""
  inputs, labels = problems.classification(40, seed=0)
  owners = members()
  fields = dict(
      learner=learner(),
      optimizer=OPTIMIZER,
      clients=owners,
      releases=releases(owners),
      deltas=(0.01,) * len(owners),
      local_steps=LOCAL_STEPS,
      target_epsilon=epsilon,
      damping=0.25,
      rounds=rounds,
      validation=pvi.Examples(
          jnp.asarray(inputs, jnp.float32), jnp.asarray(labels), jnp.ones(40)
      ),
      private_seed=5,
      evaluate_every=2,
      checkpoint_every=3,
      config={"steps": rounds, "target_epsilon": epsilon},
  )
  return pvi.Spec(**(fields | changes))
