"""Tiny episodes, networks and plain references of them in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.sampling import episodes

WAY, SHAPE = 3, (2, 2, 1)


def episode(shot=2, dtype=np.float64):
  """Random images, one query of a class; labels in no particular order."""
  rng = np.random.default_rng(0)

  def draw(per_class):
    labels = rng.permutation(np.repeat(np.arange(WAY), per_class))
    images = rng.random((labels.size, *SHAPE)).astype(dtype)
    return episodes.Examples(images, labels.astype(np.int32))

  return episodes.EpisodeBatch(draw(shot), draw(1))


def model(out=WAY):
  """Two dense layers, three wide, with a smooth nonlinearity between them."""

  def init(key):
    a, b = jax.random.split(key)
    return {
        "body": jax.random.normal(a, (4, 3)),
        "head": jax.random.normal(b, (3, out)),
    }

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return jnp.tanh(x @ params["body"]) @ params["head"]

  return models.Model(init, apply, mixes_examples=False)


def normalising_model():
  """The tiny model with an affine layer, as after a normalisation."""
  plain = model()

  def init(key):
    params = plain.init(key)
    return params | {"norm": {"scale": jnp.ones(3), "bias": jnp.zeros(3)}}

  def apply(params, images):
    x = plain.apply(params, images)
    return x * params["norm"]["scale"][None] + params["norm"]["bias"][None]

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


def prototype_logits(params, support, images):
  """Minus the squared distances to the means of the classes."""
  embedded = outputs(params, support.images)
  result = np.zeros((len(images), WAY))
  for k in range(WAY):
    members = [e for e, label in zip(embedded, support.labels) if label == k]
    prototype = sum(members) / len(members)
    for i, query in enumerate(outputs(params, images)):
      result[i, k] = -sum((query - prototype) ** 2)
  return result


def ridge_logits(params, support, images):
  """The minimum as a least-squares problem with d more equations."""
  x, y = outputs(params["model"], support.images), np.eye(WAY)[support.labels]
  d, weight = x.shape[1], np.exp(params["log_ridge"])
  rows = np.concatenate([x, np.sqrt(weight) * np.eye(d)])
  found = np.linalg.lstsq(rows, np.concatenate([y, np.zeros((d, WAY))]))[0]
  queries = outputs(params["model"], images)
  return np.exp(params["log_scale"]) * queries @ found


def descent_loss(learner, params, episode):
  """MAML, with its switches, ANIL and Meta-SGD by hand."""
  steps, names = learner.inner_steps, ("body", "head")
  rates = {k: [learner.inner_rate] * steps for k in names}
  if isinstance(learner, learners.ANIL):
    rates["body"] = [0.0] * steps
  if learner.learned_rates:
    params, rates = params["model"], params["rates"]
  if isinstance(learner, learners.MetaSGD):
    rates = {k: [rates[k]] * steps for k in names}
  norms = [np.ones((steps, 3)), np.zeros((steps, 3))]
  if learner.per_step_norm:
    norms = [params["norm"][k] for k in ("scale", "bias")]
  total, last = 0.0, [0.0] * (steps - 1) + [1.0]
  for i, weight in enumerate(learner.loss_weights or last):
    scale, bias = (norm[i] for norm in norms)
    gradient = slope(params, episode.support, scale, bias)
    params = {k: params[k] - rates[k][i] * gradient[k] for k in names}
    logits = outputs(params, episode.query.images) * scale + bias
    total += weight * cross_entropy(logits, episode.query.labels)
  return total


def plain_loss(learner, params, episode):
  """The loss of a learner of the library by loops over its equations."""
  logits = {
      learners.ProtoNet: prototype_logits, learners.RidgeHead: ridge_logits
  }.get(type(learner))
  if logits is None:
    return descent_loss(learner, params, episode)
  found = logits(params, episode.support, episode.query.images)
  if logits is prototype_logits:
    found *= learner.scale
  return cross_entropy(found, episode.query.labels)


def descend(params, examples, steps, rate, names=("body", "head")):
  """Gradient steps on the examples, one by one in NumPy."""
  for _ in range(steps):
    gradient = slope(params, examples)
    params = params | {k: params[k] - rate * gradient[k] for k in names}
  return params


def in_float64(tree):
  return jax.tree.map(lambda a: np.asarray(a, np.float64), tree)


def assert_gradient(loss, reference, params):
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
        sum(jax.tree.leaves(products)), (up - down) / 2e-4, rtol=1e-6,
        atol=1e-8
    )
