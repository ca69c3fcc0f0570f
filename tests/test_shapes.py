"""Shapes and dtypes of what sampling, private steps and learners return."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from tests import fake_dataset
from tests import plans
from tests.learners import bank

TREE = plans.tree("person class image", 6, 3, 4)
DRAWN = plans.sampling(0.5, 3, 4, way=3, shot=1, query=3)
EPISODE, RELEASE = DRAWN.episode, plans.release(TREE, DRAWN, "person")
KEY, BYTES = jax.random.key(0), bytes(16)
MODEL = models.mlp(3, (), (2, 2, 1))
LEARNER, SGD = learners.MAML(MODEL, inner_steps=1), optax.sgd(0.1)
# Half precision is clipped in float32.
GRADIENT = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": jnp.ones(5)}
DATA = fake_dataset.FakeDataset(
    images=np.zeros((72, 2, 2, 1), np.uint8), hierarchy=TREE
)
TASKS = "int32[6,3,4] bool[6]"
LABELLED = "float32[3,2,2,1] int32[3] float32[9,2,2,1] int32[9]"


def told(tree):
  """The types and shapes of arrays, in the order of their tree."""
  leaves = jax.tree.leaves(tree)
  return " ".join(f"{a.dtype}{[*a.shape]}".replace(" ", "") for a in leaves)


def step():
  state = private.init(KEY, LEARNER, SGD, RELEASE.mechanism)
  return private.make_meta_step(LEARNER, SGD, DATA, RELEASE)(state)


def params():
  return private.init(KEY, LEARNER, SGD, RELEASE.mechanism).params


@pytest.mark.parametrize(
    "make, wanted",
    [
        (lambda: sampling.sample(KEY, TREE, DRAWN, 3),
         "int32[6,3,4] bool[6,3,4]"),
        (lambda: sampling.task_indices(
            *sampling.sample(KEY, TREE, DRAWN, 3), TREE, DRAWN), TASKS),
        (lambda: sampling.make_episode(
            KEY, np.zeros((3, 4, 2, 2, 1), np.uint8), EPISODE), LABELLED),
        (lambda: sampling.make_episode(
            KEY, np.zeros((3, 4, 5)), EPISODE),
         "float32[3,5] int32[3] float32[9,5] int32[9]"),
        (lambda: sampling.make_episode(
            KEY, np.zeros((1, 4, 1, 1, 3), "f"), plan.Episode(1, 1, 3),
            targets=1),
         "float32[1,1,1,2] float32[1,1] float32[3,1,1,2] float32[3,1]"),
        (lambda: sampling.synthetic_participants(
            0, participants=4, classes=9, examples_per_class=5, way=3,
            per_class=2)[1](jnp.zeros((7, 2), jnp.int32)), "int32[7,2]"),
        (lambda: sampling.numpy_sampler.sample(BYTES, RELEASE, 3),
         "int64[6,3,4] bool[6,3,4]"),
        (lambda: sampling.numpy_sampler.noise(BYTES, 3, "a", (2, 3)),
         "float32[2,3]"),
        (lambda: private.clip(GRADIENT, 1.0),
         "float32[2,3] float32[5] float32[] bool[] bool[] float32[1] bool[1]"),
        (lambda: private.clip(GRADIENT, jnp.ones(2), "layer"),
         "float32[2,3] float32[5] float32[] bool[] bool[] float32[2] bool[2]"),
        (lambda: private.add_noise(KEY, jax.tree.map(jnp.float32, GRADIENT), 2),
         "float32[2,3] float32[5]"),
        (lambda: private.secret_key(bytes(8)), "key<fry>[]"),
        (params, "float32[3] float32[4,3]"),
        (lambda: step()[0].params, "float32[3] float32[4,3]"),
        (lambda: step()[0].step, "int32[]"),
        (lambda: step()[1]["update_norm"], "float32[]"),
    ],
)
def test_public_functions_return_what_is_announced(make, wanted):
  assert told(make()) == wanted


@pytest.mark.parametrize("name", [*bank.LEARNERS, bank.FINE_TUNING])
def test_every_learner_has_the_types_of_the_protocol(name):
  learner = bank.make(name, "mlp")
  episode = sampling.make_episode(
      KEY, np.zeros((3, 4, 2, 2, 1), np.uint8), EPISODE
  )
  held = jax.eval_shape(learner.init, KEY)
  assert {str(leaf.dtype) for leaf in jax.tree.leaves(held)} == {"float32"}
  loss, direction = jax.eval_shape(learner.meta_gradient, held, episode)
  assert told(loss) == "float32[]" and told(direction) == told(held)
  images = jnp.zeros((7, 2, 2, 1))
  predicted = jax.eval_shape(learner.predict, held, episode.support, images)
  adapted = jax.eval_shape(learner.adapt, held, episode.support)
  logits = jax.eval_shape(learner.logits, adapted, images)
  assert told(predicted) == told(logits) == "float32[7,3]"
