"""The forms of a convolution against XLA's own."""

import re
from unittest import mock

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import backends
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


def draw(n, height, width, channels, features, window):
  rng = np.random.default_rng(height)
  images = rng.standard_normal((n, height, width, channels), np.float32)
  kernel = rng.standard_normal((*window, channels, features), np.float32)
  return images, kernel


def check_close(actual, expected):
  for a, b in zip(
      jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=1e-5 * (1 + np.abs(b).max()))


def with_gradients(form, in_axes=None):
  def loss(*arguments):
    return jnp.sum(jnp.sin(form(*arguments)))

  both = jax.value_and_grad(loss, (0, 1))
  return jax.jit(both if in_axes is None else jax.vmap(both, in_axes))


@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradient_equal_lax(shape):
  arguments = draw(*shape)
  check_close(
      with_gradients(convolution.convolve)(*arguments),
      with_gradients(plain)(*arguments),
  )


@pytest.mark.parametrize(
    "backend,shape",
    [
        ("gpu", SHAPES[1]),
        ("cpu", (2, 5, 6, 2, 18, (3, 3))),
        ("cpu", (2, 3, 7, 18, 18, (1, 5))),
    ],
)
def test_two_orders_of_derivatives_equal_lax(backend, shape):
  with mock.patch.object(backends, "name", return_value=backend):
    error = derivatives.error(convolution.same, plain, draw(*shape))
  assert error < 1e-4


@pytest.mark.parametrize(
    "shape",
    [
        (11, 15, 15, 2, 40, (3, 3)),  # Blocks, and one image too few.
        (1, 41, 40, 1, 17, (3, 3)),  # A block of one image.
    ],
)
def test_kernels_gradients_of_many_images_equal_lax(shape):
  arguments = draw(*shape)
  (a, found), (b, expected) = (
      with_gradients(form)(*arguments) for form in (convolution.same, plain)
  )
  np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2)
  for one, other in zip(found, expected, strict=True):
    scale = np.abs(other).max()
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


@pytest.mark.parametrize("in_axes", [(0, None), (0, 0), (None, 0)])
def test_a_batch_is_one_convolution_or_goes_by_patches(in_axes):
  images, kernel = draw(4 * 3, 5, 6, 4, 18, (3, 3))
  images = images.reshape(4, 3, 5, 6, 4)
  kernel = np.stack([kernel, 2 * kernel, -kernel, kernel])
  arguments = [
      a if axis == 0 else a[0] for a, axis in zip((images, kernel), in_axes)
  ]
  batch = with_gradients(convolution.same, in_axes)
  patches = with_gradients(convolution.convolve, in_axes)
  check_close(batch(*arguments), patches(*arguments))
  text = batch.lower(*arguments).as_text()
  # No groups, which are slow.
  assert not re.search("(feature|batch)_group_count = 4", text)
  assert text.count("stablehlo.convolution") == (in_axes[1] is None)


def test_inside_a_loop_no_kernels_gradient_takes_another_order_of_axes():
  """The compiler would make plain loops of it, 50 times as slow."""
  images, kernel = draw(2, 5, 6, 3, 18, (3, 3))

  @jax.jit
  def descend(images, kernel):
    def step(_, kernel):
      return kernel - 0.1 * jax.grad(
          lambda k: jnp.sum(jnp.sin(convolution.same(images, k)))
      )(kernel)

    return jax.lax.fori_loop(0, 3, step, kernel)

  text = descend.lower(images, kernel).compile().as_text()
  orders = re.findall(r" convolution\(.*dim_labels=([^,]*),", text)
  assert len(orders) >= 2 and set(orders) == {"b01f_01io->b01f"}


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 0), (0, 1))])
def test_paddings_equal_lax(padding):
  images, kernel = draw(*SHAPES[1])
  actual = convolution.conv_general_dilated(
      images, kernel, (1, 1), padding, dimension_numbers=DIMENSIONS
  )
  check_close(actual, plain(images, kernel, padding))


@pytest.mark.parametrize(
    "settings",
    [{}, {"strides": 2}, {"feature_group_count": 2}, {"padding": "CIRCULAR"}],
)
def test_linen_layer_takes_it(settings):
  images = jax.random.normal(jax.random.key(0), (2, 6, 6, 2))
  stock = nn.Conv(4, (3, 3), **settings)
  layer = stock.clone(conv_general_dilated=convolution.conv_general_dilated)
  variables = stock.init(jax.random.key(1), images)
  check_close(layer.apply(variables, images), stock.apply(variables, images))


def test_wrong_channels_are_named():
  with pytest.raises(ValueError, match=r"\(2, 5, 7, 1\).*\(3, 3, 2, 4\)"):
    convolution.convolve(jnp.zeros((2, 5, 7, 1)), jnp.zeros((3, 3, 2, 4)))
