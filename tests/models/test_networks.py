"""The networks against plain ones, their sizes and what they refuse."""

import math
from unittest import mock

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from episodic_dp import backends
from episodic_dp import models
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from tests.refusals import assert_refused


def convolution(x, layer, norm):
  """Convolve by XLA with a layer's kernel, and normalize."""
  x = lax.conv_general_dilated(
      x, layer["kernel"], (1, 1), "SAME",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )
  layer = jax.tree.map(lambda p: p[None, None, None], layer)
  if norm == "none":
    return x + layer["bias"]
  shape, axes = x.shape, (0, 1, 2)
  if norm == "group":
    x = x.reshape(*shape[:3], np.gcd(shape[-1], 8), -1)
    axes = (1, 2, 4)
  x = x - x.mean(axes, keepdims=True)
  x = x / jnp.sqrt(jnp.square(x).mean(axes, keepdims=True) + 1e-5)
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


def conv(params, x, norm):
  for i in range(4):
    x = pool(leaky(convolution(x, params[f"block_{i}"], norm)))
  return x.reshape(x.shape[0], -1)


def conv1d(params, x, norm):
  x = x[:, None]
  for i in range(4):
    x = pool(leaky(convolution(x, params[f"block_{i}"], norm)), height=1)
  return x.mean((1, 2))


NETWORKS = {
    "conv4": (models.conv4, conv, 20, (16, 17, 2)),
    "resnet12": (models.resnet12, resnet12, 4, (16, 17, 2)),
    "conv1d": (networks.conv1d, conv1d, 6, (35, 3)),
}
KEY = jax.random.key(0)
_SLOW = pytest.mark.slow  # They compile for seconds.


