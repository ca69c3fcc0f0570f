"""MAML against a plain loop, finite differences and the paper's definition."""

from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.models import layers

RATE = 0.3


class Examples(NamedTuple):
  images: jax.Array
  labels: jax.Array


class Episode(NamedTuple):
  support: Examples
  query: Examples


def draw_episode(shape, way=3, seed=0):
  keys = jax.random.split(jax.random.key(seed), 2)
  labels = jnp.arange(way)
  return Episode(
      *(Examples(jax.random.uniform(k, (way, *shape)), labels) for k in keys)
  )


def plain_conv4(params, images):
  """Blocks with batch norm, written with XLA's convolution and pooling."""
  x = images
  for name in sorted(set(params) - {"head"}):
    p = params[name]
    x = lax.conv_general_dilated(
        x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO",
                                                           "NHWC")
    )
    x = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
    x = x * p["scale"] + p["bias"]
    x = jnp.maximum(x, 0.01 * x)
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )
  return x.reshape(len(x), -1) @ params["head"]["kernel"] + (
      params["head"]["bias"]
  )


def plain_loss(apply, params, examples):
  logits = apply(params, examples.images)
  chosen = jax.nn.log_softmax(logits)[jnp.arange(len(logits)), examples.labels]
  return -jnp.mean(chosen)


def plain_maml(apply, params, episode, steps, stop=False, rate=RATE):
  """The definition: gradient steps one by one, then the query loss."""
  for _ in range(steps):
    gradient = jax.grad(lambda p: plain_loss(apply, p, episode.support))(params)
    for_constants = lax.stop_gradient(gradient) if stop else gradient
    params = jax.tree.map(lambda p, g: p - rate * g, params, for_constants)
  return plain_loss(apply, params, episode.query)


def assert_close(actual, expected, tolerance):
  scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=tolerance * scale)


