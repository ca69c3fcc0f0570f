"""ProtoNet, the ridge head, Reptile and fine-tuning against plain loops."""

import jax
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp.learners import heads


def plain_logits(tiny, params, support, images, *, cosine=None):
  """By squared distances; by angles, times a scale, where it is given."""
  embedded = tiny.outputs(params, support.images)
  queries = tiny.outputs(params, images)
  if cosine is not None:
    embedded, queries = ([e / np.linalg.norm(e) for e in b]
                         for b in (embedded, queries))
  result = np.zeros((len(images), tiny.WAY))
  for k in range(tiny.WAY):
    members = [e for e, label in zip(embedded, support.labels) if label == k]
    prototype = sum(members) / len(members)
    for i, query in enumerate(queries):
      if cosine is None:
        result[i, k] = -sum((query - prototype) ** 2)
      else:
        angle = query @ prototype / np.linalg.norm(prototype)
        result[i, k] = cosine * angle
  return result


def test_loss_and_gradient_are_those_of_the_equations(tiny):
  learner = learners.ProtoNet(tiny.model(out=5), way=tiny.WAY)
  episode = tiny.episode(shot=2, query=2)
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: tiny.cross_entropy(
          plain_logits(tiny, p, episode.support, episode.query.images),
          episode.query.labels,
      ),
      learner.init(jax.random.key(0)),
  )


def test_cosine_is_the_angle_times_a_learned_scale(tiny):
  learner = learners.ProtoNet(
      tiny.model(out=5), way=tiny.WAY, metric="cosine", scale=4.0
  )
  episode = tiny.episode(shot=2, query=2)
  params = learner.init(jax.random.key(0))
  np.testing.assert_allclose(params["log_scale"], np.log(4.0), rtol=1e-6)
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: tiny.cross_entropy(
          plain_logits(
              tiny,
              p["model"],
              episode.support,
              episode.query.images,
              cosine=np.exp(p["log_scale"]),
          ),
          episode.query.labels,
      ),
      params,
  )


def test_classes_of_unequal_size_have_their_own_means(tiny):
  learner = learners.ProtoNet(tiny.model(out=5), way=tiny.WAY)
  params = learner.init(jax.random.key(0))
  support, query = tiny.episode(shot=3, dtype=np.float32)
  support = tiny.Examples(
      support.images, np.asarray([0, 2, 1, 1, 0, 1, 1, 1, 0], np.int32)
  )
  logits = learner.predict(params, support, query.images)
  expected = plain_logits(tiny, tiny.in_float64(params), support, query.images)
  np.testing.assert_allclose(logits, expected, rtol=1e-4)
  # Each query is judged alone: its logits do not see the others.
  alone = learner.predict(params, support, query.images[:1])
  np.testing.assert_allclose(alone, expected[:1], rtol=1e-4)


def plain_solve(x, y, weight):
  """The same minimum as a least-squares problem with d more equations."""
  d, k = x.shape[1], y.shape[1]
  rows = np.concatenate([x, np.sqrt(weight) * np.eye(d)])
  return np.linalg.lstsq(rows, np.concatenate([y, np.zeros((d, k))]))[0]


@pytest.mark.parametrize("n,d", [(4, 9), (9, 4), (5, 5)])
def test_both_forms_solve_the_ridge_regression(n, d):
  rng = np.random.default_rng(0)
  x, y = rng.standard_normal((n, d)), rng.standard_normal((n, 3))
  with jax.enable_x64(True):
    solution = np.asarray(heads.solve(x, y, 0.3))
  np.testing.assert_allclose(solution, plain_solve(x, y, 0.3), rtol=1e-9)


@pytest.mark.parametrize("features", [2, 8])
def test_loss_and_gradient_are_those_of_least_squares(tiny, features):
  """Also with respect to the ridge and the scale."""
  learner = learners.RidgeHead(
      tiny.model(out=features), way=tiny.WAY, ridge=0.5, scale=3.0
  )
  episode = tiny.episode(shot=2, query=2)

  def reference(params):
    weights = plain_solve(
        tiny.outputs(params["model"], episode.support.images),
        np.eye(tiny.WAY)[episode.support.labels],
        np.exp(params["log_ridge"]),
    )
    queries = tiny.outputs(params["model"], episode.query.images)
    return tiny.cross_entropy(
        np.exp(params["log_scale"]) * queries @ weights, episode.query.labels
    )

  params = learner.init(jax.random.key(0))
  np.testing.assert_allclose(np.exp(params["log_ridge"]), 0.5, rtol=1e-6)
  np.testing.assert_allclose(np.exp(params["log_scale"]), 3.0, rtol=1e-6)
  tiny.assert_gradient(lambda p: learner.loss(p, episode), reference, params)


def both(tiny, episode):
  return tiny.Examples(
      *(np.concatenate(pair) for pair in zip(episode.support, episode.query))
  )


def plain_direction(tiny, params, episode, steps, rate):
  start, examples = params, both(tiny, episode)
  for _ in range(steps):
    gradient = tiny.slope(params, examples)
    params = {k: params[k] - rate * gradient[k] for k in params}
  return {k: (start[k] - params[k]) / rate for k in params}


@pytest.mark.parametrize("steps", [1, 4])
def test_the_direction_is_the_way_back_from_the_end_of_the_plain_loop(
    tiny, steps
):
  learner = learners.Reptile(tiny.model(), inner_steps=steps, inner_rate=0.3)
  episode = tiny.episode()
  params = tiny.in_float64(learner.init(jax.random.key(0)))
  with jax.enable_x64(True):
    loss, direction = jax.jit(learner.meta_gradient)(params, episode)
    at_support = learner.loss(params, episode)
  expected = plain_direction(tiny, params, episode, steps, 0.3)
  for k in expected:
    np.testing.assert_allclose(direction[k], expected[k], rtol=1e-9)
  # The loss beside it is that of a test task, which adapts to its support set.
  np.testing.assert_allclose(loss, at_support, rtol=1e-12)
  if steps == 1:
    gradient = tiny.slope(params, both(tiny, episode))
    np.testing.assert_allclose(direction["head"], gradient["head"], rtol=1e-9)


TUNING_RATE = 0.3


def plain_adapt(tiny, params, support, steps, names):
  for _ in range(steps):
    gradient = tiny.slope(params, support)
    params = params | {k: params[k] - TUNING_RATE * gradient[k] for k in names}
  return params


@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_adaptation_is_the_plain_loop(tiny, body, fresh):
  learner = learners.FineTuning(
      tiny.model(),
      inner_steps=4,
      optimizer=optax.sgd(TUNING_RATE),
      body=body,
      fresh_head=fresh,
  )
  support, _ = tiny.episode()
  params = tiny.in_float64(learner.init(jax.random.key(0)))
  start = dict(params)
  if fresh:
    # Of a network of seven classes; its head is replaced.
    params["head"] = np.ones((3, 7))
    start["head"] = np.zeros((3, 3))
  with jax.enable_x64(True):
    adapted = jax.jit(learner.adapt)(params, support)
    adapted = tiny.in_float64(adapted)
  names = ("body", "head") if body else ("head",)
  expected = plain_adapt(tiny, start, support, 4, names)
  for k in expected:
    np.testing.assert_allclose(adapted[k], expected[k], rtol=1e-6, atol=1e-9)
