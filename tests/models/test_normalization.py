"""Norms against Linen's."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import normalization


def draw(channels=6, space=(4, 5)):
  keys = jax.random.split(jax.random.key(0), 3)
  return (
      2 + jax.random.normal(keys[0], (3, *space, channels)),
      jax.random.normal(keys[1], (channels,)),
      jax.random.normal(keys[2], (channels,)),
  )


@pytest.mark.parametrize("space", [(), (7,), (4, 5)])
def test_batch_norm_equals_linen(space):
  x, scale, bias = draw(space=space)
  stock = nn.BatchNorm(use_running_average=False)
  zeros = {"mean": jnp.zeros(6), "var": jnp.ones(6)}
  variables = {
      "params": {"scale": scale, "bias": bias},
      "batch_stats": zeros,
  }
  expected, _ = stock.apply(variables, x, mutable=["batch_stats"])
  actual = normalization.batch_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize(
    "channels, space", [(5, (4, 5)), (16, (4, 5)), (16, (7,)), (16, ())]
)
def test_group_norm_equals_linen(channels, space):
  x, scale, bias = draw(channels, space)
  groups = normalization.num_groups(channels)
  stock = nn.GroupNorm(num_groups=groups, epsilon=normalization.EPSILON)
  expected = stock.apply({"params": {"scale": scale, "bias": bias}}, x)
  actual = normalization.group_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("channels,groups", [(64, 8), (6, 2), (5, 1), (4, 4)])
def test_groups_divide_the_width(channels, groups):
  assert normalization.num_groups(channels) == groups
