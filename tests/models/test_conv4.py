"""Conv4 against stock layers, and its Flax form against its Haiku form."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models import normalization

SHAPE = (16, 17, 2)


def stock_layers(params, images, norm):
  """Conv4 of Linen's own layers, in the order that the papers write it."""
  x = images
  for i in range(4):
    block = params[f"block_{i}"]
    bias = {"bias": block["bias"]} if norm == "none" else {}
    x = nn.Conv(block["bias"].size, (3, 3), use_bias=norm == "none").apply(
        {"params": {"kernel": block["kernel"], **bias}}, x
    )
    affine = {k: block[k] for k in ("scale", "bias") if k in block}
    if norm == "batch":
      layer = nn.BatchNorm(use_running_average=False)
      statistics = layer.init(jax.random.key(0), x)["batch_stats"]
      x, _ = layer.apply(
          {"params": affine, "batch_stats": statistics},
          x,
          mutable=["batch_stats"],
      )
    elif norm == "group":
      groups = normalization.num_groups(x.shape[-1])
      x = nn.GroupNorm(groups, epsilon=1e-5).apply({"params": affine}, x)
    x = nn.max_pool(nn.leaky_relu(x, 0.01), (2, 2), (2, 2))
  head = params["head"]
  return x.reshape(len(x), -1) @ head["kernel"] + head["bias"]


def random_params(model):
  """Weights that are nowhere zero or one, so that every one of them matters."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  def draw(s):
    return 0.3 + 0.3 * rng.standard_normal(s.shape, np.float32)
  return jax.tree.map(draw, shapes)


def to_haiku(params):
  """The Haiku Conv4's parameters that equal the Flax Conv4's."""
  result = {f"conv4/{name}": dict(layer) for name, layer in params.items()}
  head = result.pop("conv4/head")
  return result | {"conv4/head": {"w": head["kernel"], "b": head["bias"]}}


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_equals_stock_layers_and_haiku(norm):
  flax = models.conv4(3, 20, norm, SHAPE)
  haiku = models.conv4(3, 20, norm, SHAPE, library="haiku")
  params = random_params(flax)
  images = jax.random.uniform(jax.random.key(2), (6, *SHAPE))
  same = to_haiku(params)

  @jax.jit
  def run():
    return (
        flax.apply(params, images),
        haiku.apply(same, images),
        stock_layers(params, images, norm),
    )

  logits, from_haiku, expected = run()
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(logits, from_haiku, rtol=1e-6, atol=1e-6)
  def shapes(tree):
    return jax.tree.map(jnp.shape, tree)
  haiku_params = jax.eval_shape(haiku.init, jax.random.key(0))
  assert shapes(same) == shapes(haiku_params)


@pytest.mark.parametrize("library", ["flax", "haiku"])
def test_initial_weights_have_the_same_spread(library):
  params = models.conv4(5, 16, library=library).init(jax.random.key(0))
  kernel = [p for p in jax.tree.leaves(params) if p.shape == (3, 3, 16, 16)][0]
  glorot = np.sqrt(2 / (9 * 16 + 9 * 16))
  np.testing.assert_allclose(kernel.std(), glorot, rtol=0.1)
  assert abs(kernel.mean()) < 5 * glorot / np.sqrt(kernel.size)


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_only_batch_norm_mixes_examples(norm):
  model = models.conv4(3, 4, norm, (16, 16, 1))
  params = random_params(model)
  images = jax.random.uniform(jax.random.key(2), (3, 16, 16, 1))
  changed = images.at[2].set(1 - images[2])
  apply = jax.jit(model.apply)
  first, second = (apply(params, i)[0] for i in (images, changed))
  assert model.mixes_examples == (norm == "batch")
  assert np.array_equal(first, second) == (norm != "batch")


def test_number_of_weights_at_full_width():
  params = jax.eval_shape(models.conv4(5).init, jax.random.key(0))
  sizes = sum(p.size for p in jax.tree.leaves(params))
  assert sizes == 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64 + 64 * 5 + 5


@pytest.mark.parametrize(
    "settings,text",
    [
        ({"norm": "layer"}, "'layer'"),
        ({"width": 0}, "width 0"),
        ({"way": 0}, "way 0"),
        ({"input_shape": (28, 12, 1)}, "28x12"),
        ({"library": "torch"}, "'torch'"),
    ],
)
def test_wrong_settings_are_named(settings, text):
  with pytest.raises(ValueError, match=text):
    models.conv4(**{"way": 5, **settings})


@pytest.mark.parametrize("library", ["flax", "haiku"])
def test_without_a_head_the_outputs_are_what_the_head_would_see(library):
  whole = models.conv4(3, 4, "group", SHAPE, library=library)
  features = models.conv4(None, 4, "group", SHAPE, library=library)
  assert features.way == 4  # One by one pixel is left, of four channels.
  params = random_params(whole)
  (head,) = [k for k in params if k.endswith("head")]
  body = {k: v for k, v in params.items() if k != head}
  shapes = jax.eval_shape(features.init, jax.random.key(0))
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, body)
  images = jax.random.uniform(jax.random.key(2), (2, *SHAPE))
  kernel, bias = sorted(params[head].values(), key=lambda a: -a.ndim)
  np.testing.assert_allclose(
      jax.jit(features.apply)(body, images) @ kernel + bias,
      jax.jit(whole.apply)(params, images),
      rtol=1e-4,
  )
