"""Max-pooling against Linen's."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import pooling


@pytest.mark.parametrize("height,width", [(4, 6), (5, 7)])
def test_value_and_gradient_equal_linen(height, width):
  x = jax.random.normal(jax.random.key(0), (2, height, width, 3))
  def stock(x):
    return nn.max_pool(x, (2, 2), (2, 2))
  def run(pool):
    return jax.jit(
        jax.value_and_grad(lambda x: jnp.sum(pool(x) ** 3))
    )(x)
  np.testing.assert_array_equal(pooling.max_pool(x), stock(x))
  for a, b in zip(run(pooling.max_pool), run(stock)):
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_second_derivative_is_a_selection():
  x = jax.random.normal(jax.random.key(0), (1, 2, 2, 1))
  def cube(x):
    return jnp.sum(pooling.max_pool(x) ** 3)
  hessian = jax.jit(jax.hessian(cube))(x)
  hessian = hessian.reshape(4, 4)
  best = int(jnp.argmax(x))
  expected = np.zeros((4, 4))
  expected[best, best] = 6 * float(x.max())
  np.testing.assert_allclose(hessian, expected, rtol=1e-6)


def test_of_equal_entries_one_gets_the_gradient():
  ones = jnp.ones((1, 4, 4, 1))
  gradient = jax.grad(lambda x: pooling.max_pool(x).sum())(ones)
  np.testing.assert_array_equal(pooling.max_pool(gradient), 1)
  assert gradient.sum() == 4
