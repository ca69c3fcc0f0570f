"""The networks against plain ones, their sizes and what they refuse."""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import backends
from episodic_dp import models
from episodic_dp.models import model as model_lib


def convolution(x, layer, norm):
  """Of a layer's kernel by XLA, and its norm."""
  x = lax.conv_general_dilated(
      x, layer["kernel"], (1, 1), "SAME",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )  # fmt: skip
  if norm == "none":
    return x + layer["bias"]
  shape = x.shape
  if norm == "group":
    groups = np.gcd(shape[-1], 8)
    x = x.reshape(*shape[:3], groups, -1)
    axes = (1, 2, 4)
  else:
    axes = (0, 1, 2)
  x = (x - x.mean(axes, keepdims=True)) / jnp.sqrt(
      x.var(axes, keepdims=True) + 1e-5
  )
  return x.reshape(shape) * layer["scale"] + layer["bias"]


def pool(x, height=2):
  window = (1, height, 2, 1)
  return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def leaky(x, slope=0.01):
  return jnp.maximum(x, slope * x)


def resnet12(params, x, norm):
  for i in range(4):
    block = params[f"block_{i}"]
    shortcut = convolution(x, block["shortcut"], norm)
    for j in range(3):
      x = convolution(x, block[f"conv_{j}"], norm)
      x = leaky(x, 0.1) if j < 2 else leaky(x + shortcut, 0.1)
    x = pool(x)
  return x.mean((1, 2))


def conv6(params, x, norm):
  for i in range(6):
    x = leaky(convolution(x, params[f"block_{i}"], norm))
    x = pool(x) if i < 4 else x
  return x.reshape(x.shape[0], -1)


def conv1d(params, x, norm):
  x = x[:, None]
  for i in range(4):
    x = pool(leaky(convolution(x, params[f"block_{i}"], norm)), height=1)
  return x.mean((1, 2))


NETWORKS = {
    "resnet12": (models.resnet12, resnet12, 4, (16, 17, 2)),
    "conv6": (models.conv6, conv6, 6, (33, 16, 1)),
    "conv1d": (models.conv1d, conv1d, 6, (35, 3)),
}


_SLOW = pytest.mark.slow  # They compile for seconds.


@pytest.mark.parametrize(
    "name, norm, backend",
    [
        ("conv1d", "group", "gpu"),
        pytest.param("conv1d", "batch", "cpu", marks=_SLOW),
        pytest.param("conv6", "batch", "cpu", marks=_SLOW),
        pytest.param("resnet12", "none", "cpu", marks=_SLOW),
        pytest.param("resnet12", "group", "gpu", marks=_SLOW),
    ],
)
def test_equals_the_plain_network(name, norm, backend):
  make, reference, width, shape = NETWORKS[name]
  with backends.assumed(backend):
    model = make(3, width, norm, shape)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda s: 0.5 * rng.standard_normal(s.shape, np.float32), shapes
    )
    x = rng.random((4, *shape), np.float32)
    found = jax.jit(model.apply)(params, x)

  @jax.jit
  def expected(params, x):
    head = params["head"]
    return reference(params, x, norm) @ head["kernel"] + head["bias"]

  wanted = expected(params, x)
  np.testing.assert_allclose(
      found, wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max()
  )


def test_sizes_are_those_of_the_literature():
  def count(model):
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

  channels, cin, total = (64, 160, 320, 640), 3, 0
  for c in channels:
    total += 9 * (cin * c + 2 * c * c) + cin * c + 4 * 2 * c
    cin = c
  model = models.resnet12(None, input_shape=(16, 16, 3))
  assert count(model) == total == 12_424_320 and model.way == 640
  body = 9 * 64 * (1 + 5 * 64) + 6 * 2 * 64
  assert count(models.conv6(5)) == body + 65 * 5
  assert models.conv1d(None, 7, "none", (16, 1)).way == 7


@pytest.mark.slow  # Compiles each of them.
@pytest.mark.parametrize("name", ["resnet12", "conv1d"])
def test_they_mix_examples_where_they_say_so(name):
  make, _, width, shape = NETWORKS[name]
  for norm in ("batch", "group"):
    model = make(3, 2 * width, norm, shape)
    assert model_lib.mixes(model, shape) == model.mixes_examples
    assert model.mixes_examples == (norm == "batch")


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: models.resnet12(5, input_shape=(8, 8, 3)),
         "images of 8x8 pixels are too small for 4 poolings by 2: give at least"
         " 16x16"),
        (lambda: models.conv6(5, 8, "group", (16, 16, 1)),
         "normalises single numbers after the last pooling"),
        (lambda: models.conv1d(5, input_shape=(12, 1)),
         "series of 12 are too small .* give at least 16"),
        (lambda: models.conv1d(5, input_shape=(28, 28, 1)),
         r"conv1d takes series \(time, channels\), and .*use another network"),
        (lambda: models.conv4(5, input_shape=(16, 2)),
         r"conv4 takes images .*: use mlp, or conv1d"),
        (lambda: models.conv6(5, norm="layer"), "norm 'layer' must be one of"),
        (lambda: models.resnet12(5, width=0), "width 0 must be at least 1"),
        (lambda: models.conv1d(0), "way 0 must be at least 1"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(make, sentence):
  with pytest.raises(ValueError, match=sentence):
    make()


def test_a_perceptron_takes_any_shape():
  for shape in ((6,), (3, 2), (1, 2, 3)):
    model = models.mlp(2, (4,), shape)
    assert model.input_shape == shape
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    assert shapes["hidden_0"]["kernel"].shape == (6, 4)
