"""The protocol of learners, refused settings, and heads against plain loops.

The heads are ProtoNet, the ridge head, Reptile and fine-tuning.
"""

import dataclasses

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp.auditing import canaries
from episodic_dp.sampling import episodes
from tests.learners import tiny
from tests.refusals import assert_refused

MODEL, WAY = tiny.model(), tiny.WAY
KEY = jax.random.key(0)
EVERY = [
    learners.MAML(MODEL),
    learners.ANIL(MODEL),
    learners.MetaSGD(MODEL),
    learners.Reptile(MODEL),
    learners.ProtoNet(MODEL, way=WAY),
    learners.RidgeHead(MODEL, way=WAY),
    learners.FineTuning(MODEL),
    learners.Supervised(MODEL),
    canaries.LinearLearner(MODEL),
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
  yes.append(canaries.LinearLearner(MODEL, order="first"))
  assert all(learner.example_gradients for learner in yes)
  no = [*EVERY, Own(MODEL, order="first")]
  assert not any(learner.example_gradients for learner in no)


@pytest.mark.parametrize("learner", [EVERY[0], EVERY[4]])
@pytest.mark.few(1)
def test_the_direction_is_the_gradient_of_the_loss(learner):
  params, episode = learner.init(KEY), tiny.episode()
  found = jax.jit(learner.meta_gradient)(params, episode)
  expected = jax.jit(jax.value_and_grad(learner.loss))(params, episode)
  jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    "network, line",
    [
        (nn.Dense(3), "models.from_flax"),
        (nnx.Linear, "models.from_nnx"),
        (nnx.Linear(2, 3, rngs=nnx.Rngs(0)), "models.from_nnx"),
        (hk.transform(hk.Linear), "models.from_haiku"),
        (hk.transform_with_state(hk.Linear), "models.from_haiku"),
        (MODEL.apply, "models.Model"),
    ],
)
@pytest.mark.parametrize("learner", EVERY[:-1], ids=lambda x: type(x).__name__)
def test_a_module_in_place_of_a_model_is_answered_by_what_makes_one(
    learner, network, line
):
  assert_refused(ValueError, line, dataclasses.replace, learner, model=network)


@pytest.mark.parametrize("learner", EVERY[:1] + EVERY[3:6])
@pytest.mark.few(2)
def test_a_loss_of_ones_own_takes_the_place_of_cross_entropy(learner):
  def loss(logits, labels):
    return jnp.mean(logits[jnp.arange(len(labels)), labels])

  own = dataclasses.replace(learner, task_loss=loss)
  params, episode = own.init(KEY), tiny.episode(dtype="f")
  adapted = own.adapt(params, episode.support)
  logits = own.logits(adapted, episode.query.images)
  expected = np.mean([row[k] for row, k in zip(logits, episode.query.labels)])
  np.testing.assert_allclose(own.loss(params, episode), expected, rtol=1e-5)


def _of(kind, **options):
  return lambda: kind(MODEL, **options)


FROZEN = {"body": np.zeros((4, 3), "f"), "head": np.zeros((3, 3), "f")}


