"""Modules of each library as pure functions: mixing, random layers, images."""

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from tests.refusals import assert_refused

SHAPE = (4, 4, 1)


class Linen(nn.Module):
  """A layer that is dropped while trained; some variants are refused."""

  carried: bool = False
  mixing: bool = False

  @nn.compact
  def __call__(self, images, train=False):
    x = images.reshape(images.shape[0], -1)
    if self.carried:
      x = nn.BatchNorm(use_running_average=False)(x)
    if self.mixing:
      x = x - x.mean(0, keepdims=True)
    x = nn.Dense(8, name="hidden")(x)
    x = nn.Dropout(0.5, deterministic=not train)(x)
    # A head of zeros: at initialisation nothing depends on anything.
    return nn.Dense(3, kernel_init=nn.initializers.zeros, name="head")(x)


class NNX(nnx.Module):
  """The same layers as `Linen`, by the same names."""

  def __init__(self, rngs, layer=None):
    self.hidden = nnx.Linear(16, 8, rngs=rngs)
    self.head = nnx.Linear(8, 3, rngs=rngs)
    self.more = layer(rngs) if layer else None

  def __call__(self, images):
    x = self.hidden(images.reshape(images.shape[0], -1))
    return self.head(self.more(x) if self.more else x)


def nnx_carried(rngs):
  return NNX(rngs, lambda rngs: nnx.BatchNorm(8, rngs=rngs))


def nnx_dropped(rngs):
  return NNX(rngs, lambda rngs: nnx.Dropout(0.5, rngs=rngs))


def haiku(images):
  x = hk.Linear(8)(hk.Flatten()(images))
  return hk.Linear(3)(x)


def haiku_dropped(x):
  return haiku(hk.dropout(hk.next_rng_key(), 0.5, x))


def haiku_carried(images):
  return haiku(hk.BatchNorm(True, True, 0.9)(images, is_training=True))


def linen(module=None, **options):
  return models.from_flax(module or Linen(), SHAPE, **options)


def from_haiku(function=haiku, transform=hk.transform, **options):
  return models.from_haiku(transform(function), SHAPE, **options)


def from_nnx(build=NNX, **options):
  return models.from_nnx(build, SHAPE, **options)


MAKE = {"linen": linen, "nnx": from_nnx, "haiku": from_haiku}


@pytest.mark.parametrize("library", MAKE)
def test_equal_weights_give_equal_outputs_and_gradients(library):
  model = MAKE[library](mixes_examples=False)
  assert (model.way, model.input_shape) == (3, SHAPE)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  params = jax.tree.map(lambda s: rng.standard_normal(s.shape, "f"), shapes)
  by_shape = {a.shape: a for a in jax.tree.leaves(params)}
  images = rng.random((5, *SHAPE), np.float32)
  hidden = images.reshape(5, -1) @ by_shape[16, 8] + by_shape[8,]
  expected = hidden @ by_shape[8, 3] + by_shape[3,]
  np.testing.assert_allclose(model.apply(params, images), expected, rtol=1e-4)


def test_a_task_draws_from_its_key_and_evaluation_does_not():
  def random(params, x, key):
    return Linen().apply(
        {"params": params}, x, train=True, rngs={"dropout": key}
    )

  model = linen()._replace(random=random)
  params = jax.tree.map(lambda p: p + 0.5, model.init(jax.random.key(0)))
  x = jax.random.normal(jax.random.key(1), (4, *SHAPE))
  a, b = (model.with_key(jax.random.key(i)) for i in (2, 3))
  drawn = [
      np.asarray(m.apply(params, x))
      for m in (a, b, a.in_pass(0), a.in_pass(1), model.in_pass(0))
  ]
  for i, one in enumerate(drawn):
    assert all((one != other).any() for other in drawn[:i])
  np.testing.assert_array_equal(drawn[-1], model.apply(params, x))
  np.testing.assert_array_equal(drawn[0], a.apply(params, x))


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda: linen(Linen(carried=True)), "batch_stats"),
        (lambda: from_nnx(nnx_carried), "BatchStat"),
        (lambda: from_nnx(nnx_dropped), "RngKey"),
        (
            lambda: from_haiku(haiku_carried, hk.transform_with_state),
            "transform_with_state",
        ),
    ],
)
def test_carried_statistics_are_refused_by_name(make, text):
  assert_refused(plan.UnsoundPlanError, f"{text}.*group_norm", make)


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda: from_haiku(haiku_dropped), "(?i)prng|rng"),
        (
            lambda: linen(Linen(mixing=True), mixes_examples=False),
            "mixes_examples=False",
        ),
        (lambda: from_haiku(lambda x: haiku(x).sum()), r"to \(\)"),
    ],
)
def test_modules_that_cannot_be_trained_are_refused(make, text):
  assert_refused(ValueError, text, make)


