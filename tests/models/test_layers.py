"""Norms and pools against Linen's."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models import layers


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
  variables = {
      "params": {"scale": scale, "bias": bias},
      "batch_stats": {"mean": jnp.zeros(6), "var": jnp.ones(6)},
  }
  expected, _ = stock.apply(variables, x, mutable=["batch_stats"])
  actual = models.batch_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize(
    "channels,groups,space",
    [(5, 1, (4, 5)), (6, 2, (3,)), (16, 8, (4, 5)), (16, 8, (7,)), (16, 8, ())],
)
def test_group_norm_equals_linen(channels, groups, space):
  x, scale, bias = draw(channels, space)
  assert layers.num_groups(channels) == groups
  stock = nn.GroupNorm(num_groups=groups, epsilon=layers.EPSILON)
  expected = stock.apply({"params": {"scale": scale, "bias": bias}}, x)
  actual = models.group_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("height,width", [(4, 6), (5, 7)])
def test_pools_and_their_gradients_equal_linens(height, width):
  x = jax.random.normal(jax.random.key(0), (2, height, width, 3))
  for pool, window in (
      (models.max_pool, (2, 2)), (layers.max_pool_pairs, (1, 2))
  ):
    found, expected = (
        jax.jit(jax.value_and_grad(lambda x, f=f: jnp.sum(f(x) ** 3)))(x)
        for f in (pool, lambda x, w=window: nn.max_pool(x, w, w))
    )
    np.testing.assert_array_equal(pool(x), nn.max_pool(x, window, window))
    for a, b in zip(found, expected):
      np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_second_derivative_of_a_pool_is_a_selection():
  x = jax.random.normal(jax.random.key(0), (1, 2, 2, 1))
  cube = jax.jit(jax.hessian(lambda x: jnp.sum(models.max_pool(x) ** 3)))
  best, expected = int(jnp.argmax(x)), np.zeros((4, 4))
  expected[best, best] = 6 * float(x.max())
  np.testing.assert_allclose(cube(x).reshape(4, 4), expected, rtol=1e-6)


def test_of_equal_entries_one_gets_the_gradient():
  ones = jnp.ones((1, 4, 4, 1))
  gradient = jax.grad(lambda x: models.max_pool(x).sum())(ones)
  np.testing.assert_array_equal(models.max_pool(gradient), 1)
  assert gradient.sum() == 4