@pytest.mark.parametrize(
    "make,text",
    [
        (_of(learners.MAML, inner_steps=0), "inner_steps=0"),
        (_of(learners.MAML, inner_rate=-0.1), "inner_rate=-0.1"),
        (_of(learners.MAML, inner_rate=float("nan")), "inner_rate=nan"),
        (_of(learners.MAML, order="third"), "order='third'"),
        (_of(learners.Reptile, inner_steps=0), "inner_steps=0"),
        (_of(learners.Reptile, inner_rate=-1), "inner_rate=-1"),
        (_of(learners.ProtoNet, way=1), "way=1"),
        (_of(learners.ProtoNet, way=3, scale=0.0), "scale=0.0"),
        (_of(learners.RidgeHead, way=0), "way=0"),
        (_of(learners.RidgeHead, way=3, ridge=0.0), "ridge=0.0"),
        (_of(learners.RidgeHead, way=3, scale=float("nan")), "scale=nan"),
        (
            lambda: learners.FineTuning(MODEL, head="top").adapt(
                FROZEN, tiny.episode().support
            ),
            "head='top'",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(make, text):
  assert_refused(ValueError, text, make)


def test_learned_numbers_begin_as_they_are_told():
  ridge = learners.RidgeHead(MODEL, way=WAY, ridge=0.5, scale=3.0).init(KEY)
  assert np.exp(ridge["log_ridge"]) == pytest.approx(0.5)
  assert np.exp(ridge["log_scale"]) == pytest.approx(3.0)
  rates = learners.MetaSGD(MODEL).init(KEY)["rates"]
  assert all((r == 0.1).all() for r in rates.values())


# Against plain loops ----------------------------------------------------------


def test_classes_of_unequal_size_have_their_own_means():
  learner = learners.ProtoNet(tiny.model(out=5), way=tiny.WAY)
  params = learner.init(KEY)
  support, query = tiny.episode(shot=3, dtype=np.float32)
  support = episodes.Examples(
      support.images, np.asarray([0, 2, 1, 1, 0, 1, 1, 1, 0], np.int32)
  )
  logits = learner.predict(params, support, query.images)
  exact = tiny.in_float64(params)
  expected = tiny.prototype_logits(exact, support, query.images)
  np.testing.assert_allclose(logits, expected, rtol=1e-4)
  # Each query is judged alone: its logits do not see the others.
  alone = learner.predict(params, support, query.images[:1])
  np.testing.assert_allclose(alone, expected[:1], rtol=1e-4)


@pytest.mark.parametrize("shot", [1, 2])
@pytest.mark.parametrize("head", [learners.ProtoNet, learners.RidgeHead])
@pytest.mark.few(1)
def test_images_in_turn_as_support_are_as_many_tasks(head, shot):
  n, model, rng = shot + 2, tiny.model(out=5), np.random.default_rng(0)
  images = rng.random((tiny.WAY, n, *tiny.SHAPE)).astype(np.float32)
  labels = np.repeat(rng.permutation(tiny.WAY)[:, None], n, 1)

  def task(turn):
    order = np.roll(np.arange(n), -turn)
    return episodes.EpisodeBatch(*(
        episodes.Examples(
            images[:, part].reshape(-1, *tiny.SHAPE), labels[:, part].ravel()
        )
        for part in (order[:shot], order[shot:])
    ))

  plain, rotated = (
      head(model, way=tiny.WAY, rotate_support=turns) for turns in (False, True)
  )
  params = plain.init(KEY)
  alone = [plain.loss(params, task(i)) for i in range(n)]
  assert np.ptp(alone) > 1e-3 and rotated.loss(params, task(0)) == (
      pytest.approx(np.mean(alone))
  )


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.few(1)
def test_the_direction_is_the_way_back_from_the_end_of_the_plain_loop(
    steps
):
  learner = learners.Reptile(tiny.model(), inner_steps=steps, inner_rate=0.3)
  episode = tiny.episode()
  params = tiny.in_float64(learner.init(KEY))
  with jax.enable_x64(True):
    loss, direction = jax.jit(learner.meta_gradient)(params, episode)
    at_support = learner.loss(params, episode)
  both = jax.tree.map(lambda *both: np.concatenate(both), *episode)
  end = tiny.descend(params, both, steps, 0.3)
  for k in end:
    expected = (params[k] - end[k]) / 0.3
    np.testing.assert_allclose(direction[k], expected, rtol=1e-9)
  # The loss is that of a test task, which adapts to its support set.
  np.testing.assert_allclose(loss, at_support, rtol=1e-12)


TUNING_RATE = 0.3


@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_adaptation_is_the_plain_loop(body, fresh):
  learner = learners.FineTuning(
      tiny.model(),
      inner_steps=4,
      optimizer=optax.sgd(TUNING_RATE),
      body=body,
      fresh_head=fresh,
  )
  support, _ = tiny.episode()
  params = tiny.in_float64(learner.init(KEY))
  start = dict(params)
  if fresh:
    # Of a network of seven classes; its head is replaced.
    params["head"] = np.ones((3, 7))
    start["head"] = np.zeros((3, 3))
  with jax.enable_x64(True):
    adapted = jax.jit(learner.adapt)(params, support)
  names = ("body", "head") if body else ("head",)
  expected = tiny.descend(start, support, 4, TUNING_RATE, names)
  for k in expected:
    np.testing.assert_allclose(adapted[k], expected[k], rtol=1e-6, atol=1e-9)


def test_many_support_images_are_embedded_as_few_are():
  model = tiny.model()
  learner = learners.ProtoNet(model, way=3)
  params = learner.init(KEY)
  rng = np.random.default_rng(0)
  images = rng.random((512, *tiny.SHAPE), np.float32)
  labels, mask = np.arange(512) % 3, np.arange(512) < 401
  adapted = jax.jit(learner.adapt)(
      params, episodes.Examples(images, labels, mask)
  )
  embedded = np.asarray(model.apply(params, images))
  for label in range(3):
    expected = embedded[mask & (labels == label)].mean(0)
    np.testing.assert_allclose(adapted.head[label], expected, atol=1e-5)
