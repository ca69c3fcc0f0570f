"""A learner of no network, for tests of what trains and measures learners."""

import jax
import jax.numpy as jnp

from episodic_dp import learners
from episodic_dp import models


class FakeLearner(learners.Learner):
  """Adapts to nothing; a test gives `init`, and `loss` or `predict`.

  Its model has no shapes to compare and does not mix examples.
  """

  model = models.Model(
      lambda key: {}, lambda params, images: images, mixes_examples=False
  )

  def adapt(self, params, support, *, inner_gradient=jax.grad):
    """The parameters as they are."""
    del support, inner_gradient
    return params


class Still(FakeLearner):
  """A learner whose gradients are zero: a step releases its noise alone."""

  def __init__(self, size=500):
    self.size = size

  def init(self, key):
    """Return arrays of `size` and twice `size` zeros."""
    del key
    return {"a": jnp.zeros(self.size), "b": jnp.zeros((self.size, 2))}

  def loss(self, params, episode):
    """Return zero."""
    del episode
    return 0.0 * (params["a"].sum() + params["b"].sum())

  def predict(self, params, support, query_images):
    """Return three zeros for each image."""
    del params, support
    return jnp.zeros((query_images.shape[0], 3))
