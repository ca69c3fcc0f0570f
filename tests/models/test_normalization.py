"""Norms against Linen's."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


@pytest.mark.parametrize("channels", [5, 16])
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
