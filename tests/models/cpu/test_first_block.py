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


def test_a_few_images_at_a_time_equal_the_parts():
  rng = np.random.default_rng(0)
  x = rng.random((3, 32, 32, 3), np.float32)
  _, kernel, scale, bias = draw(3)
  rest = np.tile(kernel, (1, 1, 1, 4)), np.tile(scale, 4), np.tile(bias, 4)
  assert x[0, ..., 0].size * rest[0].shape[3] * 2 > first_block._NUMBERS

  def loss(form):
    return jax.jit(jax.value_and_grad(
        lambda *rest: jnp.sum(jnp.sin(form(x, *rest))), (0, 1, 2)
    ))(*rest)

  (a, found), (b, expected) = loss(first_block.apply), loss(parts)
  np.testing.assert_allclose(a, b, rtol=1e-4)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


@pytest.mark.parametrize(
    "x,kernel",
    [
        ((2, 7, 6, 1), (3, 3, 1, 16)),
        ((2, 6, 7, 1), (3, 3, 1, 16)),
        ((2, 6, 6, 4), (3, 3, 4, 64)),
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
