"""The first block against its parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import convolution
from episodic_dp.models import normalization
from episodic_dp.models import pooling
from episodic_dp.models.cpu import first_block
from tests.models import derivatives


def parts(x, kernel, scale, bias):
  return pooling.max_pool(
      normalization.batch_norm(convolution.convolve(x, kernel), scale, bias)
  )


def draw(channels):
  rng = np.random.default_rng(channels)
  features = 9 * channels + 1
  scale = 0.5 + rng.random(features, np.float32)
  scale[0] *= -1
  return (
      rng.random((3, 6, 4, channels), np.float32),
      rng.standard_normal((3, 3, channels, features), np.float32),
      scale,
      rng.standard_normal(features).astype(np.float32),
  )


def test_value_and_derivatives_of_two_orders_equal_the_parts():
  arguments = draw(2)
  assert first_block.fits(arguments[0].shape, arguments[1].shape)
  x, *rest = arguments
  error = derivatives.error(
      lambda *rest: first_block.apply(x, *rest),
      lambda *rest: parts(x, *rest),
      rest,
  )
  assert error < 1e-4


@pytest.mark.parametrize(
    "x,kernel",
    [
        ((2, 7, 6, 1), (3, 3, 1, 16)),
        ((2, 6, 7, 1), (3, 3, 1, 16)),
        ((2, 6, 6, 2), (3, 3, 2, 16)),
        ((2, 6, 6, 1), (5, 5, 1, 32)),
    ],
)
def test_other_shapes_are_left_to_others(x, kernel):
  assert not first_block.fits(x, kernel)


def test_finite_and_one_gradient_where_all_entries_are_equal():
  _, kernel, scale, bias = draw(1)
  x = jnp.ones((2, 8, 8, 1))
  def loss(kernel):
    return jnp.sum(first_block.apply(x, kernel, scale, bias) ** 3)
  value, gradient = jax.jit(jax.value_and_grad(loss))(kernel)
  assert np.isfinite(value) and np.isfinite(gradient).all()
