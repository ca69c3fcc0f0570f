"""Tiny episodes, networks and plain references of them in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import models
from episodic_dp.sampling import episodes

WAY, SHAPE = 3, (2, 2, 1)


def episode(shot=2, query=1, seed=0, dtype=np.float64):
  """Random images; labels in no particular order."""
  rng = np.random.default_rng(seed)

  def draw(per_class):
    labels = rng.permutation(np.repeat(np.arange(WAY), per_class))
    images = rng.random((labels.size, *SHAPE)).astype(dtype)
    return episodes.Examples(images, labels.astype(np.int32))

  return episodes.EpisodeBatch(draw(shot), draw(query))


def model(width=3, out=WAY):
  """Two dense layers with a smooth nonlinearity between them."""

  def init(key):
    a, b = jax.random.split(key)
    return {
        "body": jax.random.normal(a, (4, width)),
        "head": jax.random.normal(b, (width, out)),
    }

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return jnp.tanh(x @ params["body"]) @ params["head"]

  return models.Model(init, apply, mixes_examples=False)


def outputs(params, images):
  """The model's, in NumPy."""
  return np.tanh(images.reshape(len(images), -1) @ params["body"]) @ (
      params["head"]
  )


def cross_entropy(logits, labels):
  logits = logits - logits.max(1, keepdims=True)
  log_softmax = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  return -np.mean([row[k] for row, k in zip(log_softmax, labels)])


def slope(params, examples, scale=1.0, bias=0.0):
  """The gradient of the model's cross entropy, by hand, in NumPy.

  Of the weights before an affine layer, where its scale and bias are given.
  """
  x = examples.images.reshape(len(examples.images), -1)
  hidden = np.tanh(x @ params["body"])
  logits = hidden @ params["head"] * scale + bias
  exponentials = np.exp(logits - logits.max(1, keepdims=True))
  error = exponentials / exponentials.sum(1, keepdims=True)
  error[np.arange(len(x)), examples.labels] -= 1
  error *= scale / len(x)
  return {
      "body": x.T @ ((error @ params["head"].T) * (1 - hidden**2)),
      "head": hidden.T @ error,
  }


def descend(params, examples, steps, rate, names=("body", "head")):
  """Gradient steps on the examples, one by one in NumPy."""
  for _ in range(steps):
    gradient = slope(params, examples)
    params = params | {k: params[k] - rate * gradient[k] for k in names}
  return params


def in_float64(tree):
  return jax.tree.map(lambda a: np.asarray(a, np.float64), tree)


def assert_gradient(loss, reference, params, rtol=1e-6):
  """`loss` is `reference` in value and in gradient, in double precision.

  The gradient by central differences of the reference, in random directions.
  """
  params = in_float64(params)
  with jax.enable_x64(True):
    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, reference(params), rtol=1e-10)
    gradient = in_float64(gradient)
  rng = np.random.default_rng(0)
  for _ in range(3):
    direction = jax.tree.map(lambda p: rng.standard_normal(p.shape), params)
    up, down = (
        reference(jax.tree.map(lambda p, d, t=t: p + t * d, params, direction))
        for t in (1e-4, -1e-4)
    )
    products = jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)
    np.testing.assert_allclose(
        sum(jax.tree.leaves(products)), (up - down) / 2e-4, rtol, atol=1e-8
    )