# Mixing -----------------------------------------------------------------------


def _norm(layer):
  ones, zeros = jnp.ones(4), jnp.zeros(4)
  return lambda x: layer(x, ones, zeros)


def _previous(x):
  """Each example reads the one before it."""
  return x + jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


def _attention(x):
  flat = x.reshape(x.shape[0], -1)
  return (jax.nn.softmax(flat @ flat.T) @ flat).reshape(x.shape)


ALONE = {
    "nothing": lambda x: x,
    "group norm": _norm(networks.group_norm),
    "position": lambda x: x + jnp.arange(1.0 * len(x))[:, None, None, None],
}
MIXED = {
    "batch norm": _norm(networks.batch_norm),
    "previous": _previous,
    "next": lambda x: _previous(x[::-1])[::-1],
    "attention": _attention,
    "mean": lambda x: x - x.mean(0, keepdims=True),
    # Less than a rounding of what it is added to.
    "faint": lambda x: x + 1e-12 * x.mean(0, keepdims=True),
    # Only where an image is far brighter than any other.
    "rare": lambda x: x + jnp.float32(x.max() > 10),
    "loop": lambda x: jax.lax.map(lambda row: row - x.sum(0), x),
    # Never finite: it proves nothing.
    "nan": lambda x: x * jnp.nan,
}


@pytest.mark.parametrize("name", [*ALONE, *MIXED])
def test_mixing_is_found_by_trying(name):
  layer = (ALONE | MIXED)[name]
  head = jax.ShapeDtypeStruct((16, 3), jnp.float32)
  apply = lambda head, x: layer(x).reshape(x.shape[0], -1) @ head  # noqa: E731
  assert model_lib.mixes_examples(apply, head, (2, 2, 4)) == (name in MIXED)


# Augmentation -----------------------------------------------------------------

def test_a_flip_mirrors_half_of_the_images():
  images = np.arange(64 * 30, dtype=np.float32).reshape(64, 5, 6, 1)
  drawn = np.asarray(model_lib.augmented(
      models.Model(lambda key: (), lambda params, x: x, False, (5, 6, 1)),
      options.Augmentation(flip=True),
  ).with_key(jax.random.key(0)).apply((), images))
  same, mirrored = (
      np.all(drawn == x, (1, 2, 3)) for x in (images, images[:, :, ::-1])
  )
  assert np.logical_xor(mirrored, same).all() and 16 < sum(mirrored) < 48


def test_only_a_network_that_draws_is_augmented():
  plain = models.Model(
      init=lambda key: jnp.zeros(()),
      apply=lambda params, images: images.sum((2, 3)) + params,
      mixes_examples=False,
      input_shape=SHAPE,
  )
  flip = options.Augmentation(flip=True)
  model = model_lib.augmented(plain, flip)
  images = jax.random.uniform(jax.random.key(1), (3, *SHAPE))
  still = plain.apply(0.0, images)
  np.testing.assert_array_equal(model.apply(0.0, images), still)
  drawn = [
      model.with_key(jax.random.key(i)).apply(0.0, images) for i in range(8)
  ]
  assert any((d != still).any() for d in drawn)
  again = model.with_key(jax.random.key(0))
  np.testing.assert_array_equal(drawn[0], again.apply(0.0, images))
  # Support and query of one task are drawn apart.
  assert (again.in_pass(0).apply(0.0, images) != drawn[0]).any()
  assert model_lib.augmented(plain, options.Augmentation()) is plain
  with pytest.raises(ValueError, match="leave it out"):
    model_lib.augmented(plain._replace(input_shape=(7,)), flip)
