"""Convolution by tiles against XLA's own."""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp.models.cpu import winograd
from tests.models import derivatives

# n, height, width, channels in and out.
SHAPE = (6, 5, 3, 2, 3)


def plain(x, kernel):
  return lax.conv_general_dilated(
      x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


def by_tiles(x, kernel):
  """The phases, put where they belong."""
  phases = winograd.convolve(x, kernel)
  result = jnp.zeros((*x.shape[:3], kernel.shape[-1]), x.dtype)
  for i, phase in enumerate(phases):
    result = result.at[:, i // 2 :: 2, i % 2 :: 2].set(phase)
  return result


def draw(shape, seed=0):
  *images, channels, features = shape
  rng = np.random.default_rng(seed)
  return (
      rng.standard_normal((*images, channels), np.float32),
      rng.standard_normal((3, 3, channels, features), np.float32) / 3,
  )


def test_value_and_derivatives_of_two_orders_equal_lax(monkeypatch):
  monkeypatch.setattr(winograd, "_ROWS", 12)  # Two of the six images a block.
  assert derivatives.error(by_tiles, plain, draw(SHAPE)) < 1e-5


def test_every_task_may_have_its_kernel():
  tasks = [draw((3, 4, 5, 2, 3), seed) for seed in range(3)]
  x, kernels = (np.stack(a) for a in zip(*tasks))

  def gradients(convolve):
    def loss(x, kernel):
      return jnp.sum(jnp.sin(convolve(x, kernel)))
    return jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(x, kernels)

  for a, b in zip(gradients(by_tiles), gradients(plain)):
    np.testing.assert_allclose(a, b, atol=2e-5)