def random_params(model):
  """Weights that are nowhere zero or one, so that every one of them matters."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(model.init, KEY)
  return jax.tree.map(
      lambda s: 0.3 + 0.3 * rng.standard_normal(s.shape, np.float32), shapes
  )


@pytest.mark.parametrize(
    "name,norm,backend",
    [
        ("conv4", "batch", "cpu"),
        ("conv1d", "group", "gpu"),
        ("conv4", "none", "cpu"),
        ("conv1d", "batch", "cpu"),
        ("resnet12", "none", "cpu"),
        ("resnet12", "group", "gpu"),
    ],
)
@pytest.mark.few(1)
def test_equals_the_plain_network(name, norm, backend):
  make, reference, width, shape = NETWORKS[name]
  with mock.patch.object(backends, "name", return_value=backend):
    model = make(3, width, norm, shape)
    params = random_params(model)
    x = np.random.default_rng(0).random((4, *shape), np.float32)
    found = jax.jit(model.apply)(params, x)
    body = {k: v for k, v in params.items() if k != "head"}
    features = jax.jit(make(None, width, norm, shape).apply)(body, x)
  head, plain = params["head"], jax.jit(reference, static_argnums=2)
  wanted = plain(params, x, norm)
  for a, b in (
      (features, wanted), (found, wanted @ head["kernel"] + head["bias"][None])
  ):
    np.testing.assert_allclose(
        a, b, rtol=2e-3, atol=1e-3 * np.abs(b).max()
    )


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize(
    "name", ["conv4", *(pytest.param(n, marks=_SLOW) for n in NETWORKS)]
)
def test_they_mix_examples_where_they_say_so(name, norm):
  make, _, width, shape = NETWORKS[name]
  model = make(3, 2 * width, norm, shape)
  assert model_lib.mixes(model, shape) == model.mixes_examples
  assert model.mixes_examples == (norm == "batch")


@pytest.mark.slow
def test_sizes_are_those_of_the_literature():
  def count(model):
    shapes = jax.eval_shape(model.init, KEY)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

  model = models.resnet12(None, input_shape=(16, 16, 3))
  assert count(model) == 12_424_320 and model.way == 640
  four = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64 + 64 * 5 + 5
  assert count(models.conv4(5)) == four
  assert networks.conv1d(None, 7, "none", (16, 1)).way == 7
  assert count(models.mlp(1)) == 1761


@pytest.mark.parametrize("linear", [False, True])
def test_features_begin_as_those_given_so_that_squares_are_means(linear):
  rng, way, shape = np.random.default_rng(0), 4, (3, 5)
  model = networks.features(None, linear, shape)
  assert (model.way, model.input_shape) == (15, shape)
  assert not model.mixes_examples and not model_lib.mixes(model, shape)
  params = model.init(KEY)
  examples = rng.standard_normal((6, *shape), np.float32)
  found = model.apply(params, examples)
  # Distances are those of the given features, of whatever number.
  np.testing.assert_allclose(
      found * math.sqrt(15), examples.reshape(6, 15), rtol=1e-6
  )
  # What is learned changes every feature, and mixes them where it is a matrix.
  slopes = jax.jacobian(model.apply, argnums=0)(params, examples[:1])
  assert set(slopes) == ({"scale", "kernel"} if linear else {"scale"})
  assert all(np.asarray(s).any() for s in slopes.values())
  cosine = networks.features(None, linear, shape, cosine=True)
  lengths = np.linalg.norm(found, axis=1, keepdims=True)
  params = cosine.init(KEY)
  rows = cosine.apply(params, np.concatenate([examples, 0 * examples[:1]]))
  root = math.sqrt(networks.TEMPERATURE)
  np.testing.assert_allclose(
      rows, [*(root * found / lengths), np.zeros(15)], atol=1e-5
  )
  # No noise makes a scale or the temperature negative.
  params["log_scale"] -= 50
  params["log_temperature"] -= 50
  lower = cosine.apply(params, examples)
  np.testing.assert_array_equal(np.sign(lower), np.sign(rows[:-1]))
  logits = networks.features(way, linear, shape)
  assert logits.apply(logits.init(KEY), examples).shape == (6, 4)


@pytest.mark.parametrize(
    "make,name",
    [
        (lambda: models.resnet12(5, input_shape=(8, 8, 3)), "input_shape"),
        (lambda: models.conv4(5, input_shape=(28, 12, 1)), "input_shape"),
        (lambda: networks.conv1d(5, input_shape=(12, 1)), "input_shape"),
        (lambda: networks.conv1d(5, input_shape=(28, 28, 1)), "input_shape"),
        (lambda: models.conv4(5, input_shape=(16, 2)), "input_shape"),
        (lambda: models.conv4(5, norm="layer"), "norm='layer'"),
        (lambda: models.conv4(0), "way=0"),
        (lambda: networks.conv1d(5, width=-8), "width=-8"),
        (lambda: models.mlp(5, (8, 0)), r"widths\[1\]=0"),
        (lambda: networks.features(0), "way=0"),
    ],
)
def test_settings_that_cannot_be_are_named(make, name):
  assert_refused(ValueError, f"{name}.*expected|{name}.*must", make)


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_a_perceptron_of_any_shape_is_products_and_relus(shape):
  model = models.mlp(2, (5, 3), shape)
  assert (model.way, model.input_shape) == (2, shape)
  assert not model.mixes_examples
  params = random_params(model)
  x = np.random.default_rng(0).standard_normal((7, *shape), np.float32)
  expected = x.reshape(7, 4)
  for name in ("hidden_0", "hidden_1"):
    layer = params[name]
    expected = np.maximum(expected @ layer["kernel"] + layer["bias"], 0)
  expected = expected @ params["head"]["kernel"] + params["head"]["bias"]
  np.testing.assert_allclose(model.apply(params, x), expected, atol=1e-5)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_directions_are_features_of_one_length(norm):
  """Only statistics of the batch mix examples, so only they give a centre."""
  shape = (16, 18, 1)
  plain = networks.conv4(None, 4, norm, shape)
  model = networks.conv4(None, 4, norm, shape, cosine=True)
  images = np.random.default_rng(0).random((9, *shape), np.float32)
  params = model.init(KEY)
  expected = np.asarray(plain.apply(params, images))
  if norm == "batch":
    expected = expected - expected.mean(0)
  expected = 10 * expected / np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(model.apply(params, images), expected, atol=1e-4)
  # Equal images have no direction from their mean.
  slope = jax.grad(lambda images: model.apply(params, images).sum())
  assert np.isfinite(slope(0 * images)).all()


# Given moments ----------------------------------------------------------------


@pytest.mark.parametrize("own", [0.0, 0.1, 1.0])
def test_given_moments_are_mixed_with_those_of_an_example(own):
  """The mixture's moments are those of so many numbers of each kind."""
  rng = np.random.default_rng(0)
  given, x = rng.normal(2, 3, 900), rng.normal(-1, 1, (2, 10, 10, 1))
  found = networks.norm_by_moments(
      jnp.asarray(x, jnp.float32), jnp.ones(1), jnp.zeros(1),
      jnp.asarray([given.mean()]), jnp.asarray([given.var()]), own,
  )
  for one, normal in zip(x, found):
    parts = [np.repeat(one.ravel(), round(900 * own))] * (own > 0)
    parts += [np.repeat(given, round(100 * (1 - own)))] * (own < 1)
    both = np.concatenate(parts)
    expected = (one - both.mean()) / np.sqrt(both.var() + networks.EPSILON)
    np.testing.assert_allclose(normal, expected, atol=1e-4)


def test_without_a_share_of_its_own_a_batch_has_the_moments_it_is_given():
  model = networks.conv4(None, 4, "batch", (16, 16, 1))
  images = np.random.default_rng(0).random((9, 16, 16, 1), np.float32)
  params = model.init(KEY)
  given = model._replace(public=images).public_moments(params)
  np.testing.assert_allclose(
      model.by_moments(params, images, given, 0.0),
      model.apply(params, images), atol=1e-4,
  )


@pytest.mark.parametrize("mirror", [False, True])
def test_an_image_is_seen_twice_by_public_moments(mirror):
  model = networks.conv4(None, 4, "batch", (16, 18, 1))
  images = np.random.default_rng(0).random((9, 16, 18, 1), np.float32)
  params = model.init(KEY)
  given = model._replace(public=images).public_moments(params)
  each = []
  for step in (1, -1):
    moved = scipy.ndimage.shift(
        images, (0, step, step, 0), order=0, mode="nearest"
    )
    if mirror and step < 0:
      moved = np.flip(moved, 2)
    each.append(model.by_moments(params, moved, given, model_lib.OWN))
  model = model._replace(mirror=mirror)
  found = model.normalised(given).apply(params, images)
  assert np.abs(each[0] - each[1]).max() > 0.01
  np.testing.assert_allclose(found, (each[0] + each[1]) / 2, atol=1e-5)
