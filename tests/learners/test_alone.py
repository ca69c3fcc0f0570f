"""A prediction depends on the model, the support set and its own image."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from episodic_dp.sampling import episodes

WAY, SHOT, QUERY = 3, 2, 4


class _Own(nn.Module):
  """Subtracts the mean of all examples of a call, and tells nobody."""

  @nn.compact
  def __call__(self, x):
    x = x.reshape(len(x), -1)
    x = nn.tanh(nn.Dense(6)(x - x.mean(0)))
    x = x / (0.1 + x.std(0))
    return nn.Dense(WAY, name="head")(x)


def own(outputs, input_shape):
  del outputs  # Metric learners compare the logits.
  return models.from_flax(_Own(), input_shape)


NETWORKS = {
    "conv4": (functools.partial(networks.conv4, width=4), (16, 16, 1)),
    "resnet12": (functools.partial(networks.resnet12, width=2), (16, 16, 2)),
    "conv1d": (functools.partial(networks.conv1d, width=4), (16, 3)),
    "own": (own, (5, 1, 1)),
}
LEARNERS = {
    "protonet": (learners.ProtoNet, {"way": WAY}),
    "ridge": (learners.RidgeHead, {"way": WAY}),
    "maml": (learners.MAML, {"inner_steps": 2}),
    "maml++": (
        learners.MAML,
        {"inner_steps": 2, "per_step_norm": True, "learned_rates": True},
    ),
    "anil": (learners.ANIL, {"inner_steps": 2}),
    "meta_sgd": (learners.MetaSGD, {}),
    "reptile": (learners.Reptile, {"inner_steps": 2}),
    "fine_tuning": (
        learners.FineTuning, {"inner_steps": 2, "optimizer": optax.adam(0.01)}
    ),
}
CLOSED = ("protonet", "ridge")
CASES = [
    (learner, network, public)
    for public in (True, False)
    for learner in LEARNERS
    for network in NETWORKS
    if not public or (learner in CLOSED and network != "own")
]


def make(learner, network, public):
  """A learner with random parameters, and a task of random images."""
  rng = np.random.default_rng(0)
  build, shape = NETWORKS[network]
  model = build(None if learner in CLOSED else WAY, input_shape=shape)
  assert model.mixes_examples
  if public:
    images = rng.random((20, *shape), np.float32)
    model = model._replace(public=images)
  kind, options = LEARNERS[learner]
  made = kind(model, **options)
  params = jax.tree.map(
      lambda p: p + 0.1 * rng.standard_normal(p.shape, np.float32),
      made.init(jax.random.key(1)),
  )
  images = rng.random((WAY, SHOT + QUERY, *shape), np.float32)
  images += rng.random((WAY, 1, *shape), np.float32)
  support = episodes.Examples(
      images[:, :SHOT].reshape(-1, *shape),
      np.repeat(np.arange(WAY, dtype=np.int32), SHOT),
  )
  return made, params, support, images[:, SHOT:]


def few(cases):
  """One of each learner and network is quick, the others are slow."""
  quick = {
      ("protonet", "conv4", True), ("ridge", "own", False),
      ("maml", "conv4", False), ("fine_tuning", "own", False),
  }
  return [
      case if case in quick else pytest.param(*case, marks=pytest.mark.slow)
      for case in cases
  ]


@pytest.mark.parametrize("learner, network, public", few(CASES))
def test_an_image_has_one_prediction_whatever_comes_with_it(
    learner, network, public
):
  made, params, support, images = make(learner, network, public)
  predict = jax.jit(made.predict)

  def probabilities(images):
    return np.asarray(jax.nn.softmax(predict(params, support, images)))

  every = images.reshape(-1, *images.shape[2:])
  among = probabilities(every)
  alone = np.concatenate([probabilities(image[None]) for image in every])
  order = np.random.default_rng(1).permutation(len(every))
  shuffled = probabilities(every[order])[np.argsort(order)]
  of_class = np.concatenate([probabilities(one) for one in images])
  for found in (alone, shuffled, of_class):
    np.testing.assert_allclose(found, among, rtol=0, atol=1e-5)
  # The images differ, and so does what is said of them.
  assert among.std(0).max() > 1e-3
  # Together, as a task is trained on, they change one another.
  adapted = made.adapt(params, support)
  together = jax.nn.softmax(made.logits(adapted, every))
  assert np.abs(together - among).max() > 1e-4


@pytest.mark.parametrize(
    "learner, network, public",
    few([case for case in CASES if case[1] != "own"]),
)
def test_a_support_set_that_is_filled_up_predicts_the_same(
    learner, network, public
):
  made, params, support, images = make(learner, network, public)
  n, query = len(support.labels), images.reshape(-1, *images.shape[2:])

  def filled(a, value):
    return np.concatenate([a, np.full((5, *a.shape[1:]), value, a.dtype)])

  larger = episodes.Examples(
      filled(support.images, 7), filled(support.labels, 0),
      np.arange(n + 5) < n,
  )
  found, wanted = (
      jax.nn.softmax(jax.jit(made.predict)(params, examples, query))
      for examples in (larger, support)
  )
  # Sums of other lengths round otherwise, and gradient steps enlarge that.
  np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5)


@pytest.mark.parametrize("own", [0.0, 0.1, 1.0])
def test_given_moments_are_mixed_with_those_of_an_example(own):
  """The mixture's moments are those of so many numbers of each kind."""
  rng = np.random.default_rng(0)
  given, x = rng.normal(2, 3, 900), rng.normal(-1, 1, (2, 10, 10, 1))
  found = networks.norm_by_moments(
      jnp.asarray(x, jnp.float32), jnp.ones(1), jnp.zeros(1),
      jnp.asarray([given.mean()]), jnp.asarray([given.var()]), own,
  )
  for one, normal in zip(x, found):
    parts = [np.repeat(one.ravel(), round(900 * own))] * (own > 0)
    parts += [np.repeat(given, round(100 * (1 - own)))] * (own < 1)
    both = np.concatenate(parts)
    expected = (one - both.mean()) / np.sqrt(both.var() + networks.EPSILON)
    np.testing.assert_allclose(normal, expected, atol=1e-4)


def test_a_network_with_public_moments_mixes_no_examples():
  model = networks.conv4(None, 4, "batch", (16, 16, 1))
  images = np.random.default_rng(0).random((9, 16, 16, 1), np.float32)
  params = model.init(jax.random.key(0))
  given = model._replace(public=images).public_moments(params)
  fixed = model.normalised(given)
  assert not fixed.mixes_examples
  assert not model_lib.mixes(fixed, (16, 16, 1))
  # With no share of their own, the images get what their own batch has.
  np.testing.assert_allclose(
      model.by_moments(params, images, given, 0.0),
      model.apply(params, images), atol=1e-4,
  )
