"""The matrix-product convolution against XLA's own."""

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import convolution
from tests.models import derivatives

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
# n, height, width, channels in and out, kernel.
SHAPES = [
    (2, 5, 7, 1, 4, (3, 3)),
    (3, 4, 4, 5, 2, (3, 3)),
    (1, 6, 5, 2, 3, (2, 4)),
    (2, 3, 3, 2, 2, (1, 1)),
]


def plain(images, kernel, padding="SAME"):
  return lax.conv_general_dilated(
      images, kernel, (1, 1), padding, dimension_numbers=DIMENSIONS
  )


def draw(shape):
  n, height, width, channels, features, window = shape
  a, b = jax.random.split(jax.random.key(height))
  images = jax.random.normal(a, (n, height, width, channels))
  return images, jax.random.normal(b, (*window, channels, features))


def assert_close(actual, expected):
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=1e-5 * (1 + np.abs(b).max()))


@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradient_equal_lax(shape):
  arguments = draw(shape)

  def run(conv):
    def loss(*arguments):
      return jnp.sum(jnp.sin(conv(*arguments)))

    return jax.jit(
        lambda *arguments: (
            conv(*arguments), jax.grad(loss, (0, 1))(*arguments)
        )
    )(*arguments)

  assert_close(run(convolution.convolve), run(plain))


def test_convolution_with_its_own_gradients_equals_lax_in_two_orders():
  error = derivatives.error(convolution.same, plain, draw(SHAPES[1]))
  assert error < 1e-4


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 0), (0, 1))])
def test_paddings_equal_lax(padding):
  images, kernel = draw(SHAPES[1])
  actual = convolution.conv_general_dilated(
      images, kernel, (1, 1), padding, dimension_numbers=DIMENSIONS
  )
  assert_close(actual, plain(images, kernel, padding))


@pytest.mark.parametrize(
    "settings",
    [{}, {"strides": 2}, {"feature_group_count": 2}, {"padding": "CIRCULAR"}],
)
def test_linen_layer_takes_it(settings):
  images = jax.random.normal(jax.random.key(0), (2, 6, 6, 2))
  stock = nn.Conv(4, (3, 3), **settings)
  layer = nn.Conv(
      4,
      (3, 3),
      conv_general_dilated=convolution.conv_general_dilated,
      **settings,
  )
  variables = stock.init(jax.random.key(1), images)
  assert_close(layer.apply(variables, images), stock.apply(variables, images))


def test_per_task_kernels_need_no_convolution():
  images, kernel = draw(SHAPES[0])
  def many(conv):
    return str(
        jax.make_jaxpr(jax.vmap(conv))(images[None], kernel[None])
    )
  assert "conv_general_dilated" in many(plain)
  assert "conv_general_dilated" not in many(
      lambda x, k: convolution.conv_general_dilated(
          x, k, (1, 1), "SAME", dimension_numbers=DIMENSIONS
      )
  )


def test_wrong_channels_are_named():
  with pytest.raises(ValueError, match=r"\(2, 5, 7, 1\).*\(3, 3, 2, 4\)"):
    convolution.convolve(jnp.zeros((2, 5, 7, 1)), jnp.zeros((3, 3, 2, 4)))
