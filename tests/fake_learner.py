"""A learner of no network, for tests of what trains and measures learners."""

import jax

from episodic_dp import learners
from episodic_dp import models


class FakeLearner(learners.BaseLearner):
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
