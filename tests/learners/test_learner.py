"""The protocol of learners, their directions, and settings that are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.auditing import canaries
from episodic_dp.learners import maml
from tests.learners import tiny

MODEL, WAY = tiny.model(), tiny.WAY
EVERY = [
    learners.MAML(MODEL),
    learners.ANIL(MODEL),
    learners.MetaSGD(MODEL),
    learners.Reptile(MODEL),
    learners.ProtoNet(MODEL, way=WAY),
    learners.RidgeHead(MODEL, way=WAY),
    learners.FineTuning(MODEL),
    learners.Supervised(MODEL),
    canaries.LinearLearner(way=WAY),
]


def test_every_learner_follows_the_protocol():
  for learner in EVERY:
    assert isinstance(learner, learners.Learner), learner
    assert learner.at_step(jnp.int32(3)) is learner
    assert learner.adapts == (type(learner) is not learners.Supervised)
  assert not isinstance(MODEL, learners.Learner)


def test_learners_of_example_gradients_say_so():

  class Own(learners.MAML):

    def meta_gradient(self, params, episode):
      return self.loss(params, episode), params

  yes = [kind(MODEL, order="first") for kind in (learners.MAML, learners.ANIL)]
  yes.append(canaries.LinearLearner(3, order="first", inner_steps=2))
  assert all(learner.example_gradients for learner in yes)
  no = [*EVERY, Own(MODEL, order="first")]
  assert not any(learner.example_gradients for learner in no)


@pytest.mark.parametrize("learner", [EVERY[0], EVERY[4]])
def test_the_direction_is_the_gradient_of_the_loss(learner):
  params, episode = learner.init(jax.random.key(0)), tiny.episode()
  found = jax.jit(learner.meta_gradient)(params, episode)
  expected = jax.jit(jax.value_and_grad(learner.loss))(params, episode)
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def _of(kind, **options):
  return lambda: kind(MODEL, **options)


BARE = models.conv4(3, 4, "none", (16, 16, 1))
FROZEN = {"body": np.zeros((4, 3), "f"), "head": np.zeros((3, 3), "f")}


@pytest.mark.parametrize(
    "make,text",
    [
        (_of(learners.MAML, inner_steps=0), "inner_steps=0"),
        (_of(learners.MAML, inner_rate=-0.1), "inner_rate=-0.1"),
        (_of(learners.MAML, inner_rate=float("nan")), "inner_rate=nan"),
        (_of(learners.MAML, order="third"), "order='third'"),
        (_of(learners.MAML, inner_steps=2, loss_weights=(1,)), "expected 2"),
        (
            _of(learners.MAML, inner_steps=2, loss_weights=(0.5, -0.5)),
            "expected 2",
        ),
        (_of(learners.MAML, inner_steps=2, loss_weights=(0, 0)), "expected 2"),
        (
            lambda: learners.MAML(
                MODEL, inner_steps=2, loss_weights=maml.annealed(3, 10)
            ).at_step(jnp.int32(0)),
            "expected 2",
        ),
        (lambda: maml.annealed(5, 0), "outer_steps=0"),
        (
            lambda: jax.eval_shape(
                learners.MAML(BARE, per_step_norm=True).init, jax.random.key(0)
            ),
            "no norm parameters",
        ),
        (_of(learners.MetaSGD, learned_rates=True), "learned_rates=True"),
        (_of(learners.Reptile, inner_steps=0), "inner_steps=0"),
        (_of(learners.Reptile, inner_rate=-1), "inner_rate=-1"),
        (_of(learners.ProtoNet, way=1), "way=1"),
        (_of(learners.ProtoNet, way=3, metric="angle"), "metric='angle'"),
        (_of(learners.ProtoNet, way=3, scale=0.0), "scale=0.0"),
        (_of(learners.RidgeHead, way=0), "way=0"),
        (_of(learners.RidgeHead, way=3, ridge=0.0), "ridge=0.0"),
        (_of(learners.RidgeHead, way=3, scale=float("nan")), "scale=nan"),
        (_of(learners.FineTuning, inner_steps=0), "inner_steps=0"),
        (
            lambda: learners.FineTuning(MODEL, head="top").adapt(
                FROZEN, tiny.episode().support
            ),
            "head 'top'",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(make, text):
  with pytest.raises(ValueError, match=text):
    make()


@pytest.mark.parametrize("learner", [EVERY[4], EVERY[5]])
def test_targets_of_a_regression_are_no_classes(learner):
  params = jax.eval_shape(learner.init, jax.random.key(0))
  support = tiny.Examples(
      jnp.zeros((3, *tiny.SHAPE)), jnp.zeros((3, 1), jnp.float32)
  )
  with pytest.raises(ValueError, match="float32 are no classes"):
    jax.eval_shape(learner.adapt, params, support)
