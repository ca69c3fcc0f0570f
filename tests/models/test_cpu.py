"""The forms of a CPU against the plain ones."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import backends
from episodic_dp.models import convolution
from episodic_dp.models import cpu
from episodic_dp.models import layers
from tests.models import derivatives


def draw(*shapes):
  rng = np.random.default_rng(0)
  return [rng.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("window", [(3, 3), (1, 5)])
def test_value_and_derivatives_of_two_orders_equal_the_patches(window):
  arguments = draw((3, 5, 6, 2), (*window, 2, 4))
  assert derivatives.error(cpu.same, convolution.convolve, arguments) < 1e-4


@pytest.mark.parametrize("in_axes", [(0, None), (0, 0), (None, 0)])
def test_a_batch_is_one_convolution_or_goes_by_patches(in_axes):
  images, kernel = draw((4, 3, 5, 6, 2), (4, 3, 3, 2, 4))
  arguments = [
      a if axis == 0 else a[0] for a, axis in zip((images, kernel), in_axes)
  ]

  def slopes(same):
    one = jax.grad(lambda *a: jnp.sum(jnp.sin(same(*a))), (0, 1))
    return jax.jit(jax.vmap(one, in_axes))

  for a, b in zip(
      slopes(cpu.same)(*arguments),
      slopes(convolution.convolve)(*arguments), strict=True,
  ):
    np.testing.assert_allclose(a, b, atol=1e-4)
  text = slopes(cpu.same).lower(*arguments).as_text()
  # No groups, which are slow.
  assert not re.search("(feature|batch)_group_count = 4", text)
  shared = in_axes[1] is None
  assert text.count("stablehlo.convolution") == (2 if shared else 0)


def test_inside_a_loop_no_kernels_gradient_takes_another_order_of_axes():
  """The compiler would make plain loops of it, 50 times as slow."""
  images, kernel = draw((2, 5, 6, 3), (3, 3, 3, 4))

  @jax.jit
  def descend(images, kernel):
    def step(_, kernel):
      return kernel - 0.1 * jax.grad(
          lambda k: jnp.sum(jnp.sin(cpu.same(images, k)))
      )(kernel)

    return jax.lax.fori_loop(0, 3, step, kernel)

  text = descend.lower(images, kernel).compile().as_text()
  orders = re.findall(r" convolution\(.*dim_labels=([^,]*),", text)
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
  arguments = draw(images, kernel)

  def loss(same):
    return jax.jit(jax.value_and_grad(
        lambda *a: jnp.sum(jnp.sin(same(*a))), (0, 1)
    ))(*arguments)

  (a, found), (b, expected) = loss(cpu.same), loss(convolution.convolve)
  np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2)
  for one, other in zip(found, expected, strict=True):
    scale = np.abs(other).max()
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


def test_no_kernel_is_larger_than_its_image():
  """The compiler would swap the two, 50 times as slow."""
  for size in range(2, 9):
    shapes = [
        jax.ShapeDtypeStruct(s, np.float32)
        for s in ((2, size, size, 16), (3, 3, 16, 8))
    ]
    text = jax.jit(cpu.same).lower(*shapes).as_text()
    kernel = re.search(r"convolution.*tensor<(\d+)x(\d+)x16x", text)
    assert np.prod([int(k) for k in kernel.groups()]) <= max(9, size**2)


def parts(x, kernel, scale, bias):
  x = convolution.convolve(x, kernel)
  return layers.max_pool(layers.batch_norm(x, scale, bias))


def draw_block(channels, features):
  x, kernel, scale, bias = draw(
      (3, 6, 4, channels), (3, 3, channels, features), (features,), (features,)
  )
  return np.abs(x), kernel, scale + 0.1, bias


def test_two_derivatives_of_the_first_block_equal_the_parts():
  x, *rest = draw_block(2, 19)
  assert cpu.fits_first_block(x.shape, rest[0].shape)
  error = derivatives.error(
      lambda *rest: cpu.first_block(x, *rest),
      lambda *rest: parts(x, *rest), rest,
  )
  assert error < 1e-4


def test_a_few_images_at_a_time_equal_the_parts():
  (x,), rest = draw((3, 32, 32, 3)), draw_block(3, 112)[1:]
  assert x[0, ..., 0].size * 112 * 2 > cpu._NUMBERS

  def loss(form):
    return jax.jit(jax.value_and_grad(
        lambda *rest: jnp.sum(jnp.sin(form(x, *rest))), (0, 1, 2)
    ))(*rest)

  (a, found), (b, expected) = loss(cpu.first_block), loss(parts)
  np.testing.assert_allclose(a, b, rtol=1e-3)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(other).max())


@pytest.mark.parametrize(
    "x,kernel",
    [
        ((2, 7, 6, 1), (3, 3, 1, 16)),
        ((2, 6, 7, 1), (3, 3, 1, 16)),
        ((2, 6, 6, 4), (3, 3, 4, 64)),
        ((2, 6, 6, 1), (5, 5, 1, 32)),
    ],
)
def test_other_shapes_are_no_first_blocks(x, kernel):
  assert not cpu.fits_first_block(x, kernel)


@pytest.mark.parametrize(
    "x,kernel", [((2, 4, 6, 1), (3, 3, 1, 9)), ((2, 4, 4, 64), (3, 3, 64, 64))]
)
def test_only_a_cpu_takes_them_and_blocks_are_equal(x, kernel, monkeypatch):
  arguments = draw(x, kernel, kernel[-1:], kernel[-1:])
  outputs, taken = [], []
  for name in ("first_block", "same"):
    form = getattr(cpu, name)
    monkeypatch.setattr(
        cpu, name, lambda *a, form=form: (taken.append(1), form(*a))[1]
    )
  for backend in ("gpu", "cpu"):
    assert not taken
    with backends.assumed(backend):
      outputs.append(jax.jit(lambda *a: layers.block(*a, "batch"))(*arguments))
  assert taken
  np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
