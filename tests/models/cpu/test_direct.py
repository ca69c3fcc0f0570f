"""The library's convolution against products of patches."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.models import convolution
from episodic_dp.models.cpu import direct
from tests.models import derivatives


def draw(images, kernel):
  rng = np.random.default_rng(0)
  return rng.standard_normal(images, np.float32), rng.standard_normal(
      kernel, np.float32
  )


@pytest.mark.parametrize("window", [(3, 3), (1, 5)])
def test_value_and_derivatives_of_two_orders_equal_the_patches(window):
  arguments = draw((3, 5, 6, 2), (*window, 2, 4))
  assert derivatives.error(direct.same, convolution.convolve, arguments) < 1e-4


@pytest.mark.parametrize("in_axes", [(0, None), (0, 0), (None, 0)])
def test_a_batch_is_one_convolution_or_goes_by_patches(in_axes):
  images, kernel = draw((4, 3, 5, 6, 2), (4, 3, 3, 2, 4))
  arguments = [
      a if axis == 0 else a[0] for a, axis in zip((images, kernel), in_axes)
  ]

  def slopes(same):
    def one(images, kernel):
      return jax.grad(lambda *a: jnp.sum(jnp.sin(same(*a))), (0, 1))(
          images, kernel
      )

    return jax.jit(jax.vmap(one, in_axes))

  for a, b in zip(
      slopes(direct.same)(*arguments),
      slopes(convolution.convolve)(*arguments), strict=True,
  ):
    np.testing.assert_allclose(a, b, atol=1e-4)
  text = slopes(direct.same).lower(*arguments).as_text()
  # No groups, whoever they belong to: those are what is slow.
  assert "feature_group_count = 4" not in text
  assert "batch_group_count = 4" not in text
  shared = in_axes[1] is None
  assert text.count("stablehlo.convolution") == (2 if shared else 0)


def test_inside_a_loop_no_kernels_gradient_takes_another_order_of_axes():
  """Of which the compiler would make plain loops, 50 times as slow."""
  images, kernel = draw((2, 5, 6, 3), (3, 3, 3, 4))

  @jax.jit
  def descend(images, kernel):
    def step(_, kernel):
      return kernel - 0.1 * jax.grad(
          lambda k: jnp.sum(jnp.sin(direct.same(images, k)))
      )(kernel)

    return jax.lax.fori_loop(0, 3, step, kernel)

  text = descend.lower(images, kernel).compile().as_text()
  orders = [
      line.split("dim_labels=")[1].split(",")[0]
      for line in text.splitlines()
      if " convolution(" in line
  ]
  assert len(orders) >= 2 and set(orders) == {"b01f_01io->b01f"}


@pytest.mark.parametrize(
    "images,kernel",
    [
        ((3, 14, 14, 16), (3, 3, 16, 16)),  # Outputs computed two by two.
        ((2, 7, 9, 3), (3, 3, 3, 8)),  # Five by five, beyond the row's end.
        ((11, 15, 15, 2), (3, 3, 2, 40)),  # Blocks, and one image too few.
        ((2, 3, 3, 4), (3, 3, 4, 4)),  # No room for two outputs together.
        ((1, 41, 40, 1), (3, 3, 1, 17)),  # A block of one image.
    ],
)
def test_few_channels_and_many_images_equal_the_patches(images, kernel):
  images, kernel = draw(images, kernel)

  def loss(same):
    return jax.jit(jax.value_and_grad(
        lambda *a: jnp.sum(jnp.sin(same(*a))), (0, 1)
    ))(images, kernel)

  (a, found), (b, expected) = loss(direct.same), loss(convolution.convolve)
  np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2)
  for one, other in zip(found, expected, strict=True):
    scale = np.abs(other).max()
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


def test_no_kernel_is_larger_than_its_image():
  """With which the compiler would swap the two, 50 times as slow."""
  for size in range(2, 9):
    shapes = [
        jax.ShapeDtypeStruct(s, np.float32)
        for s in ((2, size, size, 16), (3, 3, 16, 8))
    ]
    text = jax.jit(direct.same).lower(*shapes).as_text()
    kernel = re.search(r"convolution.*tensor<(\d+)x(\d+)x16x", text)
    assert np.prod([int(k) for k in kernel.groups()]) <= max(9, size**2)


def test_it_is_for_many_channels_or_room_for_several_outputs():
  assert direct.fits((5, 3, 3, 64), (3, 3, 64, 64))
  assert direct.fits((5, 14, 14, 16), (3, 3, 16, 16))
  assert not direct.fits((5, 3, 3, 16), (3, 3, 16, 16))
  assert not direct.fits((75, 14, 14, 64), (2, 3, 64, 64))
