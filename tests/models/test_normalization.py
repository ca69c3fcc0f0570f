"""Norms against Linen's, and the fused first layer against its parts."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import convolution
from episodic_dp.models import normalization


def draw(channels=6):
  keys = jax.random.split(jax.random.key(0), 3)
  return (
      2 + jax.random.normal(keys[0], (3, 4, 5, channels)),
      jax.random.normal(keys[1], (channels,)),
      jax.random.normal(keys[2], (channels,)),
  )


def test_batch_norm_equals_linen():
  x, scale, bias = draw()
  stock = nn.BatchNorm(use_running_average=False)
  zeros = {"mean": jnp.zeros(6), "var": jnp.ones(6)}
  variables = {
      "params": {"scale": scale, "bias": bias},
      "batch_stats": zeros,
  }
  expected, _ = stock.apply(variables, x, mutable=["batch_stats"])
  actual = normalization.batch_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("channels", [6, 8, 5, 16])
def test_group_norm_equals_linen(channels):
  x, scale, bias = draw(channels)
  groups = normalization.num_groups(channels)
  stock = nn.GroupNorm(num_groups=groups, epsilon=normalization.EPSILON)
  expected = stock.apply({"params": {"scale": scale, "bias": bias}}, x)
  actual = normalization.group_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("channels,groups", [(64, 8), (6, 2), (5, 1), (4, 4)])
def test_groups_divide_the_width(channels, groups):
  assert normalization.num_groups(channels) == groups


# One input channel and 12 features take the short way, the others the long.
@pytest.mark.parametrize("channels,features", [(1, 12), (3, 12)])
def test_fused_layer_equals_its_parts(channels, features):
  keys = jax.random.split(jax.random.key(1), 4)
  x = jax.random.uniform(keys[0], (3, 6, 5, channels))
  kernel = jax.random.normal(keys[1], (3, 3, channels, features))
  scale, bias = jax.random.normal(keys[2], (2, features))
  weights = jax.random.normal(keys[3], (3, 6, 5, features))

  def parts(x, kernel, scale, bias):
    return normalization.batch_norm(
        convolution.convolve(x, kernel), scale, bias
    )

  def derivatives(layer):
    def loss(*arguments):
      return jnp.sum(weights * layer(*arguments) ** 2)

    gradient = jax.grad(loss, (0, 1, 2, 3))

    def slope(*arguments):
      return sum(jnp.sum(jnp.sin(g)) for g in gradient(*arguments))

    arguments = (x, kernel, scale, bias)
    return (
        layer(*arguments),
        gradient(*arguments),
        jax.grad(slope, (0, 1, 2, 3))(*arguments),
    )

  actual = jax.jit(lambda: derivatives(normalization.convolve_batch_norm))()
  expected = jax.jit(lambda: derivatives(parts))()
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=5e-5 * (1 + np.abs(b).max()))


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_fused_layer_is_finite_on_constant_images(size):
  kernel = size * jax.random.normal(jax.random.key(0), (3, 3, 1, 12))
  def loss(k):
    return jnp.sum(
        normalization.convolve_batch_norm(
            jnp.ones((2, 8, 8, 1)), k, jnp.ones(12), jnp.zeros(12)
        )
        ** 3
    )
  value, gradient = jax.jit(jax.value_and_grad(loss))(kernel)
  assert np.isfinite(value) and np.isfinite(gradient).all()
