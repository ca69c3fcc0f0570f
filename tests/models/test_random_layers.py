"""Random layers draw from a key of the task, or are refused by a sentence."""

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models import model as model_lib

SHAPE = (6,)


class Linen(nn.Module):
  """A layer that is dropped in training; `unasked` draws in any case."""

  unasked: bool = False

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(8)(x)
    x = nn.Dropout(0.5, deterministic=not (train or self.unasked))(x)
    return nn.Dense(3, name="head")(x)


class WithoutTrain(nn.Module):

  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.Dropout(0.5, deterministic=False)(x))


class NNX(nnx.Module):

  def __init__(self, rngs):
    self.hidden = nnx.Linear(6, 8, rngs=rngs)
    self.first, self.second = (nnx.Dropout(0.5, rngs=rngs) for _ in range(2))
    self.head = nnx.Linear(8, 3, rngs=rngs)

  def __call__(self, x):
    return self.head(self.second(self.first(self.hidden(x))))


def haiku(x, train):
  x = hk.Linear(8)(x)
  if train:
    x = hk.dropout(hk.next_rng_key(), 0.5, x)
  return hk.Linear(3, name="head")(x)


def haiku_without_train(x):
  return hk.Linear(3)(hk.dropout(hk.next_rng_key(), 0.5, x))


MAKE = {
    "linen": lambda **o: models.from_flax(Linen(), SHAPE, **o),
    "nnx": lambda **o: models.from_nnx(NNX, SHAPE, **o),
    "haiku": lambda **o: models.from_haiku(hk.transform(haiku), SHAPE, **o),
}


@pytest.mark.parametrize("library", MAKE)
def test_a_task_draws_from_its_key_and_evaluation_does_not(library):
  model = MAKE[library](random_layers=True, mixes_examples=False)
  params = model.init(jax.random.key(0))
  x = jax.random.normal(jax.random.key(1), (4, *SHAPE))
  a, b = (model.drawing(jax.random.key(i)) for i in (2, 3))
  still = model.apply(params, x)
  drawn = [
      np.asarray(m.apply(params, x))
      for m in (a, b, a.in_pass(0), a.in_pass(1), model.in_pass(0))
  ]
  for i, one in enumerate(drawn):
    assert all((one != other).any() for other in drawn[:i])
  np.testing.assert_array_equal(drawn[-1], still)
  np.testing.assert_array_equal(drawn[0], a.apply(params, x))


def test_in_the_mean_over_keys_it_is_the_network_itself():
  model = MAKE["linen"](random_layers=True)
  params = model.init(jax.random.key(0))
  x = jax.random.normal(jax.random.key(1), (4, *SHAPE))
  keys = jax.random.split(jax.random.key(4), 4000)
  drawn = jax.vmap(lambda key: model.drawing(key).apply(params, x))(keys)
  # All that comes after the layer is linear.
  np.testing.assert_allclose(drawn.mean(0), model.apply(params, x), atol=0.25)


def test_layers_of_one_network_draw_apart():
  model = models.from_nnx(NNX, SHAPE, random_layers=True)
  params = jax.tree.map(jnp.ones_like, model.init(jax.random.key(0)))
  params["head"]["kernel"] = jnp.eye(8, 3)
  x = jnp.ones((2000, *SHAPE))
  drawn = np.asarray(model.drawing(jax.random.key(1)).apply(params, x)) - 1
  # Half of a half is left, and not a half, as if both dropped the same.
  assert 0.22 < (drawn != 0).mean() < 0.28


@pytest.mark.parametrize(
    "make",
    [
        lambda: models.from_flax(WithoutTrain(), SHAPE),
        lambda: models.from_nnx(NNX, SHAPE),
        lambda: models.from_haiku(hk.transform(haiku_without_train), SHAPE),
    ],
)
def test_layers_that_draw_unasked_are_refused_alike(make):
  with pytest.raises(ValueError, match="draw random numbers .*say random_lay"):
    make()


@pytest.mark.parametrize(
    "make, sentence",
    [
        (
            lambda: models.from_flax(WithoutTrain(), SHAPE, random_layers=True),
            "the __call__ of WithoutTrain takes no argument train",
        ),
        (
            lambda: models.from_haiku(
                hk.transform(haiku_without_train), SHAPE, random_layers=True
            ),
            "the Haiku function takes no argument train",
        ),
        (
            lambda: models.from_flax(Linen(True), SHAPE, random_layers=True),
            "Linen draws random numbers with train=False",
        ),
    ],
)
def test_layers_that_cannot_be_switched_are_refused(make, sentence):
  with pytest.raises(ValueError, match=sentence):
    make()


def test_what_mixes_only_in_training_is_found():
  def random(params, x, key):
    return x @ params + jax.random.normal(key) * x.mean()

  model = models.Model(
      lambda key: jax.random.normal(key, (6, 3)),
      lambda params, x: x @ params,
      random=random,
  )
  assert model_lib.mixes(model, SHAPE)
  assert not model_lib.mixes(model._replace(random=None), SHAPE)
