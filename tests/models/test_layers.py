"""Norms, pools and blocks against Linen's and against their parts."""

from unittest import mock

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import backends
from episodic_dp.models import networks
from tests.models import derivatives


def draw(channels=6, space=(4, 5)):
  keys = jax.random.split(jax.random.key(0), 3)
  return (
      2 + jax.random.normal(keys[0], (3, *space, channels)),
      jax.random.normal(keys[1], (channels,)),
      jax.random.normal(keys[2], (channels,)),
  )


@pytest.mark.parametrize(
    "channels,groups,space",
    [(5, 1, (4, 5)), (6, 2, (3,)), (16, 8, (4, 5)), (16, 8, (7,)), (16, 8, ())],
)
@pytest.mark.few(2)
def test_group_norm_equals_linen(channels, groups, space):
  x, scale, bias = draw(channels, space)
  stock = nn.GroupNorm(num_groups=groups, epsilon=networks.EPSILON)
  expected = stock.apply({"params": {"scale": scale, "bias": bias}}, x)
  actual = networks.group_norm(x, scale, bias)
  np.testing.assert_allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("height,width", [(4, 6), (5, 7)])
@pytest.mark.few(1)
def test_pools_and_their_gradients_equal_linens(height, width):
  x = jax.random.normal(jax.random.key(0), (2, height, width, 3))
  for pool, window in (
      (networks.max_pool, (2, 2)), (networks.max_pool_pairs, (1, 2))
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
  cube = jax.jit(jax.hessian(lambda x: jnp.sum(networks.max_pool(x) ** 3)))
  best, expected = int(jnp.argmax(x)), np.zeros((4, 4))
  expected[best, best] = 6 * float(x.max())
  np.testing.assert_allclose(cube(x).reshape(4, 4), expected, rtol=1e-6)


def test_of_equal_entries_one_gets_the_gradient():
  gradient = jax.grad(lambda x: networks.max_pool(x).sum())(
      jnp.ones((1, 4, 4, 1))
  )
  np.testing.assert_array_equal(networks.max_pool(gradient), 1)
  assert gradient.sum() == 4


def parts(x, kernel, scale, bias):
  x = jax.lax.conv_general_dilated(
      x.astype(kernel.dtype), kernel, (1, 1), "SAME",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )
  pooled = networks.max_pool(networks.batch_norm(x, scale, bias))
  return nn.leaky_relu(pooled)


def draw_block(x, features):
  rng = np.random.default_rng(0)
  kernel = rng.standard_normal((3, 3, x[-1], features), np.float32)
  scale = rng.random(features, np.float32) + 0.1
  bias = rng.standard_normal(features, np.float32)
  return rng.random(x, np.float32), kernel, scale, bias


def form(*arguments):
  return networks.block(*arguments, "batch")


@pytest.mark.parametrize("x", [(2, 7, 5, 1), (3, 6, 4, 2)])
@pytest.mark.few(1)
def test_two_derivatives_of_a_first_block_equal_the_parts(x):
  x, *rest = draw_block(x, 19)
  error = derivatives.error(
      lambda *rest: form(x, *rest), lambda *rest: parts(x, *rest), rest
  )
  assert error < 1e-4


def test_a_few_images_at_a_time_equal_the_parts():
  x, *rest = draw_block((3, 32, 32, 3), 112)
  assert x[0, ..., 0].size * 112 * 2 > networks._CACHED

  def loss(form):
    return jax.jit(jax.value_and_grad(
        lambda *rest: jnp.sum(jnp.sin(form(x, *rest))), (0, 1, 2)
    ))(*rest)

  (a, found), (b, expected) = loss(form), loss(parts)
  np.testing.assert_allclose(a, b, rtol=1e-3)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(other).max())


@pytest.mark.parametrize("features", [16, 64])
@pytest.mark.few(1)
def test_an_inner_step_through_blocks_of_images_equals_the_parts(features):
  """Images of support and query go through loops of different lengths."""
  x, *rest = draw_block((12, 28, 28, 1), features)
  assert x[0].size * features * 12 > networks._CACHED

  def outer(form):
    def loss(kernel, x):
      return jnp.sum(jnp.sin(form(x, kernel, *rest[1:])))

    def after(kernel):
      return loss(kernel - 1e-3 * jax.grad(loss)(kernel, x[:2]), x)

    return jax.jit(jax.grad(after))(rest[0])

  found, expected = outer(form), outer(parts)
  scale = np.abs(expected).max()
  np.testing.assert_allclose(found / scale, expected / scale, atol=1e-3)


@pytest.mark.parametrize("x,features", [((2, 4, 6, 1), 9), ((2, 4, 4, 64), 64)])
def test_every_backend_has_its_forms_and_blocks_are_equal(x, features):
  arguments, outputs, texts = draw_block(x, features), [], []
  for backend in ("tpu", "gpu", "cpu"):
    with mock.patch.object(backends, "name", return_value=backend):
      jitted = jax.jit(lambda *a: form(*a))
      texts.append(jitted.lower(*arguments).as_text())
      outputs.append(jitted(*arguments))
  assert texts[0] != texts[2]
  assert "stablehlo.convolution" not in texts[0]
  assert "stablehlo.convolution" in texts[1]
  for output in outputs[1:]:
    np.testing.assert_allclose(output, outputs[0], rtol=1e-4, atol=1e-5)
