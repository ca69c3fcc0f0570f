"""Modules of either library as pairs of pure functions."""

import re

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp import plan

SHAPE = (4, 4, 1)


class Linear(nn.Module):
  carried: bool = False
  mixing: bool = False

  @nn.compact
  def __call__(self, images):
    x = images.reshape(images.shape[0], -1)
    if self.carried:
      x = nn.BatchNorm(use_running_average=False)(x)
    if self.mixing:
      x = x - x.mean(0)
    # A head of zeros: at initialisation nothing depends on anything.
    return nn.Dense(3, kernel_init=nn.initializers.zeros)(x)


def haiku_linear(images):
  return hk.Linear(3)(hk.Flatten()(images))


def haiku_carried(images):
  return haiku_linear(hk.BatchNorm(True, True, 0.9)(images, is_training=True))


class NNXNetwork(nnx.Module):
  """A convolution and a linear layer, named as Linen names its own."""

  def __init__(self, rngs, carried=False):
    self.Conv_0 = nnx.Conv(1, 2, (3, 3), rngs=rngs)
    self.Dense_0 = nnx.Linear(32, 3, rngs=rngs)
    self.norm = nnx.BatchNorm(3, rngs=rngs) if carried else None

  def __call__(self, images):
    x = nnx.relu(self.Conv_0(images))
    x = self.Dense_0(x.reshape(images.shape[0], -1))
    return x if self.norm is None else self.norm(x)


class LinenNetwork(nn.Module):

  @nn.compact
  def __call__(self, images):
    x = nn.relu(nn.Conv(2, (3, 3))(images))
    return nn.Dense(3)(x.reshape(images.shape[0], -1))


def test_nnx_equals_linen_of_equal_weights_and_carries_nothing():
  model = models.from_nnx(NNXNetwork, SHAPE, mixes_examples=False)
  linen = models.from_flax(LinenNetwork(), SHAPE)
  params = model.init(jax.random.key(0))
  shapes = jax.eval_shape(linen.init, jax.random.key(0))
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)
  assert not np.array_equal(
      params["Conv_0"]["kernel"],
      model.init(jax.random.key(1))["Conv_0"]["kernel"],
  )
  images = jax.random.uniform(jax.random.key(2), (5, *SHAPE))

  def loss(model, params):
    return jnp.sum(model.apply(params, images) ** 2)

  for a, b in zip(
      jax.tree.leaves(jax.value_and_grad(lambda p: loss(model, p))(params)),
      jax.tree.leaves(jax.value_and_grad(lambda p: loss(linen, p))(params)),
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5)
  with pytest.raises(plan.UnsoundPlanError, match="BatchStat.*norm='group'"):
    models.from_nnx(lambda rngs: NNXNetwork(rngs, carried=True), SHAPE)


@pytest.mark.parametrize("mixes", [True, False])
def test_models_of_both_libraries(mixes):
  images = jax.random.uniform(jax.random.key(0), (5, *SHAPE))
  for model in (
      models.from_flax(Linear(), SHAPE, mixes_examples=mixes),
      models.from_haiku(
          hk.transform(haiku_linear), SHAPE, mixes_examples=mixes
      ),
      models.from_haiku(hk.transform_with_state(haiku_linear), SHAPE),
  ):
    params = jax.tree.map(jnp.ones_like, model.init(jax.random.key(1)))
    expected = images.sum((1, 2, 3))[:, None] + 1
    np.testing.assert_allclose(
        model.apply(params, images), jnp.tile(expected, (1, 3)), rtol=1e-6
    )
    assert (model.way, model.input_shape) == (3, SHAPE)


def test_carried_statistics_are_refused_by_name():
  with pytest.raises(plan.UnsoundPlanError, match="batch_stats.*norm='group'"):
    models.from_flax(Linear(carried=True), SHAPE)
  network = hk.transform_with_state(haiku_carried)
  with pytest.raises(plan.UnsoundPlanError, match="batch_norm.*norm='group'"):
    models.from_haiku(network, SHAPE)


def test_a_false_claim_about_mixing_is_refused():
  models.from_flax(Linear(mixing=True), SHAPE)
  with pytest.raises(ValueError, match="mixes_examples=False"):
    models.from_flax(Linear(mixing=True), SHAPE, mixes_examples=False)


def test_wrong_shapes_are_named():
  for shape in ((4, 4, 1, 1), (), (4, 0)):
    with pytest.raises(ValueError, match=re.escape(f"input_shape {shape}")):
      models.from_flax(Linear(), shape)
  scalar = hk.transform(lambda x: haiku_linear(x).sum())
  with pytest.raises(ValueError, match=r"to \(\)"):
    models.from_haiku(scalar, SHAPE)
