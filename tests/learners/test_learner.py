"""What every learner offers, and what `BaseLearner` makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp.auditing import canaries


def every_learner(tiny):
  model = tiny.model()
  return [
      learners.MAML(model),
      learners.ANIL(model),
      learners.MetaSGD(model),
      learners.Reptile(model),
      learners.ProtoNet(model, way=tiny.WAY),
      learners.RidgeHead(model, way=tiny.WAY),
      learners.FineTuning(model),
      learners.Supervised(model),
      canaries.LinearLearner(way=tiny.WAY),
  ]


def test_every_learner_follows_the_protocol(tiny):
  for learner in every_learner(tiny):
    assert isinstance(learner, learners.Learner), learner
    assert learner.at_step(jnp.int32(3)) is learner
    assert learner.adapts == (type(learner) is not learners.Supervised)
  assert not isinstance(tiny.model(), learners.Learner)


def test_what_differentiates_examples_says_so(tiny):
  model = tiny.model()
  yes = [kind(model, order="first") for kind in (learners.MAML, learners.ANIL)]
  yes.append(canaries.LinearLearner(3, order="first", inner_steps=2))

  class Own(learners.MAML):

    def meta_gradient(self, params, episode):
      return self.loss(params, episode), params

  assert all(learner.example_gradients for learner in yes)
  no = [*every_learner(tiny), Own(model, order="first")]
  assert not any(learner.example_gradients for learner in no)


@pytest.mark.parametrize("kind", [learners.MAML, learners.ProtoNet])
def test_the_direction_is_the_gradient_of_the_loss(tiny, kind):
  options = {"way": tiny.WAY} if kind is learners.ProtoNet else {}
  learner = kind(tiny.model(), **options)
  params, episode = learner.init(jax.random.key(0)), tiny.episode()
  loss, direction = jax.jit(learner.meta_gradient)(params, episode)
  expected = jax.jit(jax.value_and_grad(learner.loss))(params, episode)
  np.testing.assert_array_equal(loss, expected[0])
  for k in params:
    np.testing.assert_array_equal(direction[k], expected[1][k])