def two_blocks(shape, width=9, way=3):
  """The first two blocks of Conv4: one form of its first, one of the others."""
  features = (shape[0] // 4) * (shape[1] // 4) * width

  def init(key):
    rng = np.random.default_rng(0)
    draw = lambda *s: 0.3 * rng.standard_normal(s, np.float32)  # noqa: E731
    params = {
        f"block_{i}": {
            "kernel": draw(3, 3, channels, width),
            "scale": 1 + draw(width),
            "bias": draw(width),
        }
        for i, channels in enumerate((shape[2], width))
    }
    return params | {"head": {"kernel": draw(features, way), "bias": draw(way)}}

  def apply(params, images):
    x = images
    for i in range(2):
      p = params[f"block_{i}"]
      x = layers.block(x, p["kernel"], p["scale"], p["bias"], "batch")
    return x.reshape(len(x), -1) @ params["head"]["kernel"] + (
        params["head"]["bias"]
    )

  return models.Model(init, apply, True, shape, way)


# The whole network compiles for long.
@pytest.mark.parametrize(
    "make,side,steps",
    [
        (two_blocks, 4, 1),
        pytest.param(
            lambda shape: models.conv4(3, 9, input_shape=shape), 16, 2,
            marks=pytest.mark.slow, id="conv4",
        ),
    ],
)  # fmt: skip
def test_gradient_equals_the_plain_loop_with_lax_convolutions(
    make, side, steps
):
  shape = (side, side, 1)
  learner = learners.MAML(make(shape), inner_steps=steps, inner_rate=RATE)
  params = learner.init(jax.random.key(0))
  episode = draw_episode(shape)

  actual = jax.jit(jax.value_and_grad(learner.loss))(params, episode)
  expected = jax.jit(
      jax.value_and_grad(
          lambda p: plain_maml(plain_conv4, p, episode, steps)
      )
  )(params)
  assert_close(actual, expected, 2e-4)


def tiny_model():
  """Two dense layers with a smooth nonlinearity; exact in float64."""

  def init(key):
    a, b = jax.random.split(key)
    return {
        "in": jax.random.normal(a, (4, 3)),
        "out": jax.random.normal(b, (3, 3)),
    }

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return jnp.tanh(x @ params["in"]) @ params["out"]

  return models.Model(init, apply)


@pytest.mark.parametrize("steps", [1, 3])
def test_second_order_gradient_equals_finite_differences(steps):
  learner = learners.MAML(tiny_model(), inner_steps=steps, inner_rate=RATE)
  with jax.enable_x64(True):
    params = jax.tree.map(
        lambda p: jnp.asarray(np.asarray(p, np.float64)),
        learner.init(jax.random.key(0)),
    )
    episode = jax.tree.map(
        lambda a: jnp.asarray(np.asarray(a, np.float64))
        if a.dtype == jnp.float32 else a,
        draw_episode((2, 2, 1)),
    )
    loss = jax.jit(lambda p: learner.loss(p, episode))
    gradient = jax.jit(jax.grad(loss))(params)
    assert gradient["in"].dtype == jnp.float64
    rng = np.random.default_rng(0)
    for _ in range(3):
      direction = jax.tree.map(lambda p: rng.standard_normal(p.shape), params)
      moved = [
          jax.tree.map(lambda p, d, t=t: p + t * d, params, direction)
          for t in (1e-4, -1e-4)
      ]
      slope = (loss(moved[0]) - loss(moved[1])) / 2e-4
      inner = sum(
          jnp.vdot(gradient[k], direction[k]) for k in ("in", "out")
      )
      np.testing.assert_allclose(inner, slope, rtol=1e-6, atol=1e-9)


def test_orders_differ_and_first_order_is_the_gradient_at_the_adapted():
  episode = draw_episode((2, 2, 1))
  gradients = {}
  for order in ("first", "second"):
    learner = learners.MAML(tiny_model(), inner_steps=2, order=order)
    params = learner.init(jax.random.key(0))
    gradients[order] = jax.grad(learner.loss)(params, episode)
  adapted = learner.adapt(params, episode.support)
  at_adapted = jax.grad(learner.adapted_loss)(adapted, episode.query)
  assert_close(gradients["first"], at_adapted, 1e-5)
  difference = np.abs(gradients["first"]["in"] - gradients["second"]["in"])
  assert difference.max() > 1e-3


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_scan_of_inner_steps_gives_the_same_gradient(order):
  episode = draw_episode((2, 2, 1))
  unrolled, scanned = (
      learners.MAML(tiny_model(), inner_steps=3, order=order, unroll=unroll)
      for unroll in (True, False)
  )
  params = unrolled.init(jax.random.key(0))
  run = [jax.jit(jax.grad(each.loss)) for each in (unrolled, scanned)]
  expected = run[0](params, episode)
  assert_close(run[1](params, episode), expected, 1e-5)
  by_hand = jax.jit(
      jax.grad(
          lambda p: plain_maml(
              unrolled.model.apply, p, episode, 3, order == "first", 0.1
          )
      )
  )
  assert_close(by_hand(params), expected, 1e-5)
  texts = [str(jax.make_jaxpr(f)(params, episode)) for f in run]
  assert "scan" in texts[1] and "scan" not in texts[0]


def test_adaptation_lowers_the_adapted_loss_and_predicts():
  learner = learners.MAML(tiny_model(), inner_steps=50, inner_rate=1.0)
  params = learner.init(jax.random.key(1))
  support = draw_episode((2, 2, 1)).support
  before = learner.adapted_loss(params, support)
  adapted = learner.adapt(params, support)
  assert learner.adapted_loss(adapted, support) < 0.5 * before
  logits = learner.predict(params, support, support.images)
  assert learners.accuracy(logits, support.labels) == 1
  assert learners.accuracy(logits, (support.labels + 1) % 3) == 0


@pytest.mark.parametrize("unroll", [True, False])
def test_the_inner_gradient_can_be_replaced_and_knows_its_step(unroll):
  learner = learners.MAML(
      tiny_model(), inner_steps=3, inner_rate=RATE, unroll=unroll
  )
  params = learner.init(jax.random.key(0))
  support = draw_episode((2, 2, 1)).support

  def powers(loss):
    assert loss(params, support, 0).shape == ()
    return lambda p, examples, step: jax.tree.map(
        lambda a: 10.0**step * jnp.ones_like(a), p
    )

  adapted = learner.adapt(params, support, inner_gradient=powers)
  assert_close(
      adapted, jax.tree.map(lambda p: p - 111 * RATE, params), 1e-6
  )


def test_cross_entropy_is_the_mean_log_loss():
  logits = jnp.array([[0.0, 0.0], [jnp.log(3.0), 0.0]])
  value = learners.cross_entropy(logits, jnp.array([1, 0]))
  np.testing.assert_allclose(value, (np.log(2) + np.log(4 / 3)) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "settings,text",
    [
        ({"inner_steps": 0}, "inner_steps 0"),
        ({"inner_rate": -0.1}, "inner_rate -0.1"),
        ({"inner_rate": float("nan")}, "inner_rate nan"),
        ({"order": "third"}, "'third'"),
    ],
)
def test_wrong_settings_are_named(settings, text):
  with pytest.raises(ValueError, match=text):
    learners.MAML(tiny_model(), **settings)
